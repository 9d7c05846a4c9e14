"""Statistics over seeds against closed forms and against every resample there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dgvf_agents.experiments.records import tables_of
from dgvf_agents.experiments.settings import setting
from dgvf_agents.experiments.statistics import (
    Estimate,
    area_under_curve,
    estimate,
    final_return,
    fraction_difference,
    fraction_estimate,
    holm,
    improvement,
    interquartile_difference,
    interquartile_mean,
    mean_difference,
    mean_of_worlds,
    median_of_worlds,
    stratified_permutation_test,
    weighted,
)


def every_resample(sample: np.ndarray) -> np.ndarray:
    """[len(sample) ** len(sample), len(sample)]"""
    return np.array(list(itertools.product(sample, repeat=len(sample))))


def assert_percentiles(found: Estimate, values: np.ndarray) -> None:
    """The interval cuts 2.5% off each side of the values of all resamples, to what 5,000 draws can tell."""
    (_, low, high), tiny, tolerance = found, 1e-9, 0.008
    assert np.mean(values < low - tiny) - tolerance <= 0.025 <= np.mean(values <= low + tiny) + tolerance
    assert np.mean(values > high + tiny) - tolerance <= 0.025 <= np.mean(values >= high - tiny) + tolerance


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ([5.0], 5.0),
        ([0.0, 3.0, 9.0], 4.0),  # a quarter of three is none
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([-50.0, 1.0, 2.0, 3.0, 90.0], 2.0),
        ([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 4.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side(sample: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(sample)) == pytest.approx(expected, rel=1e-14)


def test_worlds_count_alike_in_means_and_medians_over_worlds() -> None:
    strata = np.array([0.0, 1.0]), np.array([10.0, 11.0, 12.0, 13.0]), np.array([2.0])
    assert mean_of_worlds(*strata) == pytest.approx((0.5 + 11.5 + 2.0) / 3)
    assert median_of_worlds(*strata) == 2.0
    assert median_of_worlds(*strata[:2]) == 6.0


def test_intervals_of_statistics_over_worlds_are_those_of_all_resamples() -> None:
    strata = [np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0]), np.array([0.5, 4.0])]
    resamples = [every_resample(stratum).mean(axis=1) for stratum in strata]
    medians = np.array([np.median(means) for means in itertools.product(*resamples)])
    assert_percentiles(estimate(median_of_worlds, strata), medians)


@pytest.mark.parametrize("statistic", [mean_of_worlds, interquartile_mean])
def test_intervals_are_those_of_all_resamples(statistic: object) -> None:
    sample = np.array([0.3, 1.0, 1.1, 2.7, 4.0, 9.0])
    found = estimate(statistic, [sample])  # type: ignore[arg-type]
    assert_percentiles(found, statistic(every_resample(sample), axis=-1))  # type: ignore[operator]
    assert found.low < found.value < found.high


def test_seeds_are_drawn_within_their_stratum() -> None:
    found = estimate(mean_of_worlds, [np.zeros(3), np.ones(3)])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    strata = [np.array([0.0, 1.0, 5.0]), np.array([10.0, 20.0, 40.0, 80.0])]
    sums = every_resample(strata[0]).mean(axis=1)[:, None] + every_resample(strata[1]).mean(axis=1)[None, :]
    assert_percentiles(estimate(mean_of_worlds, strata), sums.ravel() / 2)


def test_one_seed_has_no_interval_and_none_no_value() -> None:
    found = estimate(mean_of_worlds, [np.array([1.0, 2.0]), np.array([6.0])])
    assert found.value == 3.75
    assert np.isnan([found.low, found.high]).all()
    with pytest.raises(ValueError, match=r"strata must each have a seed, got sizes \[2, 0\]"):
        estimate(mean_of_worlds, [np.zeros(2), np.zeros(0)])
    with pytest.raises(ValueError, match="strata must each have a seed"):
        estimate(mean_of_worlds, [])


def of_rliable(x: np.ndarray, y: np.ndarray) -> float:
    """rliable's probability of improvement of one task: the Mann-Whitney U statistic over the number of pairs."""
    return float(stats.mannwhitneyu(x, y).statistic) / (len(x) * len(y))


def test_the_probability_of_improvement_is_rliables() -> None:
    random = np.random.default_rng(0)
    pair, other = random.integers(0, 6, (2, 9)).astype(float), random.normal(size=(2, 4))
    assert set(pair[0]) & set(pair[1])  # ties count half
    assert improvement(pair) + 0.5 == pytest.approx(of_rliable(*pair), rel=1e-14)
    assert improvement(pair) == pytest.approx(-improvement(pair[::-1]))
    over_tasks = weighted(improvement, [0.5, 0.5])(pair, other) + 0.5
    assert over_tasks == pytest.approx((of_rliable(*pair) + of_rliable(*other)) / 2)


def test_definitions_are_rliables() -> None:
    theirs = pytest.importorskip("rliable.metrics")
    x, y = np.random.default_rng(0).normal(size=(2, 9, 3))  # of runs and tasks
    for ours, their in ((interquartile_mean, "iqm"), (median_of_worlds, "median"), (mean_of_worlds, "mean")):
        assert ours(*x.T) == pytest.approx(getattr(theirs, f"aggregate_{their}")(x), rel=1e-12)
    over_tasks = weighted(improvement, [1 / 3] * 3)(*np.stack([x.T, y.T], 1)) + 0.5
    assert over_tasks == pytest.approx(theirs.probability_of_improvement(x, y), rel=1e-12)


def test_intervals_of_comparisons_resample_the_runs_of_a_seed_together() -> None:
    pair = np.array([[1.0, 2.0, 5.0, 6.0, 9.0], [0.0, 3.0, 4.0, 7.0, 7.5]])
    resamples = [pair[:, list(seeds)] for seeds in itertools.product(range(5), repeat=5)]
    assert_percentiles(estimate(weighted(improvement, [1.0]), [pair]), np.array([improvement(x) for x in resamples]))
    values = np.array([interquartile_mean(x) - interquartile_mean(y) for x, y in resamples])
    assert_percentiles(estimate(interquartile_difference, [pair]), values)
    apart = estimate(interquartile_difference, [np.array([[1.0, 20.0, 300.0], [0.0, 19.0, 299.0]])])
    assert apart == pytest.approx((1.0, 1.0, 1.0))


def test_a_fraction_has_its_exact_interval() -> None:
    value, low, high = fraction_estimate(10, 10)
    assert (value, high) == (1.0, 1.0)
    assert low == pytest.approx(0.025**0.1)  # all of ten: p^10 = 0.025
    assert fraction_estimate(0, 10).high == pytest.approx(1 - low)
    beta = stats.beta(3, 8)  # Clopper-Pearson's lower end for 3 of 10
    assert fraction_estimate(3, 10).low == pytest.approx(beta.ppf(0.025))


def test_a_difference_of_fractions_has_newcombes_interval() -> None:
    """Newcombe (1998), table II, method 10: 56 of 70 against 48 of 80, 9 of 10 against 3 of 10, 10 of 10 against 0."""
    for (x, m), (y, n), expected in (
        ((56, 70), (48, 80), (0.2, 0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.6, 0.1705, 0.8090)),
        ((10, 10), (0, 10), (1.0, 0.6075, 1.0)),
    ):
        first, second = np.arange(m) < x, np.arange(n) < y
        found = fraction_difference([[first.astype(float), second.astype(float)]], [1.0])  # type: ignore[list-item]
        assert found == pytest.approx(expected, abs=1e-4)


def test_a_difference_of_fractions_over_strata_adds_their_variances() -> None:
    pair = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    alone, twice = fraction_difference([pair], [1.0]), fraction_difference([pair, pair], [0.5, 0.5])
    assert twice.value == alone.value == 0.5
    assert alone.value - alone.low == pytest.approx(math.sqrt(2) * (twice.value - twice.low))
    assert alone.high - alone.value == pytest.approx(math.sqrt(2) * (twice.high - twice.value))


def test_the_permutation_test_exchanges_the_runs_of_a_seed() -> None:
    pair = np.array([[3.0, 4.0, 5.0, 9.0, 8.0], [1.0, 4.5, 3.5, 9.5, 2.0]])
    exact = stats.permutation_test(
        tuple(pair), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", alternative="greater"
    )
    found = stratified_permutation_test(weighted(mean_difference, [1.0]), [pair])
    assert found == pytest.approx(float(exact.pvalue), abs=0.015)
    assert stratified_permutation_test(weighted(mean_difference, [1.0]), [pair[::-1]]) > 0.8
    assert stratified_permutation_test(weighted(mean_difference, [1.0]), [np.zeros((2, 5))]) == 1.0


def test_permutations_stay_in_their_stratum() -> None:
    """Three worlds apart, X is always the larger of two: the probability is 2 to the power of -3."""
    pairs = [np.array([[100.0 * i + 1.0], [100.0 * i]]) for i in range(3)]
    found = stratified_permutation_test(weighted(mean_difference, [1.0, 1.0, 1.0]), pairs)
    assert found == pytest.approx(1 / 8, abs=0.02)


def test_holm_multiplies_the_smallest_most() -> None:
    for p_values, adjusted in (([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]), ([0.5, 0.9], [1.0, 1.0]), ([], [])):
        assert holm(pd.Series(p_values, dtype=float)).tolist() == pytest.approx(adjusted)


def test_measures_of_a_curve() -> None:
    assert final_return(np.array([0.0, 1.0, 1.0, 1.0, 1.0, 2.0])) == pytest.approx(1.2)
    assert area_under_curve(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == pytest.approx((1 + 3) / 3)
    assert str(Estimate(1.0, 0.5, 12.0)) == "1.00 [0.50, 12.0]"


def table(world: str, returns: Sequence[float]) -> pd.DataFrame:
    """Runs whose curves rise linearly from 0 to the returns of their seeds."""
    steps, one = np.arange(10.0, 110.0, 10.0), setting(world, "a2c")
    rows = [(world, one.name, seed, "cpu", steps, value * steps / 100) for seed, value in enumerate(returns)]
    return tables_of([one], pd.DataFrame(rows, columns=["world", "setting", "seed", "processor", "steps", "returns"]))


def test_a_run_has_final_and_average_return_and_is_solved_at_the_level() -> None:
    found = table("collect-objects", [3.5, 3.0])
    assert list(found["final"]) == pytest.approx([3.5 * 0.8, 3.0 * 0.8])  # the last five of ten: 60% to 100%
    assert list(found["solved"]) == [0.0, 0.0]
    assert list(table("puddle-world", [-50.0, -60.0])["solved"]) == [1.0, 0.0]
    assert table("CartPole-v1", [9.0])["solved"].isna().all()
    assert list(found["average"]) == pytest.approx([(0.1 * 0.1 + 0.9 * 0.55) * value for value in (3.5, 3.0)])
