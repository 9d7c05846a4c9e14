"""Rendering with pygame: windows, frames, color scales and overlays.

A `View` draws one environment on a `Canvas`; the `Renderer` turns that into frames or shows it in a window. pygame is
imported only when something is drawn. Only the render mode `"human"` starts `pygame.display`; frames need no display.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, final

import numpy as np

from dgvf_envs.functional.dynamics import State

if TYPE_CHECKING:
    import pygame


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


PANEL_SHARE = 0.42
"""Width of the side panel as a fraction of the picture's height."""


@lru_cache(maxsize=64)
def _font(size: int) -> pygame.font.Font:
    import pygame

    return pygame.font.Font(None, size)


def font(size: float) -> pygame.font.Font:
    """Pygame's default font at a size in pixels; starts `pygame.font` if necessary."""
    import pygame

    if not pygame.font.get_init():
        pygame.font.init()
    pixels = max(9, round(size))
    try:
        _font(pixels).get_height()
    except pygame.error:  # pygame.quit() invalidates fonts, even if pygame.font is started again
        _font.cache_clear()
    return _font(pixels)


@final
@dataclass(frozen=True)
class Canvas:
    """A surface with two regions: a square map and a panel to its right."""

    surface: pygame.Surface
    map: pygame.Rect
    """The square on the left."""
    panel: pygame.Rect
    """The column on the right."""

    @classmethod
    def of_size(cls, width: int, height: int) -> Canvas:
        """A canvas with the largest map and panel that fit, centered."""
        import pygame

        surface = pygame.Surface((width, height))
        surface.fill(PAPER)
        side = max(8, min(height, int(width / (1.0 + PANEL_SHARE))))
        left, top = (width - int(side * (1.0 + PANEL_SHARE))) // 2, (height - side) // 2
        margin = max(2, side // 30)
        square = pygame.Rect(left + margin, top + margin, side - 2 * margin, side - 2 * margin)
        panel = pygame.Rect(left + side, top + margin, int(side * PANEL_SHARE) - margin, side - 2 * margin)
        return cls(surface, square, panel)

    @classmethod
    def of_map(cls, side: int) -> Canvas:
        """A canvas with a map of `side` pixels and no panel."""
        import pygame

        surface = pygame.Surface((side, side))
        surface.fill(PAPER)
        return cls(surface, surface.get_rect(), pygame.Rect(side, 0, 0, side))

    @property
    def unit(self) -> float:
        """The unit of length, in pixels: 1/100 of the map's side."""
        return self.map.width / 100.0

    @property
    def pixels(self) -> np.ndarray:
        """A copy of the picture, `[H, W, 3]` uint8."""
        import pygame

        return np.transpose(pygame.surfarray.array3d(self.surface), (1, 0, 2)).copy()

    def text(
        self, content: str, x: float, y: float, size: float = 4.0, color: Color = INK, align: str = "left"
    ) -> None:
        """Write one line, vertically centered at `y`.

        Args:
            content: the text.
            x: the point in pixels that `align` refers to.
            y: the middle of the line in pixels.
            size: height in units.
            color: of the text.
            align: `"left"`, `"center"` or `"right"`.
        """
        image = font(size * self.unit * 1.35).render(content, True, color)
        anchor = {"left": "midleft", "center": "center", "right": "midright"}[align]
        self.surface.blit(image, image.get_rect(**{anchor: (round(x), round(y))}))

    def paragraph(self, content: str, top: float, size: float = 2.7, color: Color = INK) -> float:
        """Write text in the panel, wrapped to its width; returns the y below it, in pixels."""
        image = font(size * self.unit * 1.35).render(content, True, color, None, self.panel.width)
        self.surface.blit(image, (self.panel.left, round(top)))
        return top + image.get_height()

    def disc(self, color: Color, x: float, y: float, radius: float, rim: Color | None = PAPER) -> None:
        """Draw a filled circle with a thin rim; position and radius in pixels."""
        import pygame

        if rim is not None:
            pygame.draw.aacircle(self.surface, rim, (round(x), round(y)), max(2, round(radius * 1.22)))
        pygame.draw.aacircle(self.surface, color, (round(x), round(y)), max(1, round(radius)))

    def arrow(self, x: float, y: float, right: float, down: float, color: Color = INK) -> None:
        """Draw an arrow centered at a point in pixels; its components are fractions of the map's side."""
        import pygame

        dx, dy = right * self.map.width, down * self.map.height
        length = math.hypot(dx, dy)
        if length < 2.0:
            return
        tip, tail = (x + dx / 2, y + dy / 2), (x - dx / 2, y - dy / 2)
        head = 0.4 * length
        ux, uy = dx / length * head, dy / length * head
        sides = [(tip[0] - ux - s * 0.7 * uy, tip[1] - uy + s * 0.7 * ux) for s in (1, -1)]
        pygame.draw.line(self.surface, color, tail, tip, max(1, round(0.35 * self.unit)))
        pygame.draw.polygon(self.surface, color, [tip, *sides])

    def image(self, pixels: np.ndarray, where: pygame.Rect, smooth: bool) -> None:
        """Draw `[rows, columns, 3 or 4]` uint8 pixels, scaled to a rectangle."""
        import pygame

        rows, columns, channels = pixels.shape
        mode: Literal["RGB", "RGBA"] = "RGBA" if channels == 4 else "RGB"
        picture = pygame.image.frombuffer(np.ascontiguousarray(pixels).tobytes(), (columns, rows), mode)
        scale = pygame.transform.smoothscale if smooth else pygame.transform.scale
        self.surface.blit(scale(picture, where.size), where)

    def legend(
        self, scale: Sequence[Color], top: float, height: float, label: str, ticks: Sequence[tuple[float, str]]
    ) -> None:
        """Draw a vertical color bar in the panel.

        Args:
            scale: the color scale, lowest first.
            top: of the label, in pixels.
            height: of label and bar together, in pixels.
            label: the title.
            ticks: (fraction from the bottom, text) pairs.
        """
        import pygame

        unit = self.unit
        self.text(label, self.panel.left, top, 3.0, FAINT)
        bar = pygame.Rect(self.panel.left, round(top + 4 * unit), round(5 * unit), round(height - 4 * unit))
        ramp = colors(scale, np.linspace(1.0, 0.0, 128))[:, None, :].astype(np.uint8)
        self.image(ramp, bar, smooth=True)
        pygame.draw.rect(self.surface, LINE, bar, 1)
        for fraction, content in ticks:
            y = bar.bottom - fraction * bar.height
            pygame.draw.line(self.surface, FAINT, (bar.right, y), (bar.right + unit, y))
            self.text(content, bar.right + 2 * unit, y, 2.9, INK)

    def facts(self, top: float, facts: Sequence[tuple[str, str]]) -> float:
        """Write (name, value) lines in the panel; returns the y below them, in pixels."""
        unit = self.unit
        for name, value in facts:
            self.text(name, self.panel.left, top, 3.2, FAINT)
            self.text(value, self.panel.right, top, 3.8, INK, align="right")
            top += 5.6 * unit
        return top


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


_MAX_TILES = 64
"""The number of environments that the window of a vector environment shows at most."""


@final
@dataclass
class Renderer(Generic[State]):
    """Turns snapshots into frames or shows them in a window, for an `Env` or a `VectorEnv`.

    Raises:
        ValueError: `render_mode` or `screen_size` is not allowed.
    """

    view: View[State]
    """How the environment is drawn."""
    render_mode: str | None
    """`None`, `"human"` or `"rgb_array"`."""
    metadata: dict[str, Any]
    """The environment's metadata: allowed render modes and frames per second."""
    screen_size: int = 600
    """Height of the picture in pixels."""
    overlay: OverlayHook | None = None
    """The source of overlays."""
    _window: pygame.Surface | None = field(default=None, init=False, repr=False)
    _clock: Any = field(default=None, init=False, repr=False)
    _closed_by_user: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        modes = self.metadata["render_modes"]
        if self.render_mode is not None and self.render_mode not in modes:
            raise ValueError(f"render_mode must be None or one of {modes}, got {self.render_mode!r}")
        if not 64 <= self.screen_size <= 4096:
            raise ValueError(f"screen_size must lie in [64, 4096] pixels, got {self.screen_size!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None, "_clock": None}  # a copy opens its own window

    @property
    def _width(self) -> int:
        return round(self.screen_size * (1.0 + PANEL_SHARE))

    def frame(self, snapshot: EpisodeSnapshot[State]) -> np.ndarray:
        """Draw one frame, `[H, W, 3]` uint8."""
        return self._canvas(snapshot, self._width, self.screen_size).pixels

    def show(self, snapshots: Sequence[EpisodeSnapshot[State]]) -> None:
        """Show one environment, or several as tiles, in a window at the environment's frame rate.

        If the user closes the window, drawing stops and the program continues.
        """
        import pygame

        if self._closed_by_user:
            return
        if self._window is None or pygame.display.get_surface() is None:  # others may close pygame's only window
            self._open_window()
        self._handle_events()
        if self._closed_by_user:
            return
        self._update_title()
        window = pygame.display.get_surface()  # resizing replaces it
        assert window is not None
        self._window = window
        self._draw_tiles(window, snapshots[:_MAX_TILES])
        pygame.display.flip()
        self._clock.tick(self.metadata["render_fps"])

    def _open_window(self) -> None:
        import pygame

        pygame.display.init()
        self._window = pygame.display.set_mode((self._width, self.screen_size), pygame.RESIZABLE)
        self._clock = pygame.time.Clock()

    def _handle_events(self) -> None:
        import pygame

        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                self._closed_by_user = True
                return
            if event.type == pygame.KEYDOWN and isinstance(self.overlay, LiveOverlay):
                self.overlay.on_key(event.key)

    def _update_title(self) -> None:
        import pygame

        title = (isinstance(self.overlay, LiveOverlay) and self.overlay.caption) or self.view.title
        if pygame.display.get_caption()[0] != title:
            pygame.display.set_caption(title)

    def _draw_tiles(self, window: pygame.Surface, snapshots: Sequence[EpisodeSnapshot[State]]) -> None:
        columns = math.ceil(math.sqrt(len(snapshots)))
        rows = math.ceil(len(snapshots) / columns)
        width, height = window.get_width() // columns, window.get_height() // rows
        window.fill(PAPER)
        for i, snapshot in enumerate(snapshots):
            tile = self._canvas(snapshot, max(64, width), max(64, height)).surface
            window.blit(tile, (i % columns * width, i // columns * height))

    def close(self) -> None:
        """Close the window; may be called again."""
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = None
            self._clock = None

    def _canvas(self, snapshot: EpisodeSnapshot[State], width: int, height: int) -> Canvas:
        canvas = Canvas.of_size(width, height)
        self.view.draw(canvas, snapshot, self._current_overlay(snapshot.state))
        return canvas

    def _current_overlay(self, state: State) -> Overlay | None:
        if isinstance(self.overlay, LiveOverlay):
            return self.overlay.values(state)
        return self.overlay() if self.overlay is not None else None


class Overlaid:
    """An environment, or a vector environment, whose renderer draws overlays."""

    _renderer: Renderer[Any]

    @property
    def overlay(self) -> OverlayHook | None:
        """The source of overlays: a function that returns an `Overlay` or `None`, or a `LiveOverlay`."""
        return self._renderer.overlay

    @overlay.setter
    def overlay(self, hook: OverlayHook | None) -> None:
        self._renderer.overlay = hook
