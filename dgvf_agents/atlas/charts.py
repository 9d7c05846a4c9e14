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


def chart(*lines: np.ndarray, columns: int = 600, first: int = 0) -> Chart:
    """Lines `[T + 1]` on a common scale; NaN leaves a gap.

    Args:
        lines: the values at each moment.
        columns: where there are more moments, each of so many columns shows its first, least, greatest and last value.
        first: the moment from which on values decide the scale.
    """
    low, high = limits_of(np.concatenate([line[first:] for line in lines]))
    return Chart(tuple(_path(line, low, high, columns) for line in lines), low, high)


def _path(line: np.ndarray, low: float, high: float, columns: int) -> str:
    height = (HEIGHT * (high - line) / (high - low)).tolist()
    words, drawing = [], False
    for moment in _kept(line, columns):
        if np.isnan(line[moment]):
            drawing = False
            continue
        words.append(f"{'L' if drawing else 'M'}{moment} {height[moment]:.1f}".replace(".0", ""))
        drawing = True
    return "".join(words)


def _kept(line: np.ndarray, columns: int) -> list[int]:
    """The moments that are drawn."""
    if len(line) <= 2 * columns:
        return list(range(len(line)))
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(line)), columns):
        there = part[~np.isnan(line[part])]
        kept |= {int(part[0]), int(part[-1])}
        if len(there):
            kept |= {int(there[line[there].argmin()]), int(there[line[there].argmax()])}
    return sorted(kept)
