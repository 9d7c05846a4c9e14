"""Views: how one environment is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, final

import numpy as np

from dgvf_envs.functional.dynamics import State
from dgvf_envs.rendering.canvas import Canvas
from dgvf_envs.rendering.overlay import Overlay
from dgvf_envs.rendering.snapshot import EpisodeSnapshot


class View(ABC, Generic[State]):
    """How one environment is drawn."""

    title: str
    """Title of the window and of the panel."""

    @abstractmethod
    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[State]) -> None:
        """Draw the layer below an overlay."""

    @abstractmethod
    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        """Draw an overlay over the map.

        Raises:
            ValueError: the overlay's shape does not fit the map.
        """

    def draw_objects(self, canvas: Canvas, state: State, size: float = 1.0) -> None:
        """Draw the objects that must be visible above an overlay; nothing by default.

        Args:
            canvas: the canvas.
            state: the state; every field is a scalar.
            size: fraction of the usual size; smaller objects hide less of the values.
        """
        return

    @abstractmethod
    def center(self, canvas: Canvas, state: State) -> tuple[float, float]:
        """The agent's position in pixels; every field of `state` is a scalar."""

    @abstractmethod
    def draw_actors(self, canvas: Canvas, snapshot: EpisodeSnapshot[State]) -> None:
        """Draw the top layer: the agent, its trail and the objects."""

    @abstractmethod
    def draw_panel(self, canvas: Canvas, snapshot: EpisodeSnapshot[State], top: float, overlaid: bool) -> None:
        """Fill the panel below `top`; if `overlaid`, its lower half is reserved for the overlay's color scale."""

    def draw(self, canvas: Canvas, snapshot: EpisodeSnapshot[State], overlay: Overlay | None) -> None:
        """Draw the whole picture."""
        unit = canvas.unit
        self.draw_map(canvas, snapshot)
        if overlay is not None:
            self.draw_overlay(canvas, overlay)
        self.draw_actors(canvas, snapshot)
        top = canvas.panel.top + 2.5 * unit
        canvas.text(self.title, canvas.panel.left, top, 4.8)
        reward = "" if snapshot.reward is None else f"{snapshot.reward:+.2f}"
        top = canvas.facts(
            top + 9 * unit,
            [("step", str(snapshot.step)), ("reward", reward), ("return", f"{snapshot.episode_return:.2f}")],
        )
        self.draw_panel(canvas, snapshot, top + 2 * unit, overlay is not None)
        if overlay is not None:
            _draw_overlay_legend(canvas, overlay)


def _draw_overlay_legend(canvas: Canvas, overlay: Overlay) -> None:
    unit, (low, high) = canvas.unit, overlay.limits
    ticks = [(f, f"{low + f * (high - low):.3g}") for f in (0.0, 0.5, 1.0)]
    *above, title = (overlay.label or "overlay").split("\n")
    height = 26.0 if above else 44.0
    canvas.legend(overlay.scale, canvas.panel.bottom - height * unit, (height - 2.0) * unit, title, ticks)
    top = canvas.panel.bottom - 56.0 * unit
    for line in above:
        top = canvas.paragraph(line, top) + unit


@final
@dataclass(frozen=True)
class Arrow(Generic[State]):
    """An arrow on the map, centered on the agent's position in a state."""

    state: State
    """Every field is a scalar."""
    right: float
    """Component to the right, as a fraction of the map's side."""
    down: float
    """Component downward, as a fraction of the map's side."""


def map_picture(
    view: View[State], state: State, overlay: Overlay | None, side: int, arrows: Sequence[Arrow[State]] = ()
) -> np.ndarray:
    """Draw the map alone, without agent and panel; returns `[side, side, 3]` uint8.

    Args:
        view: how the environment is drawn.
        state: the state whose objects are drawn; every field is a scalar.
        overlay: the overlay, if any.
        side: height and width in pixels.
        arrows: drawn on top.
    """
    canvas = Canvas.of_map(side)
    view.draw_map(canvas, EpisodeSnapshot(state, 0, 0.0, None, (state,)))
    if overlay is not None:
        view.draw_overlay(canvas, overlay)
    view.draw_objects(canvas, state, 0.6)
    for arrow in arrows:
        canvas.arrow(*view.center(canvas, arrow.state), arrow.right, arrow.down)
    return canvas.pixels
