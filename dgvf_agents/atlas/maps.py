"""Values over the maps of a world, as PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from dgvf_envs.rendering import PAPER, Arrow, Overlay, View, map_picture

SIDE = 200
"""Height of one map in pixels."""
_GAP = 10
"""Pixels between the maps of one picture."""
_ARROWS = 12
"""Maximal number of arrows along each side of a map."""


@final
class Picture(NamedTuple):
    """A PNG and what its colors mean."""

    png: bytes
    low: float
    """Value of the coldest color."""
    high: float
    """Value of the warmest color."""
    width: int
    height: int


@final
class Panel(NamedTuple):
    """One map: states that differ in position alone."""

    name: str
    """What these states have in common, in a few words."""
    layout: np.ndarray
    """`[rows, columns]` integer: the state at each position, -1 if there is none; rows as in `rendering.Overlay`."""
    example: Any
    """One of the states, every field a scalar: what stands on the map."""

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of states `[N]` laid out on the map `[rows, columns]`, NaN elsewhere."""
        return np.where(self.layout >= 0, values[self.layout], np.nan)


@final
@dataclass(frozen=True)
class Maps:
    """The maps of a world, and what it looks like."""

    view: View
    """Draws the world."""
    states: Any
    """A `NamedTuple` with fields `[N]`."""
    panels: tuple[Panel, ...]
    """Every state is on exactly one."""
    moves: np.ndarray
    """`[A, 2]`: how far each action leads to the right and downward on the map, as shares of its side."""

    def draw(
        self,
        values: np.ndarray,
        limits: tuple[float, float] | None = None,
        side: int = SIDE,
        mean_moves: np.ndarray | None = None,
    ) -> Picture:
        """Values over all maps, side by side on one color scale.

        Args:
            values: `[N]`; NaN is not drawn.
            limits: values of the coldest and the warmest color; `limits_of(values)` if `None`.
            side: height in pixels.
            mean_moves: `[N, 2]` to the right and downward, drawn as arrows; none if `None`.
        """
        low, high = limits_of(values) if limits is None else limits
        drawn, opacity = [], 1.0 if mean_moves is None else 0.8
        for panel in self.panels:
            arrows = [] if mean_moves is None else self._arrows(panel, mean_moves)
            overlay = Overlay(panel.spread(values), "", low, high, opacity)
            drawn.append(map_picture(self.view, panel.example, overlay, side, arrows))
        return _side_by_side(drawn, low, high)

    def draw_policy(self, values: np.ndarray, policy: np.ndarray, side: int = 2 * SIDE) -> Picture:
        """State values `[N]`, NaN where the agent does not act, and the mean move of its policy `[N, A]` as arrows."""
        return self.draw(values, None, side, np.where(np.isnan(values)[:, None], 0.0, policy @ self.moves))

    def draw_world(self) -> Picture:
        """The world at the start of an episode, without the agent."""
        return _side_by_side([map_picture(self.view, self.panels[0].example, None, 2 * SIDE)], 0.0, 1.0)

    def _arrows(self, panel: Panel, mean_move: np.ndarray) -> list[Arrow[Any]]:
        """One at every position, or a coarser grid of them."""
        every = max(1, -(-max(panel.layout.shape) // (2 * _ARROWS)))
        longest = max(float(np.linalg.norm(self.moves, axis=1).max()), 1e-9)
        reach = 0.7 * every / max(panel.layout.shape)
        shown = panel.layout[every // 2 :: every, every // 2 :: every].ravel()
        return [
            Arrow(self.state(index), *(reach * mean_move[index] / longest).tolist())
            for index in shown[shown >= 0].tolist()
            if mean_move[index].any()
        ]

    def state(self, index: int) -> Any:
        """State number `index`, every field a scalar."""
        return type(self.states)(*(field[index].item() for field in self.states))


def _side_by_side(maps: Sequence[np.ndarray], low: float, high: float) -> Picture:
    gap = np.full((maps[0].shape[0], _GAP, 3), PAPER, np.uint8)
    pixels = np.concatenate([part for one in maps for part in (one, gap)][:-1], axis=1)
    return Picture(png_of(pixels), low, high, pixels.shape[1], pixels.shape[0])


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest finite value; half a unit around it if all are the same."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def png_of(pixels: np.ndarray, palette: np.ndarray | None = None) -> bytes:
    """Pixels as PNG: `[H, W, 3]` uint8, or `[H, W]` uint8 rows of a palette `[K, 3]`."""
    import pygame

    size = pixels.shape[1], pixels.shape[0]
    surface = pygame.image.frombuffer(pixels.tobytes(), size, "RGB" if palette is None else "P")
    if palette is not None:
        surface.set_palette([tuple(color) for color in palette.tolist()])
    file = io.BytesIO()
    pygame.image.save(surface, file, "picture.png")
    return file.getvalue()


def data_uri(png: bytes) -> str:
    """A PNG as the address of itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
