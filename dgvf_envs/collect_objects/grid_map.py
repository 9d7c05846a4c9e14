"""Grid maps drawn in ASCII: free cells, moves, distances, doors and rooms.

SciPy is imported where it is used: importing it takes longer than making an environment.
"""

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
"""A small four-room map for quick experiments."""

LAYOUTS = {"four-rooms-13": FOUR_ROOMS_13, "four-rooms-9": FOUR_ROOMS_9}
"""The named maps."""

WALL, FREE, START, MARKS = "#", " .", "S", "12"


@final
@dataclass(frozen=True)
class GridMap:
    """A map of walls and free cells.

    `#` is a wall, a space or `.` a free cell, `S` a free cell where episodes start, and `1` and `2` are free cells with
    the first and the second object. Without any `S`, episodes start in all free cells. Free cells are indexed row by
    row.

    Raises:
        ValueError: the map is empty, not a rectangle, has an unknown character or no free cell.
    """

    rows: tuple[str, ...]
    """The lines of the map, all of the same length."""

    @classmethod
    def parse(cls, layout: str | Sequence[str]) -> GridMap:
        """Read a map from its name in `LAYOUTS`, a multi-line string, or a sequence of lines."""
        if isinstance(layout, str):
            layout = LAYOUTS.get(layout, layout).strip("\n").split("\n")
        return cls(tuple(layout))

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows}
        if len(widths) != 1 or 0 in widths:
            raise ValueError(f"layout must be a rectangle of characters, got lines of lengths {sorted(widths)}")
        unknown = sorted(set("".join(self.rows)) - set(WALL + FREE + START + MARKS))
        if unknown:
            raise ValueError(
                f"layout must be one of {sorted(LAYOUTS)} or consist of '#', ' ', '.', 'S', '1' and '2', got {unknown}"
            )
        if all(character == WALL for row in self.rows for character in row):
            raise ValueError("layout must have a free cell, got walls only")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self.rows), len(self.rows[0])

    @cached_property
    def free(self) -> np.ndarray:
        """`[rows, columns]` boolean."""
        return np.array([[character != WALL for character in row] for row in self.rows])

    @cached_property
    def cells(self) -> np.ndarray:
        """`[C, 2]`: (row, column) of each free cell."""
        return np.argwhere(self.free)

    @cached_property
    def index(self) -> np.ndarray:
        """`[rows, columns]`: the index of each free cell, -1 in walls."""
        index = np.full(self.shape, -1)
        index[self.free] = np.arange(len(self.cells))
        return index

    @cached_property
    def next_cell(self) -> np.ndarray:
        """`[C, 4]`: the cell that each action leads to; moves into a wall or off the map stay in place."""
        padded = np.pad(self.index, 1, constant_values=-1)
        row, column = (self.cells + 1).T
        targets = np.stack([padded[row + dr, column + dc] for dr, dc in MOVES], axis=1)
        return np.where(targets >= 0, targets, np.arange(len(self.cells))[:, None])

    @cached_property
    def distances(self) -> np.ndarray:
        """`[C, C]`: the length of the shortest path between two cells in moves, infinity if there is none."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import shortest_path

        count = len(self.cells)
        moves = csr_array(
            (np.ones(4 * count), (np.repeat(np.arange(count), 4), self.next_cell.ravel())), shape=(count, count)
        )
        return shortest_path(moves, unweighted=True)

    @cached_property
    def doors(self) -> np.ndarray:
        """`[rows, columns]` boolean: free cells with walls on both sides along one axis and none along the other."""
        wall = ~np.pad(self.free, 1, constant_values=False)
        up, down, left, right = wall[:-2, 1:-1], wall[2:, 1:-1], wall[1:-1, :-2], wall[1:-1, 2:]
        return self.free & ((up & down & ~left & ~right) | (left & right & ~up & ~down))

    @cached_property
    def rooms(self) -> np.ndarray:
        """`[rows, columns]` integer: the room of each cell, numbered from 0; -1 for walls and doors."""
        from scipy import ndimage

        labels, _ = ndimage.label(self.free & ~self.doors)
        return labels - 1

    def marked(self, character: str) -> list[Cell]:
        """The cells marked with a character."""
        return [(r, c) for r, row in enumerate(self.rows) for c, other in enumerate(row) if other == character]
