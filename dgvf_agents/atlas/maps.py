"""Values over the maps of a world, as PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np

from dgvf_envs.rendering import DIVERGING, PAPER, SEQUENTIAL, Arrow, Canvas, Color, Overlay, View, map_picture

SIDE = 200
"""Height of one map in pixels."""
_GAP = 10
"""Pixels between the maps of one picture."""
_ARROWS = 12
"""Maximal number of arrows along each side of a map."""


@final
class Scale(NamedTuple):
    """Which color stands for which value."""

    low: float
    """Value of the first color."""
    high: float
    """Value of the last color."""
    colors: Sequence[Color]
    """Evenly spaced, lowest value first."""


def scale_of(quantity: str, values: np.ndarray) -> Scale:
    """The color scale of a quantity: discounts from 0 to 1, cumulants around zero, anything else over its range.

    Args:
        quantity: `"cumulant"`, `"discount"`, or another name.
        values: all that are drawn on this scale; NaN is ignored.
    """
    low, high = limits_of(values)
    if quantity == "discount":
        return Scale(0.0, 1.0, SEQUENTIAL)
    if quantity == "cumulant":
        reach = max(-low, high)
        return Scale(-reach, reach, DIVERGING)
    return Scale(low, high, SEQUENTIAL)


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest finite value; half a unit around it if all are the same."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


@final
class Picture(NamedTuple):
    """A PNG, what its colors mean, and where its extremes are."""

    png: bytes
    scale: Scale
    width: int
    height: int
    extremes: tuple[int, int] | None = None
    """The states with the greatest and the least value; `None` if nothing is drawn or nothing varies."""


@final
class Axis(NamedTuple):
    """How positions along one side of a map are counted."""

    name: str
    ticks: tuple[tuple[float, str], ...]
    """Distance from the left or the top as a share of the side, and label."""


@final
class Panel(NamedTuple):
    """One map: states that differ in position alone."""

    name: str
    """The common property of these states, in a few words."""
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
    axes: tuple[Axis, ...] = ()
    """The horizontal and the vertical axis; no labels if empty."""

    @property
    def width(self) -> int:
        """Pixels of all maps side by side, each `SIDE` pixels wide."""
        return len(self.panels) * (SIDE + _GAP) - _GAP

    @cached_property
    def positions(self) -> np.ndarray:
        """`[N, 3]`: the panel of each state, and where it is in a picture, in percent from the left and the top."""
        canvas, found = Canvas.of_map(SIDE), np.zeros((sum((one.layout >= 0).sum() for one in self.panels), 3))
        for number, panel in enumerate(self.panels):
            for state in panel.layout[panel.layout >= 0].tolist():
                x, y = self.view.center(canvas, self.state(state))
                found[state] = number, 100.0 * (x + number * (SIDE + _GAP)) / self.width, 100.0 * y / SIDE
        return found

    def ticks(self) -> list[tuple[float, str]]:
        """Labels of the horizontal axis on all maps: percent from the left of a picture, and label."""
        lefts = np.arange(len(self.panels)) * (SIDE + _GAP)
        return [(100.0 * (left + x * SIDE) / self.width, name) for left in lefts for x, name in self.axes[0].ticks]

    def path(self, states: Sequence[int]) -> str:
        """The `d` of an SVG path through states, in percent of a picture; a new line begins on another map."""
        panels, x, y = self.positions[list(states)].T
        points = zip(np.diff(panels, prepend=-1), x, y, strict=True)
        return "".join(f"{'M' if moved else 'L'}{left:.1f} {top:.1f}" for moved, left, top in points)

    def draw(
        self,
        quantity: str,
        values: np.ndarray,
        scale: Scale | None = None,
        side: int = SIDE,
        mean_moves: np.ndarray | None = None,
    ) -> Picture:
        """Values over all maps, side by side on one color scale.

        Args:
            quantity: what they are, which decides the color scale.
            values: `[N]`; NaN is not drawn.
            scale: the color scale; the quantity's own if `None`.
            side: height in pixels.
            mean_moves: `[N, 2]` to the right and downward, drawn as arrows; none if `None`.
        """
        scale = scale or scale_of(quantity, values)
        drawn, opacity = [], 1.0 if mean_moves is None else 0.8
        for panel in self.panels:
            arrows = [] if mean_moves is None else self._arrows(panel, mean_moves)
            overlay = Overlay(panel.spread(values), "", scale.low, scale.high, opacity, scale.colors)
            drawn.append(map_picture(self.view, panel.example, overlay, side, arrows))
        varies = np.isfinite(values).any() and np.nanmax(values) > np.nanmin(values)
        extremes = (int(np.nanargmax(values)), int(np.nanargmin(values))) if varies else None
        return _side_by_side(drawn, scale, extremes)

    def draw_policy(self, values: np.ndarray, policy: np.ndarray, side: int = 2 * SIDE) -> Picture:
        """State values `[N]`, NaN where the agent does not act, and the mean move of its policy `[N, A]` as arrows."""
        return self.draw("value", values, None, side, np.where(np.isnan(values)[:, None], 0.0, policy @ self.moves))

    def draw_world(self) -> Picture:
        """The world at the start of an episode, without the agent."""
        picture = map_picture(self.view, self.panels[0].example, None, 2 * SIDE)
        return _side_by_side([picture], Scale(0.0, 1.0, SEQUENTIAL))

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


def _side_by_side(maps: Sequence[np.ndarray], scale: Scale, extremes: tuple[int, int] | None = None) -> Picture:
    gap = np.full((maps[0].shape[0], _GAP * maps[0].shape[0] // SIDE, 3), PAPER, np.uint8)
    pixels = np.concatenate([part for one in maps for part in (one, gap)][:-1], axis=1)
    return Picture(png_of(pixels), scale, pixels.shape[1], pixels.shape[0], extremes)


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
