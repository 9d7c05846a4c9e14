"""Verdicts, on numbers chosen next to where they change."""

from __future__ import annotations

import pytest

from dgvf_agents.experiments.statistics import DifferenceTest
from dgvf_agents.experiments.verdicts import (
    OrderVerdict,
    SolvedVerdict,
    mark_of,
    order,
    solves,
    solves_alone,
    worst_order,
)


def found(difference: float, p: float) -> DifferenceTest:
    return DifferenceTest(difference, p, 0.01)


@pytest.mark.parametrize(
    ("difference", "p", "verdict"),
    [
        (0.1, 0.05, "yes"),
        (0.1, 0.051, "in the mean"),
        (1e9, 1.0, "in the mean"),
        (0.0, 1.0, "no"),
        (0.0, 0.0, "no"),
        (-0.1, 0.051, "no"),
        (-0.1, 0.05, "the reverse"),
    ],
)
def test_an_order_is_certain_where_the_test_finds_it(difference: float, p: float, verdict: str) -> None:
    assert order(found(difference, p)) == verdict


def test_of_several_orders_the_worst_counts() -> None:
    known = {
        "yes": found(1.0, 0.01),
        "in the mean": found(2.0, 0.5),
        "no": found(-1.0, 0.5),
        "the reverse": found(-1.0, 0.01),
    }
    tests, verdicts = list(known.values()), list(known)
    for k, verdict in enumerate(verdicts):
        assert worst_order([tests[k]]) == verdict
        assert worst_order([tests[k], *tests[:k]]) == verdict
        assert worst_order([*tests[:k], tests[k]]) == verdict


@pytest.mark.parametrize(
    ("solved", "verdict"), [([True, True], "yes"), ([False, True], "in part"), ([False, False], "no")]
)
def test_a_world_is_solved_by_all_seeds_some_or_none(solved: list[bool], verdict: str) -> None:
    assert solves(solved) == verdict


@pytest.mark.parametrize(
    ("first", "others", "verdict"),
    [
        ([True, True], [False, False, False], "yes"),
        ([True, True], [False, False, True], "in part"),
        ([True, False], [False, False], "in part"),
        ([True, False], [True, True, False, False], "no"),  # as often
        ([True, True], [True, True, True], "no"),
        ([False, False], [False, False], "no"),
        ([False, False], [True, False], "no"),
        ([True, False, False], [True, False, False, False], "in part"),  # as many, of fewer seeds
    ],
)
def test_a_setting_solves_alone_if_the_others_do_so_less_often(
    first: list[bool], others: list[bool], verdict: str
) -> None:
    assert solves_alone(first, others) == verdict


@pytest.mark.parametrize(
    ("verdicts", "mark"),
    [
        (("yes",), "✓"),
        (("in the mean",), "~"),
        (("in part",), "~"),
        (("no",), "✗"),
        (("the reverse",), "✗"),
        (("yes", "yes"), "✓"),
        (("yes", "no"), "~"),
        (("no", "the reverse"), "✗"),
        (("yes", "in the mean"), "~"),
    ],
)
def test_verdicts_that_differ_are_marked_as_undecided(
    verdicts: tuple[OrderVerdict | SolvedVerdict, ...], mark: str
) -> None:
    assert mark_of(*verdicts) == mark
