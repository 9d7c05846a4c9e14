"""Frames of a game, and over them the pixels that a question looks at."""

from __future__ import annotations

import io

import numpy as np

_ANCHORS = ((0, 0, 0), (120, 20, 70), (240, 80, 50), (255, 190, 60), (255, 255, 210))
"""From nothing to much."""
_LEVELS = 16
"""Steps of color: more are not seen and take more room."""
_FINE = 64
"""Pixels along a side from which on heat is shown in cells of 2 x 2."""
_DIM = 0.7
"""Brightness that a frame is shown with under heat."""

_PLACES = np.linspace(0, len(_ANCHORS) - 1, _LEVELS)
HEAT_COLORS = np.array([np.interp(_PLACES, range(len(_ANCHORS)), c) for c in zip(*_ANCHORS, strict=True)])
HEAT_COLORS = HEAT_COLORS.T.round().astype(np.uint8)
"""`[levels, 3]`: what is added to a frame, as light is ("screen"); black adds nothing."""


def cells(saliency: np.ndarray) -> np.ndarray:
    """Means over cells of 2 x 2 pixels where pictures are large: neighbors differ by the strides of a network.

    Args:
        saliency: `[..., H, W]`.
    """
    height, width = saliency.shape[-2:]
    if min(height, width) < _FINE or height % 2 or width % 2:
        return saliency
    return saliency.reshape(*saliency.shape[:-2], height // 2, 2, width // 2, 2).mean(axis=(-3, -1))


def peak_of(saliency: np.ndarray) -> float:
    """What is drawn brightest: the 99.8th percentile over all pixels and moments, so that a single one does not decide.

    Args:
        saliency: `[N, H, W]`, of one question.
    """
    return max(float(np.percentile(saliency, 99.8)), 1e-30)


def heat_levels(saliency: np.ndarray, peak: float) -> np.ndarray:
    """Rows of `HEAT_COLORS`, `[H, W]` uint8, in proportion to what there is; the last one at `peak` and above.

    Args:
        saliency: `[H, W]`, ≥ 0.
        peak: what is drawn brightest.
    """
    return np.round(np.clip(saliency / peak, 0.0, 1.0) * (_LEVELS - 1)).astype(np.uint8)


def heat_png(levels: np.ndarray) -> bytes:
    """Heat `[H, W]` on black as PNG."""
    import pygame

    picture = pygame.image.frombuffer(levels.tobytes(), (levels.shape[1], levels.shape[0]), "P")
    picture.set_palette([tuple(int(part) for part in color) for color in HEAT_COLORS])
    file = io.BytesIO()
    pygame.image.save(picture, file, "picture.png")
    return file.getvalue()


def heated(frame: np.ndarray, levels: np.ndarray, scale: int = 1) -> np.ndarray:
    """A frame in dark grey with heat over it, `[scale · height, scale · width, 3]` uint8.

    Args:
        frame: `[height, width, 3]` uint8.
        levels: `[H, W]`, stretched over the frame.
        scale: by which the frame is enlarged, a whole number.
    """
    grey = (frame @ np.array([0.299, 0.587, 0.114]) * _DIM / 255.0).repeat(scale, axis=0).repeat(scale, axis=1)
    rows = np.arange(grey.shape[0]) * levels.shape[0] // grey.shape[0]
    columns = np.arange(grey.shape[1]) * levels.shape[1] // grey.shape[1]
    light = HEAT_COLORS[levels[rows[:, None], columns]] / 255.0
    return (255.0 * (1.0 - (1.0 - grey[..., None]) * (1.0 - light))).round().astype(np.uint8)
