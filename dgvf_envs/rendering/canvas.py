"""Colors, and the drawing surface: shapes, text, images and legends.

pygame is imported only when something is drawn, and only `pygame.font` is ever started here; drawing needs no display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, final

import numpy as np

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
