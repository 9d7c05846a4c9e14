"""What the paper says of the gridworlds, and what the tables of `results/` say, world by world.

The verdicts are computed; the page says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from generated import table
from result_tables import Experiment, count_of, interval, mean_interval

from dgvf_agents.experiments.pictures import NAMES
from dgvf_agents.experiments.results import QUANTITIES, Quantity, SummaryRow
from dgvf_agents.experiments.worlds import reference_of

_ORDERED = ("yes", "in the mean", "no", "the reverse")
"""Verdicts on an order of returns, the best first."""


class Finding(NamedTuple):
    """What was found on one world."""

    words: str
    verdict: str
    """Whether the claim holds there."""


class Claim(NamedTuple):
    """What the paper says, and how the tables are asked."""

    paper: str
    source: str
    figure: str
    settings: tuple[str, ...]
    """Labels of those that the claim is about, the one that is said to be better first."""
    found: Callable[[Experiment, str, Sequence[str]], Finding]
    """Of tables, a world and the settings."""


_SYMBOLS = {"questions": "d", "unroll-length": "k"}
"""Of the parameters whose values are the labels of an experiment's settings."""


def _name(experiment: Experiment, label: str) -> str:
    symbol = _SYMBOLS.get(experiment.figure)
    return NAMES.get(label, label) if symbol is None else f"{symbol} = {label}"


def _returns(experiment: Experiment, world: str, settings: Sequence[str], quantity: Quantity) -> str:
    said = [
        f"{_name(experiment, label)} {mean_interval(experiment.summary(world, label, quantity))}" for label in settings
    ]
    return f"{quantity} return: {', '.join(said)}"


def _order(better: SummaryRow, other: SummaryRow) -> str:
    """The verdict on one mean being larger than another."""
    apart = _lowest(better) > _highest(other) or _highest(better) < _lowest(other)
    if better.mean > other.mean:
        return "yes" if apart else "in the mean"
    return "the reverse" if apart else "no"


def _lowest(row: SummaryRow) -> float:
    return row.mean if row.mean_low is None else row.mean_low


def _highest(row: SummaryRow) -> float:
    return row.mean if row.mean_high is None else row.mean_high


def _orders(experiment: Experiment, world: str, settings: Sequence[str], quantity: Quantity) -> str:
    """The worst of the verdicts on the first setting being better than each of the others."""
    first, *others = (experiment.summary(world, label, quantity) for label in settings)
    return max((_order(first, other) for other in others), key=_ORDERED.index)


def _counts(
    experiment: Experiment, world: str, settings: Sequence[str], solved: Callable[[str, str], list[bool]]
) -> str:
    """How many seeds of each setting are solved, by a method of the experiment."""
    return ", ".join(f"{_name(experiment, label)} {count_of(solved(world, label))}" for label in settings)


def suffices(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """The first setting solves the world."""
    (label,) = settings
    reached = count_of(experiment.gets_solved(world, label))
    ended = experiment.ends_solved(world, label)
    best = reference_of(world).optimal
    words = f"{reached} seeds get there, {sum(ended)} end there; {_returns(experiment, world, settings, 'final')}"
    return Finding(f"{words} (optimal {best:g})", "yes" if all(ended) else "in part" if any(ended) else "no")


def faster(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """The first setting learns faster than the others: by the average return alone."""
    words = "; ".join(_returns(experiment, world, settings, quantity) for quantity in QUANTITIES)
    return Finding(words, _orders(experiment, world, settings, "average"))


def better(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """The first setting is better than the others, by the final and by the average return."""
    final, average = (_orders(experiment, world, settings, quantity) for quantity in QUANTITIES)
    verdict = final if final == average else f"final: {final}; average: {average}"
    return faster(experiment, world, settings)._replace(verdict=verdict)


def better_methods(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """As `better`, with how probably a run of the first setting beats one of each other."""
    found = better(experiment, world, settings)
    wins = [experiment.comparison(world, other, "average") for other in settings[1:]]
    chances = ", ".join(
        f"{_name(experiment, row.other)} {interval(row.probability, row.low, row.high)}" for row in wins
    )
    return found._replace(words=f"{found.words}; probability that its average is the larger: {chances}")


def fails(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """The first setting solves the world, and the others do not."""
    first, *others = settings
    solved = np.mean(experiment.ends_solved(world, first))
    beside = np.mean([ended for label in others for ended in experiment.ends_solved(world, label)])
    verdict = "yes" if (solved, beside) == (1.0, 0.0) else "in part" if solved > beside else "no"
    words = f"seeds that end solved: {_counts(experiment, world, settings, experiment.ends_solved)}"
    return Finding(f"{words}; {_returns(experiment, world, settings, 'final')}", verdict)


def more_stable(experiment: Experiment, world: str, settings: Sequence[str]) -> Finding:
    """As `better`, with how many seeds get there and how many end there."""
    found = better(experiment, world, settings)
    reached = _counts(experiment, world, settings, experiment.gets_solved)
    ended = _counts(experiment, world, settings, experiment.ends_solved)
    return found._replace(words=f"seeds that get there: {reached}; that end there: {ended}; {found.words}")


CLAIMS = (
    Claim(
        "Discovered questions suffice alone for an optimal policy", "figure 2", "gridworlds", ("discovered",), suffices
    ),
    Claim(
        "Random questions and reward prediction are notably worse",
        "figure 2",
        "gridworlds",
        ("discovered", "random", "reward-prediction"),
        better_methods,
    ),
    Claim("The main task trains an encoder faster", "figure 2", "gridworlds", ("a2c", "discovered"), faster),
    Claim(
        "Unrolls of 1 and 2 updates fail, of 10 do not",
        "figure 5 and appendix",
        "unroll-length",
        ("10", "1", "2"),
        fails,
    ),
    Claim("25 updates are better than 10", "figure 5 and appendix", "unroll-length", ("25", "10"), better),
    Claim("25 updates are better than 50", "figure 5 and appendix", "unroll-length", ("25", "50"), better),
    Claim("Two questions fail, 8 do not", "figure 5 and appendix", "questions", ("8", "2"), fails),
    Claim("128 questions are slower", "figure 5 and appendix", "questions", ("32", "128"), faster),
    Claim(
        "The summed meta-loss is more stable than the end meta-loss",
        "figure 4 (Atari)",
        "meta-objective",
        ("sum", "end"),
        more_stable,
    ),
)


def claims(experiments: dict[str, Experiment]) -> str:
    """The table of claims, a row for each world that all of a claim's settings have been run on."""
    rows = []
    for claim in CLAIMS:
        experiment = experiments.get(claim.figure)
        worlds = [] if experiment is None else experiment.worlds
        known = [world for world in worlds if set(claim.settings) <= set(experiment.results.settings(world))]
        for i, world in enumerate(known):
            found = claim.found(experiment, world, claim.settings)
            paper = (claim.paper, claim.source) if i == 0 else ("", "")
            rows.append((*paper, reference_of(world).env, f"**{found.verdict}**", found.words))
        if not known:
            rows.append((claim.paper, claim.source, "", "not run yet", ""))
    return table(("The paper", "Where", "World", "Here", "What was found"), rows)
