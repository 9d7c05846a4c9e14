"""What PuddleWorld looks like: the reward as a heat map, the goal, the walker and its trail."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from dgvf_envs.rendering import AGENT, FAINT, GOAL, INK, WATER, Canvas, EpisodeSnapshot, Overlay, View, colors

if TYPE_CHECKING:
    from dgvf_envs.puddle_world.env import PuddleWorld, PuddleWorldState

_RESOLUTION = 240
"""Side of the heat map in samples."""
_RIM = 0.1
"""Share of the highest penalty at which a puddle's rim is drawn."""


@final
class PuddleWorldView(View["PuddleWorldState"]):
    """Draws a `PuddleWorld`; x grows to the right and y upward."""

    title = "PuddleWorld"

    def __init__(self, world: PuddleWorld) -> None:
        self.world = world
        centers = (np.arange(_RESOLUTION) + 0.5) / _RESOLUTION
        x, y = (grid.ravel() for grid in np.meshgrid(centers, centers[::-1]))  # row 0 is the top, y near 1
        penalty = -world.reward(x, y).reshape(_RESOLUTION, _RESOLUTION)
        self._least, self._most = float(penalty.min()), float(penalty.max())
        self._heat = colors(WATER, self._fraction(penalty)).astype(np.uint8)
        self._rims = _rims(penalty - self._least > _RIM * (self._most - self._least))

    def _fraction(self, penalty: np.ndarray) -> np.ndarray:
        """Place of a penalty on the color scale: its square root, so that a puddle's shallow edge shows too."""
        span = self._most - self._least
        return np.sqrt((penalty - self._least) / span) if span > 0 else np.zeros_like(penalty)

    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[PuddleWorldState]) -> None:
        canvas.image(self._heat, canvas.map, smooth=True)
        self._draw_goal_and_frame(canvas)

    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        canvas.image(overlay.image()[::-1], canvas.map, smooth=True)
        self._draw_goal_and_frame(canvas)

    def draw_objects(self, canvas: Canvas, state: PuddleWorldState, size: float = 1.0) -> None:
        """The puddles' rims, for where an overlay hides them; the walker's picture shows the puddles themselves."""
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
        middle = [p * scale for p in (10.0, 50.0, 100.0) if self._least < p * scale < 0.85 * self._most]
        ticks = [(float(self._fraction(np.float64(p))), f"{-p:.3g}") for p in (self._least, *middle, self._most)]
        canvas.legend(WATER, canvas.panel.bottom - 52 * canvas.unit, 50 * canvas.unit, "reward on arrival", ticks)

    def _draw_goal_and_frame(self, canvas: Canvas) -> None:
        """The L1 ball around the goal, clipped to the square, and the square's edge."""
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


def _rims(inside: np.ndarray) -> np.ndarray:
    """The edge of a set of samples `[N, N]` as a translucent line, `[N, N, 4]` uint8."""
    padded = np.pad(inside, 1, mode="edge")
    within = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    line = np.zeros((*inside.shape, 4), np.uint8)
    line[inside & ~within] = (*INK, 170)
    return line
