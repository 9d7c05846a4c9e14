"""Statistics over seeds, as Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice", advise.

Samples come in strata, one array of returns per world; the bootstrap resamples seeds within each world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
from scipy import stats

RESAMPLES = 5_000
CONFIDENCE = 0.95

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
