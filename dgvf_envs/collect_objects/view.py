"""How Collect-Objects is drawn: rooms and doors, the objects in their order, the agent and its trail."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from dgvf_envs.collect_objects.dynamics import (
    FIRST_COLOR,
    SECOND_COLOR,
    WALL_COLOR,
    CollectObjects,
    CollectObjectsState,
)
from dgvf_envs.rendering import AGENT, FAINT, INK, LINE, Canvas, Color, EpisodeSnapshot, Overlay, View

if TYPE_CHECKING:
    import pygame

_ROOM_TINTS: tuple[Color, ...] = ((250, 243, 232), (235, 243, 250), (238, 247, 238), (247, 238, 246))
_DOOR: Color = (226, 214, 196)
_WHITE: Color = (255, 255, 255)


@final
class CollectObjectsView(View[CollectObjectsState]):
    """Draws a `CollectObjects` world; row 0 is at the top."""

    title = "Collect-Objects"

    def __init__(self, world: CollectObjects) -> None:
        self.world = world

    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[CollectObjectsState]) -> None:
        import pygame

        grid = self.world.map
        for row, column in np.ndindex(grid.shape):
            rect = self._cell(canvas, row, column)
            if not grid.free[row, column]:
                color = WALL_COLOR
            elif grid.doors[row, column]:
                color = _DOOR
            else:
                color = _ROOM_TINTS[grid.rooms[row, column] % len(_ROOM_TINTS)]
            canvas.surface.fill(color, rect)
            if grid.free[row, column]:
                pygame.draw.rect(canvas.surface, LINE, rect, 1)

    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        import pygame

        if overlay.values.shape != self.world.map.shape:
            raise ValueError(f"values must have the map's shape {self.world.map.shape}, got {overlay.values.shape}")
        image = overlay.image()
        for row, column in self.world.map.cells:
            red, green, blue, alpha = (int(channel) for channel in image[row, column])
            rect = self._cell(canvas, row, column)
            tile = pygame.Surface(rect.size)
            tile.fill((red, green, blue))
            tile.set_alpha(alpha)
            canvas.surface.blit(tile, rect)

    def draw_objects(self, canvas: Canvas, state: CollectObjectsState, size: float = 1.0) -> None:
        world = self.world
        objects = (
            (world.first_cell, state.first, FIRST_COLOR, "1"),
            (world.second_cell, state.second, SECOND_COLOR, "2"),
        )
        for index, present, color, name in objects:
            cell = self._cell(canvas, *world.map.cells[index])
            less = round((size - 1.0) * cell.width)
            self._draw_object(canvas, cell.inflate(less, less), color, name, bool(present))

    def center(self, canvas: Canvas, state: CollectObjectsState) -> tuple[float, float]:
        return self._cell(canvas, *self.world.map.cells[state.agent]).center

    def draw_actors(self, canvas: Canvas, snapshot: EpisodeSnapshot[CollectObjectsState]) -> None:
        import pygame

        self.draw_objects(canvas, snapshot.state)
        centers = [self.center(canvas, past) for past in snapshot.trail]
        if len(centers) > 1:
            pygame.draw.lines(canvas.surface, AGENT, False, centers, max(1, round(0.5 * canvas.unit)))
        canvas.disc(AGENT, *centers[-1], 0.29 * self._side(canvas))

    def draw_panel(
        self, canvas: Canvas, snapshot: EpisodeSnapshot[CollectObjectsState], top: float, overlaid: bool
    ) -> None:
        import pygame

        unit, (_, first, second) = canvas.unit, snapshot.state
        rows = (
            (FIRST_COLOR, "1", "first, +1", "next" if first else "taken"),
            (SECOND_COLOR, "2", "second, +2", "taken" if not second else "later" if first else "next"),
        )
        for color, name, words, status in rows:
            rect = pygame.Rect(canvas.panel.left, round(top - 3 * unit), round(6 * unit), round(6 * unit))
            self._draw_object(canvas, rect, color, name, status != "taken")
            canvas.text(words, rect.right + 1.2 * unit, top, 3.4)
            shade = {"next": INK, "later": FAINT, "taken": FAINT}[status]
            canvas.text(status, canvas.panel.right, top, 3.2, shade, align="right")
            top += 7.5 * unit
        if not overlaid:
            canvas.disc(AGENT, canvas.panel.left + 3 * unit, top, 1.9 * unit)
            canvas.text("agent", canvas.panel.left + 7.2 * unit, top, 3.4)

    def _draw_object(self, canvas: Canvas, rect: pygame.Rect, color: Color, name: str, present: bool) -> None:
        """Draw the first object as a disc, the second as a diamond; collected objects only in outline."""
        import pygame

        radius, (x, y) = 0.36 * rect.width, rect.center
        width = 0 if present else max(1, round(0.06 * rect.width))
        if name == "1":
            pygame.draw.circle(canvas.surface, color, (x, y), radius, width)
        else:
            r = 1.15 * radius
            pygame.draw.polygon(canvas.surface, color, [(x, y - r), (x + r, y), (x, y + r), (x - r, y)], width)
        canvas.text(name, x, y, 0.42 * rect.width / canvas.unit, _WHITE if present else color, align="center")

    def _side(self, canvas: Canvas) -> float:
        return canvas.map.width / max(self.world.map.shape)

    def _cell(self, canvas: Canvas, row: int, column: int) -> pygame.Rect:
        """The rectangle of a cell; edges are rounded so that neighbors leave no gap."""
        import pygame

        side, (rows, columns) = self._side(canvas), self.world.map.shape
        left = canvas.map.centerx - columns * side / 2
        top = canvas.map.centery - rows * side / 2
        x, y = round(left + column * side), round(top + row * side)
        return pygame.Rect(x, y, round(left + (column + 1) * side) - x, round(top + (row + 1) * side) - y)
