"""Statistics over seeds, as Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice", define them.

Samples come in strata, one array of returns for each world (and processor). The bootstrap resamples seeds within each
stratum, and permutations stay within it.
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
"""`statistic(*strata, axis)`, over `axis` of arrays whose other axes are resamples."""


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


def mean_difference(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of x minus mean of y."""
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def improvement(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    """Probability of improvement, P(X > Y) + P(X = Y) / 2 over all pairs of seeds, minus 1/2."""
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
    """Interquartile mean of all X minus the one of all Y: X of each stratum, then Y of each."""
    half = len(strata) // 2
    return interquartile_mean(*strata[:half], axis=axis) - interquartile_mean(*strata[half:], axis=axis)


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
    value = float(statistic(*strata, axis=-1))
    if any(len(stratum) < 2 for stratum in strata):
        return Estimate(value, math.nan, math.nan)
    interval = scipy.stats.bootstrap(
        tuple(strata),
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))


def stratified_permutation_test(statistic: Statistic, strata: Sequence[np.ndarray]) -> float:
    """One-sided p-value of a statistic of two samples in strata; runs change places within their stratum only.

    SciPy's `permutation_test` has no strata.

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


def holm(p_values: pd.Series) -> pd.Series:
    """p-values adjusted by Holm's method, with their labels."""
    ranked = p_values.sort_values()
    return (ranked * np.arange(len(ranked), 0, -1)).cummax().clip(upper=1.0).reindex(p_values.index)
