"""Views: how one environment is drawn, what a picture shows of an episode, and overlays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, final

import numpy as np

from dgvf_envs.functional.dynamics import State
from dgvf_envs.rendering.canvas import DIVERGING, Canvas, Color, colors


@final
@dataclass(frozen=True)
class EpisodeSnapshot(Generic[State]):
    """One environment at one time step."""

    state: State
    """The current state; every field is a scalar."""
    step: int
    """Steps since the episode began."""
    episode_return: float
    """Undiscounted sum of the rewards so far."""
    reward: float | None
    """The last reward; `None` before the first step."""
    trail: tuple[State, ...]
    """The states visited in this episode, oldest first; the current state is last."""

    @classmethod
    def at_start(cls, states: State, row: int) -> EpisodeSnapshot[State]:
        """The snapshot of row `row` of a batch of states at the start of an episode."""
        state = _row(states, row)
        return cls(state, 0, 0.0, None, (state,))

    def after_step(self, states: State, row: int, reward: float, max_trail: int = 400) -> EpisodeSnapshot[State]:
        """The snapshot one step later; the trail keeps the last `max_trail` states."""
        state = _row(states, row)
        trail = (*self.trail[-max_trail + 1 :], state)
        return EpisodeSnapshot(state, self.step + 1, self.episode_return + reward, reward, trail)


def _row(states: State, row: int) -> State:
    return type(states)(*(values[row].item() for values in states))


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
