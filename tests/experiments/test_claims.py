"""Verdicts on the paper's claims, on numbers chosen next to where they change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from dgvf_agents.experiments import claims
from dgvf_agents.experiments.catalogue import FIGURES
from dgvf_agents.experiments.claims import CLAIMS, Claim, Evidence, order, solves, solves_alone, worst_order
from dgvf_agents.experiments.statistics import Estimate
from dgvf_agents.experiments.tables import Results, make_table
from dgvf_agents.experiments.worlds import SOLVED, reference_of

WORLD = "collect-objects-small"
LEVEL = SOLVED[WORLD]
Interval = tuple[float, float, float]


@pytest.mark.parametrize(
    ("first", "other", "verdict"),
    [
        ((5, 4, 6), (2, 1, 3), "yes"),
        ((5, 4, 6), (2, 1, 4), "in the mean"),  # intervals that touch overlap
        ((5, 1, 6), (4, 3, 4.5), "in the mean"),
        ((5, 4, 6), (5, 4, 6), "no"),
        ((5, 5, 5), (5, 5, 5), "no"),
        ((4, 3, 4.5), (5, 1, 6), "no"),
        ((2, 1, 4), (5, 4, 6), "no"),
        ((2, 1, 3), (5, 4, 6), "the reverse"),
        ((-45, -50, -40), (-900, -950, -46), "in the mean"),
        ((-45, -50, -40), (-900, -950, -51), "yes"),
        # a single seed has no interval: its value counts
        ((5, math.nan, math.nan), (2, 1, 4.9), "yes"),
        ((5, math.nan, math.nan), (2, 1, 5), "in the mean"),
        ((2, 1, 4), (5, math.nan, math.nan), "the reverse"),
        ((5, math.nan, math.nan), (4, math.nan, math.nan), "yes"),
        ((4, math.nan, math.nan), (5, math.nan, math.nan), "the reverse"),
    ],
)
def test_an_order_is_certain_where_intervals_are_disjoint(first: Interval, other: Interval, verdict: str) -> None:
    assert order(Estimate(*first), Estimate(*other)) == verdict


def test_of_several_orders_the_worst_counts() -> None:
    first = Estimate(5, 4, 6)
    others = {
        "yes": Estimate(2, 1, 3),
        "in the mean": Estimate(4, 3, 5),
        "no": Estimate(5.5, 5, 7),
        "the reverse": Estimate(9, 8, 10),
    }
    for verdict, other in others.items():
        assert worst_order(first, [other]) == verdict
    known = list(others)
    for k in range(1, 4):
        assert worst_order(first, [others[known[k]], *list(others.values())[:k]]) == known[k]
        assert worst_order(first, [*list(others.values())[:k], others[known[k]]]) == known[k]


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


def results(
    finals: Mapping[str, list[float]],
    average: Mapping[str, Interval] | None = None,
    final: Mapping[str, Interval] | None = None,
    best: Mapping[str, list[float]] | None = None,
) -> Results:
    """Tables of one world: final returns of seeds, intervals of the means, and the best return of each seed's curve."""
    default = {label: (sum(returns) / len(returns), min(returns), max(returns)) for label, returns in finals.items()}
    seeds = [(label, seed, value) for label, returns in finals.items() for seed, value in enumerate(returns)]
    peaks = best or finals
    curves = [
        (WORLD, label, seed, steps, value)
        for label, seed, _ in seeds
        for steps, value in ((100, 0.0), (200, peaks[label][seed]), (300, LEVEL - 1), (400, peaks[label][seed]))
    ]
    means = [
        (WORLD, label, quantity, len(finals[label]), *interval, 0.0, 0.0, 0.0)
        for quantity, intervals in (("final", final or default), ("average", average or default))
        for label, interval in intervals.items()
    ]
    wins = [(WORLD, "final", "?", label, 0.25, 0.0, 0.5) for label in finals]
    wins += [(WORLD, "average", "?", label, 0.75, 0.5, 1.0) for label in finals]
    return Results(
        make_table("cells", [(WORLD, label, seed, 300, "evaluation", value, 0.0) for label, seed, value in seeds]),
        make_table("curves", curves),
        summary=make_table("summary", means),
        comparisons=make_table("comparisons", wins),
    )


def evidence(found: Results, *settings: str, figure: str = "gridworlds") -> Evidence:
    return Evidence(found, figure, WORLD, settings)


def test_a_seed_is_solved_from_the_level_on() -> None:
    below = math.nextafter(LEVEL, -math.inf)
    found = results({"a": [LEVEL, below, LEVEL]}, best={"a": [LEVEL, below, below]})
    assert claims.ends_solved(found, WORLD, "a") == [True, False, True]
    assert claims.steps_to_solve(found, WORLD, "a") == [200, None, None]
    verdict = claims.suffices(evidence(found, "a"))
    assert verdict == (
        "1 of 3 seeds get there, 2 end there; final return: a 2.90 [2.90, 2.90] (optimal 3)",
        "in part",
    )


def test_solved_is_near_the_optimum_and_far_from_the_random_policy() -> None:
    for world, level in SOLVED.items():
        if not world.startswith("atari/"):  # there it shows learning
            assert 0.96 < reference_of(world).normalized(level) < 1.0


HIGH, LOW = (2.0, 1.9, 2.1), (1.0, 0.9, 1.1)


@pytest.mark.parametrize(
    ("final", "average", "faster", "better"),
    [
        ((HIGH, LOW), (HIGH, LOW), "yes", "yes"),
        ((LOW, HIGH), (HIGH, LOW), "yes", "final: the reverse; average: yes"),
        ((HIGH, LOW), (LOW, HIGH), "the reverse", "final: yes; average: the reverse"),
        ((LOW, LOW), (LOW, LOW), "no", "no"),
    ],
)
def test_faster_is_about_averages_and_better_about_both(
    final: tuple[Interval, Interval], average: tuple[Interval, Interval], faster: str, better: str
) -> None:
    intervals = ({"a": means[0], "b": means[1]} for means in (average, final))
    asked = evidence(results({"a": [0.0], "b": [0.0]}, *intervals), "a", "b")
    assert claims.faster(asked).verdict == faster
    for check in (claims.better, claims.better_methods, claims.more_stable):
        assert check(asked).verdict == better


def test_words_tell_the_numbers_behind_a_verdict() -> None:
    found = results({"sum": [3.0, 3.0], "end": [0.0, 3.0]}, best={"sum": [3.0, 3.0], "end": [3.0, 3.0]})
    returns = "Summed meta-loss 3.00 [3.00, 3.00], End meta-loss 1.50 [0.00, 3.00]"
    asked = evidence(found, "sum", "end")
    assert claims.more_stable(asked).words == (
        "seeds that get there: Summed meta-loss 2 of 2, End meta-loss 2 of 2; "
        "that end there: Summed meta-loss 2 of 2, End meta-loss 1 of 2; "
        f"final return: {returns}; average return: {returns}"
    )
    assert claims.better_methods(asked).words.endswith(
        "; probability that its average is the larger: End meta-loss 0.75 [0.50, 1.00]"
    )
    study = evidence(results({"8": [3.0], "2": [0.0]}), "8", "2", figure="questions")
    assert claims.others_fail(study) == (
        "seeds that end solved: d = 8 1 of 1, d = 2 0 of 1; final return: d = 8 3.00 [3.00, 3.00], "
        "d = 2 0.00 [0.00, 0.00]",
        "yes",
    )


def test_others_fail_counts_every_seed_of_all_others() -> None:
    found = results({"10": [3.0, 3.0], "1": [0.0, 0.0], "2": [0.0, 3.0]})
    assert claims.others_fail(evidence(found, "10", "1", "2")).verdict == "in part"
    assert claims.others_fail(evidence(found, "10", "1")).verdict == "yes"
    assert claims.others_fail(evidence(found, "2", "1")).verdict == "in part"
    assert claims.others_fail(evidence(found, "1", "10", "2")).verdict == "no"


def test_numbers_have_three_digits_and_intervals_where_there_are_any() -> None:
    assert [claims.number(x) for x in (2.345, -9.999, 10.0, -1234.56)] == ["2.35", "-10.00", "10.0", "-1,234.6"]
    assert claims.interval(Estimate(1.0, 0.5, 10.5)) == "1.00 [0.50, 10.5]"
    assert claims.interval(Estimate(1.0, math.nan, math.nan)) == "1.00"


def test_claims_are_about_settings_that_experiments_run() -> None:
    for claim in CLAIMS:
        assert set(claim.settings) <= {setting.label for setting in FIGURES[claim.figure].settings(WORLD)}
        if claim.check is claims.better_methods:
            assert claim.settings[0] == FIGURES[claim.figure].reference


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("Random questions and reward prediction are notably worse", "discovered"),
        ("The main task trains an encoder faster", "a2c"),
        ("Unrolls of 1 and 2 updates fail, of 10 do not", "10"),
        ("25 updates are better than 10", "25"),
        ("25 updates are better than 50", "25"),
        ("Two questions fail, 8 do not", "8"),
        ("128 questions are slower", "32"),
        ("The summed meta-loss is more stable than the end meta-loss", "sum"),
    ],
)
def test_a_claim_holds_where_its_setting_is_the_best(text: str, better: str) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.text == text)
    for winner in claim.settings:
        found = results({label: [3.0 if label == winner else 0.0] * 2 for label in claim.settings})
        verdict = claim.findings(found)[WORLD].verdict
        assert (verdict == "yes") is (winner == better)


def test_rows_name_each_world_and_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = (
        Claim("one", "figure 1", "gridworlds", ("a",), claims.suffices),
        Claim("two", "figure 2", "gridworlds", ("a", "c"), claims.better),
        Claim("three", "figure 3", "questions", ("a",), claims.suffices),
    )
    monkeypatch.setattr(claims, "CLAIMS", chosen)
    rows = claims.claim_rows({"gridworlds": results({"a": [3.0], "b": [0.0]})})
    assert [row[:4] for row in rows] == [
        ("one", "figure 1", "CollectObjectsSmall-v0", "**yes**"),
        ("two", "figure 2", "", "not run yet"),
        ("three", "figure 3", "", "not run yet"),
    ]


def test_the_committed_page_has_these_verdicts() -> None:
    docs = Path(__file__).parents[2] / "docs"
    experiments = {claim.figure: Results.read(docs / "results" / claim.figure) for claim in CLAIMS}
    page = (docs / "results.md").read_text(encoding="utf-8")
    for row in claims.claim_rows(experiments):
        assert f"| {' | '.join(row)} |" in page
