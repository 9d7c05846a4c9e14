"""Commands by name, in groups. Only the chosen command is parsed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import tyro
from tyro.extras import SubcommandApp

Target = TypeVar("Target", bound="Callable[..., Any] | CommandGroup | SubcommandApp")


@final
@dataclass(frozen=True)
class CommandGroup:
    """Functions and groups by name.

    A `SubcommandApp` parses all commands as alternatives, so that it answers a mistyped option with the options of
    commands that nobody asked for. A group follows the names and parses what they lead to.
    """

    targets: dict[str, Any] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)

    def command(self, name: str, help: str | None = None) -> Callable[[Target], Target]:
        """A decorator that adds a function or a group.

        Args:
            name: its name in the command line.
            help: one sentence; the first paragraph of the docstring if `None`.
        """

        def add(target: Target) -> Target:
            self.targets[name] = target
            self.summaries[name] = help or " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())
            return target

        return add

    def cli(self, prog: str, args: Sequence[str], description: str = "") -> None:
        """Run the command that arguments name, or say what is wrong with them.

        Args:
            prog: what comes before the arguments.
            args: the arguments.
            description: of the group.
        """
        name = args[0].replace("_", "-") if args else ""
        if name not in self.targets:
            show_overview(self.summaries, prog, args, description)
            return
        target, prog, args = self.targets[name], f"{prog} {name}", args[1:]
        if isinstance(target, CommandGroup | SubcommandApp):
            target.cli(prog=prog, args=args, description=self.summaries[name])
        else:
            tyro.cli(target, prog=prog, args=args, description=self.summaries[name])


def show_overview(summaries: Mapping[str, str], prog: str, args: Sequence[str], description: str) -> None:
    """The list of commands, or an error about arguments that name none of them.

    Args:
        summaries: one sentence for every command.
        prog: what comes before the arguments.
        args: the arguments.
        description: of all commands together.
    """
    listed = SubcommandApp()
    for name, summary in summaries.items():
        listed.command(name=name, help=summary)(lambda: None)
    listed.cli(prog=prog, description=description, args=args)
