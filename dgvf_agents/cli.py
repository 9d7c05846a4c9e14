"""The `dgvf` command. Its commands are imported when one is run, since PyTorch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from dgvf_agents.command_help import COMMANDS, DESCRIPTION
from dgvf_agents.command_names import check_names
from dgvf_agents.exit_status import exit_on_error


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments`, or with those of the process; bad input ends it with one line and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    exit_on_error(lambda: _run(given))


def _run(given: list[str]) -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: `--env my_world:World-v0` finds my_world.py, and nothing is hidden by it
    check_names(given)
    if given[:1] == ["--version"]:
        print(f"dgvf {version('dgvf')}")
    elif given[:1] and given[0].replace("_", "-") in COMMANDS:
        from dgvf_agents.commands import run

        run(given)
    else:
        from dgvf_agents.command_tree import show_overview

        show_overview(COMMANDS, "dgvf", given, DESCRIPTION)


if __name__ == "__main__":
    main()
