"""The words that may follow `dgvf`. It imports nothing large, so that a mistyped word is answered at once."""

from __future__ import annotations

from typing import Any, Literal, get_args

from dgvf_agents.command_help import COMMANDS
from dgvf_agents.options import AtariMethod, Method, World

Names = dict[str, Any]
"""Words, and by each the words that may follow it: again `Names`, empty if anything may follow."""

WORLDS, METHODS, ATARI_METHODS = get_args(World), get_args(Method), get_args(AtariMethod)
ExperimentName = Literal[
    "figure-2",
    "figure-4",
    "figure-5",
    "own-tasks",
    "convention",
    "rms-prop",
    "question-transfer",
    "atari",
]
EXPERIMENTS: tuple[ExperimentName, ...] = get_args(ExperimentName)
BENCHMARKS = ("envs", "agents", "population", "start", "atari", "impala")


def _each(words: tuple[str, ...], then: Names | None = None) -> Names:
    return {word: then or {} for word in words}


_ON_WORLDS = _each(WORLDS, _each(METHODS))

NAMES: Names = {
    **_each(tuple(COMMANDS)),
    "train": {**_ON_WORLDS, **_each(("atari", "impala"), _each(ATARI_METHODS)), "resume": {}},
    "warm-up": _ON_WORLDS,
    "reproduce": _each(EXPERIMENTS),
    "sweep": _ON_WORLDS,
    "draw": _each(EXPERIMENTS),
    "bench": _each(BENCHMARKS),
}
"""Of all commands."""


def check_names(given: list[str]) -> None:
    """Check the words at the front of a command line, up to its first option.

    Raises:
        ValueError: a word is unknown; the message lists the known ones and suggests the nearest.
    """
    names, before = NAMES, "dgvf"
    for word in given:
        if not names or word.startswith("-"):
            return
        name = word.replace("_", "-")
        if name not in names:
            raise ValueError(
                f"{before} must be followed by one of {', '.join(names)}, got {word}{_nearest(name, names)}"
            )
        names, before = names[name], f"{before} {name}"


def _nearest(word: str, names: Names) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, names, n=1)
    return f"; did you mean {found[0]}?" if found else ""
