"""Verdicts on claims, from tests of means and from which seeds solve a world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dgvf_agents.experiments.statistics import SIGNIFICANCE, DifferenceTest

OrderVerdict = Literal["yes", "in the mean", "no", "the reverse"]
SolvedVerdict = Literal["yes", "in part", "no"]
Mark = Literal["✓", "~", "✗", "–"]
"""A claim holds, holds in part or within the noise, does not hold, or has not been decided."""

MIN_SEEDS = 5
"""Seeds of every setting that a verdict needs."""

ORDER_VERDICTS: tuple[OrderVerdict, ...] = ("yes", "in the mean", "no", "the reverse")
"""On one return being larger than another, the best first."""

_MARKS: dict[OrderVerdict | SolvedVerdict, Mark] = {
    "yes": "✓",
    "in the mean": "~",
    "in part": "~",
    "no": "✗",
    "the reverse": "✗",
}


def order(test: DifferenceTest) -> OrderVerdict:
    """Whether the first mean is larger: `yes` and `the reverse` if the test finds the difference."""
    found = test.p <= SIGNIFICANCE
    if test.difference > 0:
        return "yes" if found else "in the mean"
    return "the reverse" if test.difference < 0 and found else "no"


def worst_order(tests: Sequence[DifferenceTest]) -> OrderVerdict:
    """The worst verdict on the first mean being larger than each of the others."""
    return max(map(order, tests), key=ORDER_VERDICTS.index)


def solves(solved: Sequence[bool]) -> SolvedVerdict:
    """Whether all seeds, some or none solve a world."""
    return "yes" if all(solved) else "in part" if any(solved) else "no"


def solves_alone(first: Sequence[bool], others: Sequence[bool]) -> SolvedVerdict:
    """Whether all seeds of one setting and none of others solve a world, or at least a larger fraction of the first."""
    if all(first) and not any(others):
        return "yes"
    return "in part" if sum(first) / len(first) > sum(others) / len(others) else "no"


def mark_of(*verdicts: OrderVerdict | SolvedVerdict) -> Mark:
    """The mark of a verdict; of several that differ in their marks, `~`."""
    marks = {_MARKS[verdict] for verdict in verdicts}
    return marks.pop() if len(marks) == 1 else "~"
