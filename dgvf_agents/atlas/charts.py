"""Lines over time as SVG paths."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.maps import limits_of

HEIGHT = 100
"""Units of a chart's height; it is stretched to any size."""


@final
class Chart(NamedTuple):
    """Lines on one scale."""

    paths: tuple[str, ...]
    """The `d` of a path for each line; x is the moment, y runs from 0 (high) to `HEIGHT` (low)."""
    low: float
    """Value at the bottom."""
    high: float
    """Value at the top."""


def chart(*lines: np.ndarray, first: int = 0) -> Chart:
    """Lines `[T + 1]` on a common scale, which values from moment `first` on decide; NaN leaves a gap."""
    low, high = limits_of(np.concatenate([line[first:] for line in lines]))
    return Chart(tuple(_path(HEIGHT * (high - line) / (high - low)) for line in lines), low, high)


def _path(heights: np.ndarray) -> str:
    drawn = ~np.isnan(heights)
    begins = drawn & ~np.append(False, drawn[:-1])
    moments = np.flatnonzero(drawn).tolist()
    return "".join(f"{'M' if begins[t] else 'L'}{t} {heights[t]:.1f}".removesuffix(".0") for t in moments)


def rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """Values `[T]` for JSON, which has no NaN."""
    return [None if np.isnan(value) else float(f"{value:.{digits}g}") for value in values.tolist()]
