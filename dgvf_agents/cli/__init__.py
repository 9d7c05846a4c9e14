"""The `dgvf` command. Its commands are imported when one is run, since PyTorch takes seconds."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from dgvf_agents.cli.words import COMMANDS, check_words, show_overview

PIPE_CLOSED = 141
"""Exit status if nobody reads the output any longer, as in shells."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments`, or with the process's own.

    Bad input or divergence ends the process with one line and status 2.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    usual = warnings.formatwarning

    def in_one_line(message: Warning | str, category: type[Warning], *place: Any) -> str:
        return f"dgvf: {message}\n" if issubclass(category, UserWarning) else usual(message, category, *place)

    try:
        warnings.formatwarning = in_one_line  # type: ignore[assignment]
        try:
            _run(given)
        finally:
            warnings.formatwarning = usual
            sys.stdout.flush()
    except BrokenPipeError:  # what read the output, as `head` does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at exit
        sys.exit(PIPE_CLOSED)
    except Exception as error:
        from gymnasium.error import Error

        if not isinstance(error, ValueError | OSError | Error | FloatingPointError):
            raise
        line = "".join(sign if sign.isprintable() else " " for sign in f"dgvf: {error}")
        print(line, file=sys.stderr)
        sys.exit(2)


def _run(given: list[str]) -> None:
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--import", action="append", default=[], dest="modules")
    imports, given = own.parse_known_args(given)
    if os.getcwd() not in sys.path and (imports.modules or any(":" in word for word in given)):
        sys.path.append(os.getcwd())  # last: `--env my_world:World-v0` finds my_world.py, and nothing is hidden by it
    check_words(given)
    for module in imports.modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"import must be a module on Python's path, got {module}: {error}") from error
    if given[:1] == ["--version"]:
        print(f"dgvf {version('dgvf')}")
    elif not given or given[0].startswith("-"):
        description = (
            "Discovered questions as auxiliary tasks. `dgvf --version` prints the version. `--import MODULE` after a "
            "command imports a module of yours first, that a run's environment or wrapper is in."
        )
        show_overview(COMMANDS, "dgvf", given, description)
    elif given[0] == "train":
        from dgvf_agents.cli.train import train

        train(given[1:])
    else:
        from dgvf_agents.cli.commands import run

        run(given[0].replace("_", "-"), given[1:])
