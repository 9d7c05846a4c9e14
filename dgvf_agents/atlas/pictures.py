"""Pictures of values over a world's map, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.states import Panel, WorldStates
from dgvf_envs.rendering import PAPER, Arrow, Overlay, map_picture

SIDE = 200
"""Height of one map in pixels."""
GAP = 10
"""Pixels between the maps of one picture."""
_ARROWS = 12
"""Most arrows along each side of a map."""


@final
class Picture(NamedTuple):
    """A PNG and what its colors mean."""

    png: bytes
    low: float
    """Value of the coldest color."""
    high: float
    """Value of the warmest color."""
    width: int
    """In pixels."""
    height: int
    """In pixels."""


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest finite value; half a unit around it where all are the same."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def heat_map(
    states: WorldStates, values: np.ndarray, limits: tuple[float, float] | None = None, side: int = SIDE
) -> Picture:
    """Values over all maps of the world, side by side on one color scale.

    Args:
        states: the states.
        values: `[S]`; NaN is not drawn.
        limits: values of the coldest and the warmest color; `limits_of(values)` when left out.
        side: height in pixels.
    """
    low, high = limits_of(values) if limits is None else limits
    maps = [
        map_picture(states.view, panel.example, Overlay(panel.spread(values), "", low, high, 1.0), side)
        for panel in states.panels
    ]
    return _joined(maps, low, high)


def policy_map(states: WorldStates, values: np.ndarray, policy: np.ndarray, side: int = 2 * SIDE) -> Picture:
    """State values, and the mean move of the policy as arrows.

    Args:
        states: the states.
        values: `[S]`.
        policy: `[S, A]`: probabilities.
        side: height in pixels.
    """
    shown = np.where(states.terminal, np.nan, values)
    low, high = limits_of(shown)
    maps = []
    for panel in states.panels:
        overlay = Overlay(panel.spread(shown), "", low, high, 0.8)
        arrows = _arrows(states, panel, policy @ states.moves)
        maps.append(map_picture(states.view, panel.example, overlay, side, arrows))
    return _joined(maps, low, high)


def world_map(states: WorldStates, side: int = 2 * SIDE) -> Picture:
    """The world at the start of an episode, nobody in it."""
    return _joined([map_picture(states.view, states.panels[0].example, None, side)], 0.0, 1.0)


def _arrows(states: WorldStates, panel: Panel, mean_move: np.ndarray) -> list[Arrow]:
    """One in every place where the agent acts, or a coarser grid of them."""
    every = max(1, -(-max(panel.layout.shape) // (2 * _ARROWS)))
    longest = max(float(np.linalg.norm(states.moves, axis=1).max()), 1e-9)
    reach = 0.7 * every / max(panel.layout.shape)
    arrows = []
    for state in panel.layout[every // 2 :: every, every // 2 :: every].ravel():
        if state >= 0 and not states.terminal[state]:
            here = type(panel.example)(*(field[state].item() for field in states.states))
            right, down = (reach * float(part) / longest for part in mean_move[state])
            arrows.append(Arrow(here, right, down))
    return arrows


def _joined(maps: Sequence[np.ndarray], low: float, high: float) -> Picture:
    gap = np.full((maps[0].shape[0], GAP, 3), PAPER, np.uint8)
    parts = [part for one in maps for part in (one, gap)][:-1]
    pixels = np.concatenate(parts, axis=1)
    return Picture(png_of(pixels), low, high, pixels.shape[1], pixels.shape[0])


def png_of(pixels: np.ndarray) -> bytes:
    """Pixels `[H, W, 3]` uint8 as PNG."""
    import pygame

    surface = pygame.image.frombuffer(pixels.tobytes(), (pixels.shape[1], pixels.shape[0]), "RGB")
    file = io.BytesIO()
    pygame.image.save(surface, file, "picture.png")
    return file.getvalue()
