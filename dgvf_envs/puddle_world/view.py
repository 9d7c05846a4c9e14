"""How PuddleWorld is drawn: the reward as a heat map, the goal, the agent and its trail."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np

from dgvf_envs.puddle_world.dynamics import PuddleWorld, PuddleWorldState
from dgvf_envs.rendering import AGENT, FAINT, GOAL, INK, WATER, Canvas, EpisodeSnapshot, Overlay, View, colors

_RESOLUTION = 240
"""Samples per axis of the heat map."""
_RIM = 0.1
"""Fraction of the highest penalty at which a puddle's rim is drawn."""


@final
class PuddleWorldView(View[PuddleWorldState]):
    """Draws a `PuddleWorld`; x increases to the right and y upward."""

    title = "PuddleWorld"

    def __init__(self, world: PuddleWorld) -> None:
        self.world = world
        centers = (np.arange(_RESOLUTION) + 0.5) / _RESOLUTION
        x, y = (grid.ravel() for grid in np.meshgrid(centers, centers[::-1]))  # row 0 is the top, y near 1
        penalty = -world.reward(x, y).reshape(_RESOLUTION, _RESOLUTION)
        self._lowest, self._highest = float(penalty.min()), float(penalty.max())
        self._heat = colors(WATER, self._fraction(penalty)).astype(np.uint8)
        self._inside_rims = penalty - self._lowest > _RIM * (self._highest - self._lowest)

    @cached_property
    def _rims(self) -> np.ndarray:
        """The inner edges of the puddles as a translucent line, `[240, 240, 4]` uint8."""
        from scipy import ndimage  # importing it takes longer than making an environment

        line = np.zeros((*self._inside_rims.shape, 4), np.uint8)
        line[self._inside_rims & ~ndimage.binary_erosion(self._inside_rims, border_value=1)] = (*INK, 170)
        return line

    def _fraction(self, penalty: np.ndarray) -> np.ndarray:
        """Position of a penalty on the color scale: a square root, so that the shallow edges of puddles are visible."""
        span = self._highest - self._lowest
        return np.sqrt((penalty - self._lowest) / span) if span > 0 else np.zeros_like(penalty)

    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[PuddleWorldState]) -> None:
        canvas.image(self._heat, canvas.map, smooth=True)
        self._draw_goal_and_frame(canvas)

    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        canvas.image(overlay.image()[::-1], canvas.map, smooth=True)
        self._draw_goal_and_frame(canvas)

    def draw_objects(self, canvas: Canvas, state: PuddleWorldState, size: float = 1.0) -> None:
        """Draw the puddles' rims, which remain visible above an overlay."""
        canvas.image(self._rims, canvas.map, smooth=True)

    def center(self, canvas: Canvas, state: PuddleWorldState) -> tuple[float, float]:
        return _pixel(canvas, state.x, state.y)

    def draw_actors(self, canvas: Canvas, snapshot: EpisodeSnapshot[PuddleWorldState]) -> None:
        import pygame

        points = [self.center(canvas, state) for state in snapshot.trail]
        if len(points) > 1:
            pygame.draw.lines(canvas.surface, AGENT, False, points, max(1, round(0.4 * canvas.unit)))
            for point in points[:-1]:
                canvas.disc(AGENT, *point, 0.55 * canvas.unit, rim=None)
        canvas.disc(AGENT, *points[-1], 1.7 * canvas.unit)

    def draw_panel(
        self, canvas: Canvas, snapshot: EpisodeSnapshot[PuddleWorldState], top: float, overlaid: bool
    ) -> None:
        x, y = snapshot.state
        canvas.facts(top - 2 * canvas.unit, [("position", f"{x:.2f}, {y:.2f}")])
        if overlaid:
            return
        scale = self.world.reward_scale
        middle = [p * scale for p in (10.0, 50.0, 100.0) if self._lowest < p * scale < 0.85 * self._highest]
        values = np.array([self._lowest, *middle, self._highest])
        ticks = [(float(at), f"{-value:.3g}") for at, value in zip(self._fraction(values), values, strict=True)]
        canvas.legend(WATER, canvas.panel.bottom - 52 * canvas.unit, 50 * canvas.unit, "reward on arrival", ticks)

    def _draw_goal_and_frame(self, canvas: Canvas) -> None:
        """Draw the goal region, an L1 ball clipped to the square, and the square's edge."""
        import pygame

        (goal_x, goal_y), reach = self.world.goal, self.world.goal_threshold
        corners = [
            (goal_x + reach, goal_y),
            (goal_x, goal_y + reach),
            (goal_x - reach, goal_y),
            (goal_x, goal_y - reach),
        ]
        canvas.surface.set_clip(canvas.map)
        pygame.draw.polygon(canvas.surface, GOAL, [_pixel(canvas, *corner) for corner in corners])
        canvas.surface.set_clip(None)
        x, y = _pixel(canvas, *self.world.goal)
        inset = 4.2 * canvas.unit
        label_x = min(max(x, canvas.map.left + inset), canvas.map.right - inset)
        label_y = min(max(y, canvas.map.top + inset), canvas.map.bottom - inset)
        canvas.text("G", label_x, label_y, 3.2, (255, 255, 255), align="center")
        pygame.draw.rect(canvas.surface, FAINT, canvas.map, 1)


def _pixel(canvas: Canvas, x: float, y: float) -> tuple[float, float]:
    return canvas.map.left + x * canvas.map.width, canvas.map.bottom - y * canvas.map.height
