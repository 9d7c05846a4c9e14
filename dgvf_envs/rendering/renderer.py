"""What pygame draws, shared by every world: the window, text, color scales, and values over the map.

A world's own picture is a `View`; this module gives it a canvas and knows about windows, resizing and closing. Only the
parts of pygame that are needed are ever started (`pygame.display` for a window, `pygame.font` for text), and frames for
`rgb_array` need no display at all.
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

INK: Color = (38, 44, 58)
FAINT: Color = (126, 134, 150)
PAPER: Color = (250, 249, 246)
LINE: Color = (216, 216, 210)
AGENT: Color = (232, 93, 58)
GOAL: Color = (58, 148, 92)

WATER = ((250, 249, 246), (196, 222, 236), (110, 174, 214), (44, 105, 176), (16, 42, 98))
"""A sequential color scale, light to dark."""
DIVERGING = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))
"""A color scale for signed values, blue through white to red."""

_PANEL_SHARE = 0.42
"""Width of the side panel as a share of the picture's height."""
_MOST_TILES = 64
"""How many copies a vector environment's window shows."""


@dataclass(frozen=True)
class EpisodeSnapshot(Generic[State]):
    """What there is to draw of one copy at one moment."""

    state: State
    """The state of this copy; every field a scalar."""
    step: int
    """Steps since the episode began."""
    episode_return: float
    """Undiscounted sum of the rewards so far."""
    reward: float | None
    """The last reward; `None` before the first step."""
    trail: tuple[State, ...]
    """The states visited in this episode, oldest first, the current one last."""

    @classmethod
    def at_start(cls, states: State, row: int) -> EpisodeSnapshot[State]:
        """Copy `row` of a batch of states, at the beginning of an episode."""
        state = _row(states, row)
        return cls(state, 0, 0.0, None, (state,))

    def after_step(self, states: State, row: int, reward: float, most: int = 400) -> EpisodeSnapshot[State]:
        """The snapshot one step later; the trail keeps the last `most` states."""
        state = _row(states, row)
        return EpisodeSnapshot(
            state, self.step + 1, self.episode_return + reward, reward, (*self.trail[-most + 1 :], state)
        )


def _row(states: State, row: int) -> State:
    return type(states)(*(values[row].item() for values in states))


@final
@dataclass(frozen=True)
class Overlay:
    """Values to draw over a map."""

    values: np.ndarray
    """`[rows, columns]`. Grid worlds: a value per cell, row 0 on top. The square: row 0 at y = 0. NaN is not drawn."""
    label: str = ""
    """What the values are; stands above their color scale, in as many lines as it has."""
    low: float | None = None
    """Value of the coldest color; the smallest value, or minus the largest magnitude if signs differ, when left out."""
    high: float | None = None
    """Value of the warmest color; like `low`."""
    opacity: float = 0.85
    """0 is invisible, 1 hides the map."""

    def __post_init__(self) -> None:
        if np.ndim(self.values) != 2:
            raise ValueError(f"values must have two axes [rows, columns], got shape {np.shape(self.values)}")
        if not 0.0 <= self.opacity <= 1.0:
            raise ValueError(f"opacity must lie in [0, 1], got {self.opacity!r}")

    @property
    def limits(self) -> tuple[float, float]:
        """The values of the coldest and the warmest color."""
        finite = np.asarray(self.values, dtype=np.float64)
        finite = finite[np.isfinite(finite)]
        least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if least < 0.0 < most:
            least, most = -max(-least, most), max(-least, most)
        low, high = least if self.low is None else self.low, most if self.high is None else self.high
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def image(self) -> np.ndarray:
        """The colors, `[rows, columns, 4]` uint8 with alpha."""
        low, high = self.limits
        values = np.asarray(self.values, dtype=np.float64)
        fractions = np.clip((np.nan_to_num(values, nan=low) - low) / (high - low), 0.0, 1.0)
        alpha = np.where(np.isnan(values), 0.0, 255.0 * self.opacity)
        return np.dstack([colors(DIVERGING, fractions), alpha]).astype(np.uint8)


class LiveOverlay(ABC, Generic[State]):
    """An overlay that depends on the state shown, and that keys pressed in the window may change."""

    @property
    def caption(self) -> str:
        """What the title of the window says; the world's own title where it is empty."""
        return ""

    @abstractmethod
    def values(self, state: State) -> Overlay | None:
        """What to draw over this state, every field a scalar; asked for in every frame."""

    @abstractmethod
    def on_key(self, key: int) -> None:
        """Take a key that was pressed, by its number in pygame."""


OverlayHook = Callable[[], Overlay | None] | LiveOverlay[Any]
"""What draws values over the map: a function without arguments, called for every frame, or a `LiveOverlay`."""


def colors(scale: Sequence[Color], fractions: np.ndarray) -> np.ndarray:
    """Colors of a scale at fractions in [0, 1]: `[..., 3]` float64 in [0, 255]."""
    stops = np.linspace(0.0, 1.0, len(scale))
    channels = np.asarray(scale, dtype=np.float64).T
    return np.stack([np.interp(fractions, stops, channel) for channel in channels], axis=-1)


@lru_cache(maxsize=64)
def _font(size: int) -> pygame.font.Font:
    import pygame

    return pygame.font.Font(None, size)


def font(size: float) -> pygame.font.Font:
    """The font of pygame at a size in pixels; starts `pygame.font` where it is not running."""
    import pygame

    if not pygame.font.get_init():
        pygame.font.init()
    pixels = max(9, round(size))
    try:
        _font(pixels).get_height()
    except pygame.error:  # fonts die with pygame.quit(), even if someone starts pygame.font anew
        _font.cache_clear()
    return _font(pixels)


@dataclass(frozen=True)
class Canvas:
    """A surface to draw on, and the two places a picture has: a square map and a panel beside it."""

    surface: pygame.Surface
    map: pygame.Rect
    """The square on the left."""
    panel: pygame.Rect
    """The column on the right."""

    @classmethod
    def of_size(cls, width: int, height: int) -> Canvas:
        """The largest picture that fits, centered."""
        import pygame

        surface = pygame.Surface((width, height))
        surface.fill(PAPER)
        side = max(8, min(height, int(width / (1.0 + _PANEL_SHARE))))
        left, top = (width - int(side * (1.0 + _PANEL_SHARE))) // 2, (height - side) // 2
        margin = max(2, side // 30)
        square = pygame.Rect(left + margin, top + margin, side - 2 * margin, side - 2 * margin)
        panel = pygame.Rect(left + side, top + margin, int(side * _PANEL_SHARE) - margin, side - 2 * margin)
        return cls(surface, square, panel)

    @classmethod
    def of_map(cls, side: int) -> Canvas:
        """The map alone, without a panel."""
        import pygame

        surface = pygame.Surface((side, side))
        surface.fill(PAPER)
        return cls(surface, surface.get_rect(), pygame.Rect(side, 0, 0, side))

    @property
    def unit(self) -> float:
        """The length everything is measured in: 1/100 of the map's side, in pixels."""
        return self.map.width / 100.0

    def text(
        self, content: str, x: float, y: float, size: float = 4.0, color: Color = INK, align: str = "left"
    ) -> None:
        """Write a line with its vertical middle at `y`; `size` in units; `align` is left, center or right."""
        image = font(size * self.unit * 1.35).render(content, True, color)
        anchor = {"left": "midleft", "center": "center", "right": "midright"}[align]
        self.surface.blit(image, image.get_rect(**{anchor: (round(x), round(y))}))

    def disc(self, color: Color, x: float, y: float, radius: float, rim: Color | None = PAPER) -> None:
        """A filled circle with a thin rim; radius in pixels."""
        import pygame

        draw_circle = getattr(pygame.draw, "aacircle", pygame.draw.circle)  # smooth where pygame-ce offers it
        if rim is not None:
            draw_circle(self.surface, rim, (round(x), round(y)), max(2, round(radius * 1.22)))
        draw_circle(self.surface, color, (round(x), round(y)), max(1, round(radius)))

    def arrow(self, x: float, y: float, right: float, down: float, color: Color = INK) -> None:
        """An arrow around a point in pixels; lengths are shares of the map's side."""
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
        """Draw `[rows, columns, 3 or 4]` uint8 pixels into a rectangle."""
        import pygame

        rows, columns, channels = pixels.shape
        mode: Literal["RGB", "RGBA"] = "RGBA" if channels == 4 else "RGB"
        picture = pygame.image.frombuffer(np.ascontiguousarray(pixels).tobytes(), (columns, rows), mode)
        scale = pygame.transform.smoothscale if smooth else pygame.transform.scale
        self.surface.blit(scale(picture, where.size), where)

    def legend(
        self, scale: Sequence[Color], top: float, height: float, label: str, ticks: Sequence[tuple[float, str]]
    ) -> None:
        """A vertical color bar in the panel; ticks are (fraction from the bottom, text)."""
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
        """Lines of name and value in the panel; returns the y below them."""
        unit = self.unit
        for name, value in facts:
            self.text(name, self.panel.left, top, 3.2, FAINT)
            self.text(value, self.panel.right, top, 3.8, INK, align="right")
            top += 5.6 * unit
        return top


@dataclass(frozen=True)
class Arrow(Generic[State]):
    """An arrow on the map, centered on the agent of a state."""

    state: State
    """Every field a scalar."""
    right: float
    """Length to the right as a share of the map's side."""
    down: float
    """Length downward as a share of the map's side."""


class View(ABC, Generic[State]):
    """What one world looks like."""

    title: str
    """Heading of the window and of the panel."""

    @abstractmethod
    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[State]) -> None:
        """Draw the world itself, what lies below an overlay."""

    @abstractmethod
    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        """Draw values over the map."""

    def draw_objects(self, canvas: Canvas, state: State, size: float = 1.0) -> None:
        """Draw what stands on the map and must be seen above an overlay; nothing by default.

        Args:
            canvas: where.
            state: the state, every field a scalar.
            size: share of the usual size; small ones leave the values beneath to be seen.
        """
        return

    @abstractmethod
    def center(self, canvas: Canvas, state: State) -> tuple[float, float]:
        """Where the agent of a state stands, in pixels; every field a scalar."""

    @abstractmethod
    def draw_actors(self, canvas: Canvas, snapshot: EpisodeSnapshot[State]) -> None:
        """Draw what moves, on top of everything."""

    @abstractmethod
    def draw_panel(self, canvas: Canvas, snapshot: EpisodeSnapshot[State], top: float, overlaid: bool) -> None:
        """Fill the panel below `top`; its lower half belongs to the overlay's color scale where `overlaid`."""

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
            low, high = overlay.limits
            ticks = [(f, f"{low + f * (high - low):.3g}") for f in (0.0, 0.5, 1.0)]
            *above, last = (overlay.label or "overlay").split("\n")
            for i, line in enumerate(above):
                canvas.text(line, canvas.panel.left, canvas.panel.bottom - (44 + 4 * (len(above) - i)) * unit, 3.0)
            canvas.legend(DIVERGING, canvas.panel.bottom - 44 * unit, 42 * unit, last, ticks)


def map_picture(
    view: View[State], state: State, overlay: Overlay | None, side: int, arrows: Sequence[Arrow[State]] = ()
) -> np.ndarray:
    """The map alone with values over it, nobody on it: `[side, side, 3]` uint8.

    Args:
        view: what the world looks like.
        state: what stands on the map; every field a scalar.
        overlay: the values; none when `None`.
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
    return _pixels(canvas.surface)


@dataclass
class Renderer(Generic[State]):
    """Turns snapshots into frames or shows them in a window, for a scalar or a vector environment."""

    view: View[State]
    render_mode: str | None
    metadata: dict[str, Any]
    """The environment's; gives the allowed modes and the frames per second."""
    screen_size: int = 600
    """Height of a picture in pixels."""
    overlay: OverlayHook | None = None
    """Called for every frame."""
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
        return round(self.screen_size * (1.0 + _PANEL_SHARE))

    def frame(self, snapshot: EpisodeSnapshot[State]) -> np.ndarray:
        """One picture as `[H, W, 3]` uint8."""
        return _pixels(self._picture(snapshot, self._width, self.screen_size))

    def show(self, snapshots: Sequence[EpisodeSnapshot[State]]) -> None:
        """Show one copy, or many as tiles, in a window at the environment's frame rate.

        Closing the window by hand stops the drawing, not the program.
        """
        import pygame

        if self._closed_by_user:
            return
        tiles = snapshots[:_MOST_TILES]
        if self._window is None or pygame.display.get_surface() is None:  # others may close pygame's only window
            pygame.display.init()
            self._window = pygame.display.set_mode((self._width, self.screen_size), pygame.RESIZABLE)
            self._clock = pygame.time.Clock()
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                self._closed_by_user = True
                return
            if event.type == pygame.KEYDOWN and isinstance(self.overlay, LiveOverlay):
                self.overlay.on_key(event.key)
        self._retitle()
        window = pygame.display.get_surface()  # another one after a resize
        assert window is not None
        self._window = window
        columns = math.ceil(math.sqrt(len(tiles)))
        rows = math.ceil(len(tiles) / columns)
        width, height = window.get_width() // columns, window.get_height() // rows
        window.fill(PAPER)
        for i, snapshot in enumerate(tiles):
            picture = self._picture(snapshot, max(64, width), max(64, height))
            window.blit(picture, (i % columns * width, i // columns * height))
        pygame.display.flip()
        self._clock.tick(self.metadata["render_fps"])

    def _retitle(self) -> None:
        import pygame

        title = (isinstance(self.overlay, LiveOverlay) and self.overlay.caption) or self.view.title
        if pygame.display.get_caption()[0] != title:
            pygame.display.set_caption(title)

    def close(self) -> None:
        """Close the window; may be called again."""
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = None
            self._clock = None

    def _picture(self, snapshot: EpisodeSnapshot[State], width: int, height: int) -> pygame.Surface:
        canvas = Canvas.of_size(width, height)
        self.view.draw(canvas, snapshot, self._overlay_of(snapshot.state))
        return canvas.surface

    def _overlay_of(self, state: State) -> Overlay | None:
        if isinstance(self.overlay, LiveOverlay):
            return self.overlay.values(state)
        return self.overlay() if self.overlay is not None else None


def _pixels(surface: pygame.Surface) -> np.ndarray:
    import pygame

    return np.transpose(pygame.surfarray.array3d(surface), (1, 0, 2)).copy()
