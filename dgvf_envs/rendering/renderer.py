"""Frames and windows.

Only `"human"` starts `pygame.display`; frames for `"rgb_array"` need no display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, final

import numpy as np

from dgvf_envs.functional.dynamics import State
from dgvf_envs.rendering.canvas import PANEL_SHARE, PAPER, Canvas
from dgvf_envs.rendering.view import EpisodeSnapshot, LiveOverlay, Overlay, OverlayHook, View

if TYPE_CHECKING:
    import pygame

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
