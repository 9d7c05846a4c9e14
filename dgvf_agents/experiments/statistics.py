"""Statistics over seeds, as Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice", advise.

Samples come in strata, one array of returns per world; the bootstrap resamples seeds within each world. Its percentile
intervals are too narrow for few seeds (for three they cover the mean in about 70 % of cases, not in 95 %): below
`SEEDS_FOR_INTERVALS`, pages and pictures show every seed and a permutation test in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
from scipy import integrate, stats

RESAMPLES = 5_000
CONFIDENCE = 0.95
SEEDS_FOR_INTERVALS = 10
"""Seeds of a setting from which on bootstrap intervals are shown."""
SIGNIFICANCE = 0.05
"""The p-value up to which a difference counts as found."""
_PERMUTATIONS = 50_000
"""At most; all divisions of two samples of nine are 48,620."""

Statistic = Callable[..., np.ndarray]
"""`statistic(*strata, axis)`, over `axis` of arrays whose other axes are those of resamples."""


@final
class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    """Of the sample."""
    low: float
    """Lower end of the interval; NaN if a stratum has a single seed."""
    high: float
    """Upper end of the interval; NaN if a stratum has a single seed."""


@final
class DifferenceTest(NamedTuple):
    """A two-sided permutation test of whether two means are equal."""

    difference: float
    """The first mean minus the second."""
    p: float
    """Twice the smaller of two shares, at most 1: of the divisions of all seeds into two such samples, those whose
    difference is at least as large, and those whose difference is at most as large."""
    smallest: float
    """The smallest p-value that the test can give: 2 / C(n + m, n), or 2 / 50,001 with random divisions."""


FINAL_EVALUATIONS = 5
"""The final return is the mean of the last evaluations."""


def final_return(returns: np.ndarray) -> float:
    """Mean of the last `FINAL_EVALUATIONS` evaluations [N]."""
    return float(np.mean(returns[-FINAL_EVALUATIONS:]))


def area_under_curve(steps: np.ndarray, returns: np.ndarray) -> float:
    """Mean return over a run, by the trapezoidal rule; constant before the first evaluation.

    Args:
        steps: [N] environment steps of the evaluations, ascending.
        returns: [N] mean returns.
    """
    steps, returns = np.concatenate([[0], steps]), np.concatenate([returns[:1], returns])
    return float(integrate.trapezoid(returns, steps) / steps[-1])


def fraction_estimate(successes: int, number: int) -> Estimate:
    """A fraction with its exact (Clopper-Pearson) 95 % interval."""
    found = stats.binomtest(successes, number).proportion_ci(CONFIDENCE, method="exact")
    return Estimate(successes / number, float(found.low), float(found.high))


def mean_difference(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of x minus mean of y."""
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def improvement(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """P(X > Y) + P(X = Y) / 2 - 1/2, of all pairs of seeds."""
    pairs = np.moveaxis(x, axis, -1)[..., :, None] - np.moveaxis(y, axis, -1)[..., None, :]
    return np.mean(np.sign(pairs) / 2, axis=(-2, -1))


def weighted(compare: Statistic, weights: Sequence[float]) -> Statistic:
    """The weighted sum over strata of a comparison of X and Y.

    The statistic takes X of each stratum, then Y of each.
    """

    def statistic(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
        half = len(strata) // 2
        pairs = zip(weights, strata[:half], strata[half:], strict=True)
        return np.sum([weight * compare(x, y, axis=axis) for weight, x, y in pairs], axis=0)

    return statistic


def interquartile_difference(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean of all X minus that of all Y: X of each stratum, then Y of each."""
    half = len(strata) // 2
    return interquartile_mean(*strata[:half], axis=axis) - interquartile_mean(*strata[half:], axis=axis)


def stratified_permutation_test(statistic: Statistic, strata: Sequence[np.ndarray]) -> float:
    """One-sided p-value of a statistic of two samples in strata; runs change places within their stratum only.

    Args:
        statistic: of X of each stratum, then Y of each; large if X is.
        strata: [seeds] of each.
    """
    half, generator = len(strata) // 2, np.random.default_rng(0)
    permuted: list[list[np.ndarray]] = [[], []]
    for x, y in zip(strata[:half], strata[half:], strict=True):
        both = np.broadcast_to(np.concatenate([x, y]), (RESAMPLES, len(x) + len(y)))
        both = generator.permuted(both, axis=-1)
        permuted[0].append(both[:, : len(x)])
        permuted[1].append(both[:, len(x) :])
    found = statistic(*permuted[0], *permuted[1], axis=-1)
    tolerance = 1e-9  # of sums in another order
    return float((1 + np.sum(found >= statistic(*strata, axis=-1) - tolerance)) / (1 + RESAMPLES))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm's method."""
    order = np.argsort(p_values)
    scaled = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted.tolist()


def mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean over all seeds of all strata."""
    return np.mean(np.concatenate(strata, axis=axis), axis=axis)


def interquartile_mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean without the lowest and the highest quarter, rounded down, of all seeds of all strata."""
    return stats.trim_mean(np.concatenate(strata, axis=axis), 0.25, axis=axis)


def mean_of_worlds(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean over worlds of the mean over seeds."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def median_of_worlds(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Median over worlds of the mean over seeds."""
    return np.median([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def median_improvement(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Relative improvement of means over seeds, median over worlds: (x - y) / max(1, y).

    In human-normalized scores this is the improvement of Wang et al. (2016), "Dueling network architectures", relative
    to the human player or the other agent, whichever is better: (X - Y) / (max(human, Y) - random).

    Args:
        strata: normalized returns x of each world, then y of each world.
        axis: of the seeds.
    """
    means = [np.mean(stratum, axis=axis) for stratum in strata]
    half = len(means) // 2
    return np.median([(x - y) / np.maximum(1.0, y) for x, y in zip(means[:half], means[half:], strict=True)], axis=0)


def probability_of_improvement(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """P(X > Y) + P(X = Y) / 2, mean over worlds.

    Args:
        strata: X of each world, then Y of each world.
        axis: of the seeds.
    """
    half = len(strata) // 2
    wins = []
    for x, y in zip(strata[:half], strata[half:], strict=True):
        pairs = np.moveaxis(x, axis, -1)[..., :, None] - np.moveaxis(y, axis, -1)[..., None, :]
        wins.append(np.mean((np.sign(pairs) + 1) / 2, axis=(-2, -1)))
    return np.mean(wins, axis=0)


AGGREGATES: dict[str, Statistic] = {
    "median": median_of_worlds,
    "interquartile_mean": interquartile_mean,
    "mean": mean_of_worlds,
}
"""Statistics of normalized scores over games."""


def estimate(statistic: Statistic, strata: Sequence[np.ndarray]) -> Estimate:
    """A statistic with its interval by the stratified percentile bootstrap.

    Args:
        statistic: one of the functions above.
        strata: [seeds] returns each.

    Raises:
        ValueError: a stratum is empty.
    """
    if not strata or any(len(stratum) == 0 for stratum in strata):
        raise ValueError(f"strata must each have a seed, got sizes {[len(stratum) for stratum in strata]}")
    low, high = bootstrap_interval(statistic, strata)
    return Estimate(float(statistic(*strata, axis=-1)), float(low), float(high))


def bootstrap_interval(statistic: Statistic, strata: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the stratified percentile bootstrap's 95 % interval; NaN if a stratum has a single seed.

    Args:
        statistic: one of the functions above.
        strata: [..., seeds] returns each.
    """
    if any(stratum.shape[-1] < 2 for stratum in strata):
        nothing = np.full(strata[0].shape[:-1], np.nan)
        return nothing, nothing
    interval = stats.bootstrap(
        tuple(strata),
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return interval.low, interval.high


def difference_test(first: np.ndarray, other: np.ndarray) -> DifferenceTest:
    """Permutation test of the means of two samples, two-sided: exact with fewer than ten seeds each.

    Larger samples are compared with random divisions, always the same ones.

    Args:
        first: [n ≥ 2] returns.
        other: [m ≥ 2] returns.

    Raises:
        ValueError: a sample has fewer than two seeds.
    """
    if min(len(first), len(other)) < 2:
        raise ValueError(f"samples must each have two seeds, got sizes {len(first)} and {len(other)}")
    difference = float(np.mean(first) - np.mean(other))
    divisions = math.comb(len(first) + len(other), len(first))
    smallest = 2.0 / (divisions if divisions <= _PERMUTATIONS else _PERMUTATIONS + 1)
    if np.ptp(np.concatenate([first, other])) == 0:
        return DifferenceTest(0.0, 1.0, smallest)
    found = stats.permutation_test(
        (first, other),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        vectorized=True,
        n_resamples=_PERMUTATIONS,
        alternative="two-sided",
        rng=np.random.default_rng(0),
    )
    return DifferenceTest(difference, float(found.pvalue), smallest)
