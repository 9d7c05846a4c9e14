"""The `dgvf` command. Its commands are imported when one is run, since PyTorch takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from dgvf_agents.command_help import COMMANDS, DESCRIPTION
from dgvf_agents.exit_status import exit_on_error


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments`, or with those of the process; bad input ends it with one line and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    exit_on_error(lambda: _run(given))


def _run(given: list[str]) -> None:
    if given[:1] == ["--version"]:
        print(f"dgvf {version('dgvf')}")
    elif given[:1] and given[0] in COMMANDS:
        from dgvf_agents.commands import run

        run(given)
    else:
        _overview(given)


def _overview(given: list[str]) -> None:
    """The list of commands, or what is wrong with the one that is given."""
    from tyro.extras import SubcommandApp

    app = SubcommandApp()
    for name, summary in COMMANDS.items():
        app.command(name=name, help=summary)(lambda: None)
    app.cli(prog="dgvf", description=DESCRIPTION, args=given)


if __name__ == "__main__":
    main()
