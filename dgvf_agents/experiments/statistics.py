"""Statistics over seeds, as Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice", define them.

Samples come in strata, one array of returns for each world (and processor). The bootstrap resamples seeds within each
stratum, and permutations stay within it. Two settings are compared in pairs [2, seeds]: runs with the same seed begin
with the same networks and environments, so that they are resampled together, and permutations exchange them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
import pandas as pd
import scipy  # its modules are imported where they are used: every command imports this one

RESAMPLES = 5_000
CONFIDENCE = 0.95
SEEDS_FOR_INTERVALS = 10
"""Seeds of a setting from which on pictures show intervals: for fewer, percentile intervals are too narrow."""
SIGNIFICANCE = 0.05
"""The p-value up to which a difference counts as found."""
FINAL_EVALUATIONS = 5
"""The final return is the mean of the last evaluations."""

Statistic = Callable[..., np.ndarray]
"""`statistic(*strata, axis)`, over `axis` of arrays [..., seeds], or of pairs [2, ..., seeds], of any resamples."""


@final
class Estimate(NamedTuple):
    """A number with its 95% interval."""

    value: float
    """Of the sample."""
    low: float
    """Lower end of the interval; NaN if a stratum has a single seed."""
    high: float
    """Upper end of the interval; NaN if a stratum has a single seed."""

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" [{_number(self.low)}, {_number(self.high)}]"
        return f"{_number(self.value)}{ends}"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def final_return(returns: np.ndarray) -> float:
    """Mean of the last `FINAL_EVALUATIONS` points of a curve [N]."""
    return float(np.mean(returns[-FINAL_EVALUATIONS:]))


def area_under_curve(steps: np.ndarray, returns: np.ndarray) -> float:
    """Mean return over a run, by the trapezoidal rule; constant before the first evaluation.

    Args:
        steps: [N] environment steps of the evaluations, ascending.
        returns: [N] mean returns.
    """
    steps, returns = np.concatenate([[0], steps]), np.concatenate([returns[:1], returns])
    return float(scipy.integrate.trapezoid(returns, steps) / steps[-1])


def fraction_estimate(successes: int, number: int) -> Estimate:
    """A fraction with its exact (Clopper-Pearson) 95% interval."""
    found = scipy.stats.binomtest(successes, number).proportion_ci(CONFIDENCE, method="exact")
    return Estimate(successes / number, float(found.low), float(found.high))


def interquartile_mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean without the lowest and the highest quarter, rounded down, of all seeds of all strata."""
    return scipy.stats.trim_mean(np.concatenate(strata, axis=axis), 0.25, axis=axis)


def mean_of_worlds(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean over worlds of the mean over seeds."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def median_of_worlds(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Median over worlds of the mean over seeds."""
    return np.median([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


AGGREGATES: dict[str, Statistic] = {
    "median": median_of_worlds,
    "interquartile_mean": interquartile_mean,
    "mean": mean_of_worlds,
}
"""Statistics of normalized scores over games."""


def mean_difference(pair: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of the first setting minus mean of the second."""
    return np.subtract(*np.mean(pair, axis=axis))


def improvement(pair: np.ndarray, axis: int = -1) -> np.ndarray:
    """Probability of improvement, P(X > Y) + P(X = Y) / 2 over all pairs of seeds, minus 1/2."""
    first, second = np.moveaxis(pair, axis, -1)
    return np.mean(np.sign(first[..., :, None] - second[..., None, :]) / 2, axis=(-2, -1))


def weighted(compare: Statistic, weights: Sequence[float]) -> Statistic:
    """The weighted sum of a comparison over strata."""

    def statistic(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
        compared = [weight * compare(pair, axis=axis) for weight, pair in zip(weights, strata, strict=True)]
        return np.sum(compared, axis=0)

    return statistic


def interquartile_difference(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean of all runs of the first setting minus the one of the second."""
    return np.subtract(*(interquartile_mean(*(pair[i] for pair in strata), axis=axis) for i in (0, 1)))


def fraction_difference(strata: Sequence[np.ndarray], weights: Sequence[float]) -> Estimate:
    """The weighted sum of differences of two fractions with its 95% interval, which fractions of 0 and 1 have, too.

    The bootstrap has none there. This is the method of variance estimates recovery (Zou & Donner 2008) from Wilson's
    intervals of the fractions; of one stratum it is Newcombe's (1998).

    Args:
        strata: [2, seeds] of 0 and 1 each.
        weights: of the strata.
    """
    value, below, above = 0.0, 0.0, 0.0
    for pair, weight in zip(strata, weights, strict=True):
        tests = [scipy.stats.binomtest(int(one.sum()), len(one)) for one in pair]
        p, q = (test.statistic for test in tests)
        of_p, of_q = (test.proportion_ci(CONFIDENCE, method="wilson") for test in tests)
        value += weight * (p - q)
        below += weight**2 * ((p - of_p.low) ** 2 + (of_q.high - q) ** 2)
        above += weight**2 * ((of_p.high - p) ** 2 + (q - of_q.low) ** 2)
    return Estimate(float(value), float(value - math.sqrt(below)), float(value + math.sqrt(above)))


def estimate(statistic: Statistic, strata: Sequence[np.ndarray]) -> Estimate:
    """A statistic with its interval by the stratified percentile bootstrap.

    Args:
        statistic: one of the functions above.
        strata: [seeds] or [2, seeds] returns each.

    Raises:
        ValueError: a stratum is empty.
    """
    sizes = [stratum.shape[-1] for stratum in strata]
    if not sizes or 0 in sizes:
        raise ValueError(f"strata must each have a seed, got sizes {sizes}")
    value, low, high = float(statistic(*strata, axis=-1)), math.nan, math.nan
    if 1 not in sizes:
        generator = np.random.default_rng(0)
        drawn = [of[..., generator.integers(n, size=(RESAMPLES, n))] for n, of in zip(sizes, strata, strict=True)]
        low, high = np.quantile(statistic(*drawn, axis=-1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))


def stratified_permutation_test(statistic: Statistic, strata: Sequence[np.ndarray]) -> float:
    """One-sided p-value of a statistic of pairs in strata: the runs of a seed are exchanged, or not.

    SciPy's `permutation_test` has no strata.

    Args:
        statistic: large if the first setting is.
        strata: [2, seeds] each.
    """
    generator, permuted = np.random.default_rng(0), []
    for pair in strata:
        exchanged = generator.random((RESAMPLES, pair.shape[-1])) < 0.5
        permuted.append(np.where(exchanged, pair[::-1, None], pair[:, None]))
    tolerance = 1e-9  # of sums in another order
    reached = np.sum(statistic(*permuted, axis=-1) >= statistic(*strata, axis=-1) - tolerance)
    return float((1 + reached) / (1 + RESAMPLES))


def holm(p_values: pd.Series) -> pd.Series:
    """p-values adjusted by Holm's method, with their labels."""
    ranked = p_values.sort_values()
    return (ranked * np.arange(len(ranked), 0, -1)).cummax().clip(upper=1.0).reindex(p_values.index)
