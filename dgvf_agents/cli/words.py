"""The words that may follow `dgvf`. It does not import PyTorch, so that `dgvf --help` and a mistyped word are answered
at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from tyro.extras import SubcommandApp

from dgvf_agents.options import AtariMethod, ExperimentName, Method, World

COMMANDS = {
    "train": "Train an agent and write a run folder.",
    "warm-up": "Compile what training on a world with a method needs, into the cache that all processes share.",
    "evaluate": "Mean return of a run's latest checkpoint; on Atari the mean score of whole games, unclipped.",
    "watch": "Show the agent of a run's latest checkpoint in a window.",
    "atlas": "Show what a run's questions ask, over every state of its world or along a game, as one HTML page with "
    "pictures.",
    "export": "Write a run's agent as a folder that model hubs show and `load` reads: weights, card, curve, video.",
    "probe": "Spectral radius of the inner updates of a run's checkpoints, and what L of them multiply a meta-gradient "
    "by.",
    "reproduce": "Run an experiment of the paper, or what is left of it; add records and draw its picture.",
    "sweep": "Train a method with every combination of settings, for several seeds; write a table and a picture.",
    "aggregate": "Median, interquartile mean and mean of human-normalized scores on Atari, from a table of anyone's "
    "scores.",
    "draw": "Draw an experiment's picture from a folder of records alone.",
    "bench": "Measure speed, side by side in one run.",
}
"""Descriptions of the commands, by name."""


def _words(choices: Any, following: Any = None) -> dict[str, Any]:
    return dict.fromkeys(get_args(choices), following or {})


_ON_WORLDS = _words(World, _words(Method))
_FOLLOWING = {
    "train": {**_ON_WORLDS, "atari": _words(AtariMethod), "impala": _words(AtariMethod), "own": {}, "resume": {}},
    "warm-up": _ON_WORLDS,
    "reproduce": _words(ExperimentName),
    "sweep": _ON_WORLDS,
    "draw": _words(ExperimentName),
}
_WORDS: dict[str, Any] = {name: _FOLLOWING.get(name, {}) for name in COMMANDS}
"""Words, and by each the words that may follow it; anything may follow where there are none."""


def check_words(given: Sequence[str]) -> None:
    """Check the words at the front of a command line, up to its first option.

    Raises:
        ValueError: a word is unknown; the message lists the known ones and suggests the nearest.
    """
    words, before = _WORDS, "dgvf"
    for word in given:
        if not words or word.startswith("-"):
            return
        name = chosen(word, words, before)
        words, before = words[name], f"{before} {name}"


def chosen(word: str, words: Iterable[str], before: str) -> str:
    """The word as it is listed, with hyphens.

    Raises:
        ValueError: it is not one of `words`.
    """
    name, known = word.replace("_", "-"), list(words)
    if name not in known:
        nearest = get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        if before == "dgvf train" and re.fullmatch(r".*(-v\d+|:.*)", word):
            hint = f"; an environment of your own: dgvf train own {word}"
        raise ValueError(f"{before} must be followed by one of {', '.join(known)}, got {word}{hint}")
    return name


def show_overview(summaries: Mapping[str, str], prog: str, given: Sequence[str], description: str) -> None:
    """Print a list of commands, or an error about arguments that name none of them.

    Args:
        summaries: one sentence for every command.
        prog: what comes before the arguments.
        given: the arguments.
        description: of all commands together.

    Raises:
        SystemExit: always.
    """
    listed = SubcommandApp()
    for name, summary in summaries.items():
        listed.command(name=name, help=summary)(lambda: None)
    listed.cli(prog=prog, description=description, args=given)
