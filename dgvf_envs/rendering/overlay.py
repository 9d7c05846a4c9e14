"""Overlays: values drawn over the map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, final

import numpy as np

from dgvf_envs.functional.dynamics import State
from dgvf_envs.rendering.colors import DIVERGING, Color, colors


@final
@dataclass(frozen=True)
class Overlay:
    """Values to draw over the map, as colors.

    Raises:
        ValueError: `values` is not two-dimensional, or `opacity` is out of range.
    """

    values: np.ndarray
    """`[rows, columns]`; NaN is transparent. Collect-Objects: one value per cell, row 0 at the top. PuddleWorld: any
    resolution, row 0 at y = 0."""
    label: str = ""
    """Title of the color scale. Lines before the last one are text above it, wrapped to the width of the panel."""
    low: float | None = None
    """Value at the cold end of the scale. If `None`: the smallest value, or minus the largest magnitude if the values
    have both signs."""
    high: float | None = None
    """Value at the warm end of the scale. If `None`: the largest value, or the largest magnitude if the values have
    both signs."""
    opacity: float = 0.85
    """In [0, 1]: 0 is invisible, 1 hides the map."""
    scale: Sequence[Color] = DIVERGING
    """The color scale, lowest value first."""

    def __post_init__(self) -> None:
        if np.ndim(self.values) != 2:
            raise ValueError(f"values must have two axes [rows, columns], got shape {np.shape(self.values)}")
        if not 0.0 <= self.opacity <= 1.0:
            raise ValueError(f"opacity must lie in [0, 1], got {self.opacity!r}")

    @property
    def limits(self) -> tuple[float, float]:
        """The values at the cold and the warm end of the color scale."""
        finite = np.asarray(self.values, dtype=np.float64)
        finite = finite[np.isfinite(finite)]
        smallest, largest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if smallest < 0.0 < largest:
            smallest, largest = -max(-smallest, largest), max(-smallest, largest)
        low, high = smallest if self.low is None else self.low, largest if self.high is None else self.high
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def image(self) -> np.ndarray:
        """The values as colors, `[rows, columns, 4]` uint8 (RGBA)."""
        low, high = self.limits
        values = np.asarray(self.values, dtype=np.float64)
        fractions = np.clip((np.nan_to_num(values, nan=low) - low) / (high - low), 0.0, 1.0)
        alpha = np.where(np.isnan(values), 0.0, 255.0 * self.opacity)
        return np.dstack([colors(self.scale, fractions), alpha]).astype(np.uint8)


class LiveOverlay(ABC, Generic[State]):
    """An overlay that depends on the current state and may react to keys pressed in the window."""

    @property
    def caption(self) -> str:
        """Title of the window; if empty, the environment's own title."""
        return ""

    @abstractmethod
    def values(self, state: State) -> Overlay | None:
        """The overlay for a state, every field a scalar; `None` for none. Called for every frame."""

    @abstractmethod
    def on_key(self, key: int) -> None:
        """Handle a key press; `key` is pygame's key code."""


OverlayHook = Callable[[], Overlay | None] | LiveOverlay[Any]
"""The source of overlays: a function without arguments, called for every frame, or a `LiveOverlay`."""
