"""Grid maps drawn in ASCII: which cells are free, where moves lead, how far cells are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

Cell = tuple[int, int]
"""(row, column), row 0 at the top."""

MOVES: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""(row, column) displacement of each action: up, down, left, right."""

FOUR_ROOMS_13 = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
"""
"""The four rooms of Sutton, Precup & Singh (1999)."""

FOUR_ROOMS_9 = """
#########
#   #   #
#       #
#   #   #
## ### ##
#   #   #
#       #
#   #   #
#########
"""
"""A small four-room map for quick work."""

LAYOUTS = {"four-rooms-13": FOUR_ROOMS_13, "four-rooms-9": FOUR_ROOMS_9}
"""The maps that go by a name."""

WALL, FREE, START, MARKS = "#", " .", "S", "12"


@final
@dataclass(frozen=True)
class GridMap:
    """A map: `#` is a wall, a space or `.` a free cell, `S` a cell where episodes start, `1` and `2` the objects.

    Without any `S`, episodes start in every free cell. Free cells are numbered row by row; that number is the cell's
    index everywhere.

    Raises:
        ValueError: the map is empty, not a rectangle, has an unknown sign or no free cell.
    """

    rows: tuple[str, ...]
    """The lines of the map, all of one length."""

    @classmethod
    def parse(cls, layout: str | Sequence[str]) -> GridMap:
        """Read a map from its name in `LAYOUTS`, from one text with line breaks, or from its lines."""
        if isinstance(layout, str):
            layout = LAYOUTS.get(layout, layout).strip("\n").split("\n")
        return cls(tuple(layout))

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows}
        if len(widths) != 1 or 0 in widths:
            raise ValueError(f"layout must be a rectangle of signs, got lines of lengths {sorted(widths)}")
        unknown = sorted(set("".join(self.rows)) - set(WALL + FREE + START + MARKS))
        if unknown:
            raise ValueError(
                f"layout may hold only '#', ' ', '.', 'S', '1' and '2', got {unknown}; known names: {sorted(LAYOUTS)}"
            )
        if all(sign == WALL for row in self.rows for sign in row):
            raise ValueError("layout must have a free cell, got walls only")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self.rows), len(self.rows[0])

    @cached_property
    def free(self) -> np.ndarray:
        """`[rows, columns]` boolean."""
        return np.array([[sign != WALL for sign in row] for row in self.rows])

    @cached_property
    def cells(self) -> np.ndarray:
        """`[C, 2]`: (row, column) of every free cell, by index."""
        return np.argwhere(self.free)

    @cached_property
    def index(self) -> np.ndarray:
        """`[rows, columns]`: the index of each free cell, -1 in walls."""
        index = np.full(self.shape, -1)
        index[self.free] = np.arange(len(self.cells))
        return index

    @cached_property
    def next_cell(self) -> np.ndarray:
        """`[C, 4]`: the index of the cell where each move leads; a move into a wall or off the map stays."""
        padded = np.pad(self.index, 1, constant_values=-1)
        row, column = (self.cells + 1).T
        targets = np.stack([padded[row + dr, column + dc] for dr, dc in MOVES], axis=1)
        return np.where(targets >= 0, targets, np.arange(len(self.cells))[:, None])

    @cached_property
    def distances(self) -> np.ndarray:
        """`[C, C]`: the number of moves from one cell to another, infinity where there is no way."""
        count = len(self.cells)
        distances = np.full((count, count), np.inf)
        frontier = np.eye(count, dtype=bool)
        for moves in range(count):
            distances[frontier] = moves
            frontier = frontier[:, self.next_cell].any(axis=2) & np.isinf(distances)  # moves lead both ways
            if not frontier.any():
                break
        return distances

    @cached_property
    def doors(self) -> np.ndarray:
        """`[rows, columns]` boolean: free cells between two walls on one axis and open on the other."""
        wall = ~np.pad(self.free, 1, constant_values=False)
        up, down, left, right = wall[:-2, 1:-1], wall[2:, 1:-1], wall[1:-1, :-2], wall[1:-1, 2:]
        return self.free & ((up & down & ~left & ~right) | (left & right & ~up & ~down))

    def marked(self, sign: str) -> list[Cell]:
        """The cells that carry a sign."""
        return [(r, c) for r, row in enumerate(self.rows) for c, other in enumerate(row) if other == sign]
