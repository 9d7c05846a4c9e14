"""Statistics over seeds against closed forms and against every resample there is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dgvf_agents.experiments.statistics import (
    bootstrap_interval,
    difference_test,
    estimate,
    interquartile_mean,
    mean,
    mean_of_worlds,
    median_improvement,
    median_of_worlds,
    probability_of_improvement,
)


def every_resample(sample: np.ndarray) -> np.ndarray:
    """[len(sample) ** len(sample), len(sample)]"""
    return np.array(list(itertools.product(sample, repeat=len(sample))))


def assert_percentiles(low: float, high: float, values: np.ndarray) -> None:
    """`low` and `high` cut 2.5 % each off the values of all resamples, to what 5,000 draws can tell."""
    tiny, tolerance = 1e-9, 0.008
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


def test_strata_are_pooled_by_means() -> None:
    strata = np.array([0.0, 1.0]), np.array([10.0, 11.0, 12.0, 13.0])
    assert mean(*strata) == pytest.approx(47 / 6)
    assert interquartile_mean(*strata) == pytest.approx((1 + 10 + 11 + 12) / 4)


def test_the_probability_of_improvement_counts_pairs_and_half_of_the_ties() -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 6, 7).astype(float), random.integers(0, 6, 9).astype(float)
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y]
    assert 0.5 in pairs
    assert probability_of_improvement(x, y) == pytest.approx(sum(pairs) / len(pairs), rel=1e-14)
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)


def test_the_probability_of_improvement_is_the_mean_over_worlds() -> None:
    wins, ties = (np.array([2.0, 3.0]), np.array([0.0])), (np.array([1.0, 1.0]), np.array([1.0]))
    assert probability_of_improvement(wins[0], ties[0], wins[1], ties[1]) == pytest.approx((1.0 + 0.5) / 2)


def test_worlds_count_alike_in_means_and_medians_over_worlds() -> None:
    strata = np.array([0.0, 1.0]), np.array([10.0, 11.0, 12.0, 13.0]), np.array([2.0])
    assert mean_of_worlds(*strata) == pytest.approx((0.5 + 11.5 + 2.0) / 3)
    assert median_of_worlds(*strata) == 2.0
    assert median_of_worlds(*strata[:2]) == 6.0


def test_improvements_are_relative_to_the_other_agent_if_it_is_better_than_the_human() -> None:
    x = np.array([5.0, 7.0]), np.array([0.5]), np.array([-1.0, 0.0])
    y = np.array([4.0]), np.array([0.2, 0.4]), np.array([-3.0])
    gains = [(6.0 - 4.0) / 4.0, 0.5 - 0.3, -0.5 + 3.0]
    for i, gain in enumerate(gains):
        assert median_improvement(x[i], y[i]) == pytest.approx(gain)
    assert median_improvement(*x, *y) == pytest.approx(0.5)


def test_intervals_of_statistics_over_worlds_are_those_of_all_resamples() -> None:
    strata = [np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0]), np.array([0.5, 4.0])]
    resamples = [every_resample(stratum).mean(axis=1) for stratum in strata]
    medians = np.array([np.median(means) for means in itertools.product(*resamples)])
    found = estimate(median_of_worlds, strata)
    assert_percentiles(found.low, found.high, medians)
    gains = np.array([(x - y) / max(1.0, y) for x in resamples[0] for y in resamples[1]])
    found = estimate(median_improvement, strata[:2])
    assert_percentiles(found.low, found.high, gains)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_intervals_are_those_of_all_resamples(statistic: object) -> None:
    sample = np.array([0.3, 1.0, 1.1, 2.7, 4.0, 9.0])
    found = estimate(statistic, [sample])  # type: ignore[arg-type]
    assert_percentiles(found.low, found.high, statistic(every_resample(sample), axis=-1))  # type: ignore[operator]
    assert found.low < found.value < found.high


def test_intervals_of_two_or_three_seeds_reach_from_the_least_to_the_largest() -> None:
    # all seeds alike has a probability of 1/4 or 1/27, more than the 2.5 % beyond each end
    for sample in ([1.0, 4.0], [1.0, 2.0, 9.0]):
        found = estimate(mean, [np.array(sample)])
        assert (found.low, found.high) == (sample[0], sample[-1])


def test_seeds_are_drawn_within_their_stratum() -> None:
    found = estimate(mean, [np.zeros(3), np.ones(3)])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    strata = [np.array([0.0, 1.0, 5.0]), np.array([10.0, 20.0, 40.0, 80.0])]
    sums = every_resample(strata[0]).sum(axis=1)[:, None] + every_resample(strata[1]).sum(axis=1)[None, :]
    found = estimate(mean, strata)
    assert_percentiles(found.low, found.high, sums.ravel() / 7)


def test_intervals_of_the_probability_of_improvement_are_those_of_all_resamples() -> None:
    x, y = np.array([1.0, 2.0, 5.0, 6.0]), np.array([0.0, 3.0, 4.0])
    pairs = [probability_of_improvement(a, b) for a in every_resample(x) for b in every_resample(y)]
    found = estimate(probability_of_improvement, [x, y])
    assert_percentiles(found.low, found.high, np.array(pairs))


def test_intervals_of_large_samples_are_those_of_the_normal_distribution() -> None:
    sample = np.random.default_rng(1).normal(3.0, 2.0, 2_000)
    found = estimate(mean, [sample])
    half = 1.96 * sample.std() / np.sqrt(len(sample))
    assert found.high - found.low == pytest.approx(2 * half, rel=0.06)
    assert found.value == pytest.approx(sample.mean())


def test_intervals_of_many_points_are_those_of_each() -> None:
    values = np.random.default_rng(2).normal(size=(4, 5))
    low, high = bootstrap_interval(mean, [values])
    assert low.shape == high.shape == (4,)
    for k in range(4):
        assert_percentiles(low[k], high[k], every_resample(values[k]).mean(axis=1))


def test_one_seed_has_no_interval_and_none_no_value() -> None:
    found = estimate(mean, [np.array([1.0, 2.0]), np.array([6.0])])
    assert found.value == 3.0
    assert np.isnan([found.low, found.high]).all()
    with pytest.raises(ValueError, match=r"strata must each have a seed, got sizes \[2, 0\]"):
        estimate(mean, [np.zeros(2), np.zeros(0)])
    with pytest.raises(ValueError, match="strata must each have a seed"):
        estimate(mean, [])


def test_intervals_are_the_same_every_time() -> None:
    sample = np.random.default_rng(3).normal(size=7)
    assert estimate(mean, [sample]) == estimate(mean, [sample])


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ([5.0, 6.0, 7.0], [1.0, 2.0, 4.0]),
        ([1.0, 2.0, 4.0], [5.0, 6.0, 7.0]),
        ([5.0, 3.0, 7.0], [1.0, 2.0, 6.0, 4.0]),
        ([-44.0, -43.0, -1364.6, -146.5, -47.5], [-120.0, -117.0, -127.0, -118.0, -119.0]),
        ([1.0, 1.0, 2.0], [1.0, 2.0, 2.0]),
    ],
)
def test_the_permutation_test_counts_every_division_of_the_seeds(first: list[float], other: list[float]) -> None:
    seeds, n = first + other, len(first)
    differences = []
    for chosen in itertools.combinations(range(len(seeds)), n):
        ours = [seeds[i] for i in chosen]
        differences.append(sum(ours) / n - (sum(seeds) - sum(ours)) / len(other))
    observed = sum(first) / n - sum(other) / len(other)
    above, below = (sum(sign * d >= sign * observed - 1e-9 for d in differences) for sign in (1, -1))
    found = difference_test(np.array(first), np.array(other))
    assert found.difference == pytest.approx(observed)
    assert found.p == pytest.approx(min(1.0, 2 * min(above, below) / len(differences)))
    assert found.smallest == 2 / math.comb(len(seeds), n)


def test_samples_that_do_not_overlap_have_the_smallest_p() -> None:
    for n, m in ((3, 3), (5, 5), (9, 9), (2, 7), (12, 12)):  # the last with random divisions
        found = difference_test(np.arange(float(n)) + 100, np.arange(float(m)))
        assert found.p == pytest.approx(found.smallest)
    assert difference_test(np.zeros(5), np.zeros(5)) == (0.0, 1.0, 2 / 252)


def test_large_samples_are_compared_with_random_divisions() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(0.9, 1.0, 12), random.normal(0.0, 1.0, 12)
    found = difference_test(x, y)
    assert found == difference_test(x, y)
    assert found.p == pytest.approx(stats.ttest_ind(x, y).pvalue, abs=0.01)


def test_a_permutation_test_needs_two_seeds_each() -> None:
    with pytest.raises(ValueError, match="samples must each have two seeds, got sizes 1 and 5"):
        difference_test(np.zeros(1), np.zeros(5))
