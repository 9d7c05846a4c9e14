"""Colors and color scales."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Color = tuple[int, int, int]
"""(red, green, blue), each in [0, 255]."""

INK: Color = (38, 44, 58)
FAINT: Color = (126, 134, 150)
PAPER: Color = (250, 249, 246)
LINE: Color = (216, 216, 210)
AGENT: Color = (232, 93, 58)
GOAL: Color = (58, 148, 92)

WATER = ((250, 249, 246), (196, 222, 236), (110, 174, 214), (44, 105, 176), (16, 42, 98))
"""A sequential color scale, light to dark."""
DIVERGING = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))
"""A diverging color scale for signed values, blue through white to red."""
SEQUENTIAL = ((252, 251, 253), (218, 218, 235), (188, 189, 220), (158, 154, 200), (106, 81, 163))
"""A sequential color scale for values without a natural zero, light to dark."""


def colors(scale: Sequence[Color], fractions: np.ndarray) -> np.ndarray:
    """Interpolate a color scale at fractions in [0, 1]; returns `[..., 3]` float64 in [0, 255]."""
    stops = np.linspace(0.0, 1.0, len(scale))
    channels = np.asarray(scale, dtype=np.float64).T
    return np.stack([np.interp(fractions, stops, channel) for channel in channels], axis=-1)
