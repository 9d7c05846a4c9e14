from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgvf_envs.collect_objects.grid_map import FOUR_ROOMS_9, FOUR_ROOMS_13, GridMap
from tests.oracles import Rooms

NOWHERE = (-1, -1)


@st.composite
def maps(draw: st.DrawFn) -> tuple[str, ...]:
    """Any rectangle with a free cell; walls need not surround it."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    sign = st.sampled_from("## .S")
    lines = [draw(st.lists(sign, min_size=columns, max_size=columns)) for _ in range(rows)]
    lines[draw(st.integers(0, rows - 1))][draw(st.integers(0, columns - 1))] = " "
    return tuple("".join(line) for line in lines)


@given(maps())
def test_cells_moves_and_distances_are_those_of_a_walk_over_the_text(lines: tuple[str, ...]) -> None:
    grid, rooms = GridMap(lines), Rooms(lines, NOWHERE, NOWHERE)
    cells = rooms.cells()
    assert [tuple(cell) for cell in grid.cells.tolist()] == cells
    assert grid.shape == (len(lines), len(lines[0]))
    for i, cell in enumerate(cells):
        assert grid.free[cell]
        assert grid.index[cell] == i
        assert [cells[j] for j in grid.next_cell[i]] == [rooms.move(cell, action) for action in range(4)]
        reachable = rooms.distances_from(cell)
        assert grid.distances[i].tolist() == [reachable.get(other, math.inf) for other in cells]
    assert grid.free.sum() == len(cells)
    assert (grid.index == -1).sum() == grid.free.size - len(cells)
    assert grid.marked("S") == [cell for cell in cells if lines[cell[0]][cell[1]] == "S"]


@pytest.mark.parametrize(
    ("name", "side", "doors"),
    [("four-rooms-13", 13, [(3, 6), (6, 2), (7, 9), (10, 6)]), ("four-rooms-9", 9, [(2, 4), (4, 2), (4, 6), (6, 4)])],
)
def test_the_maps(name: str, side: int, doors: list[tuple[int, int]]) -> None:
    """Sutton, Precup & Singh (1999): four rooms, four doors, 104 cells; two cells are 20 moves apart at most."""
    grid = GridMap.parse(name)
    assert grid.shape == (side, side)
    assert sorted(map(tuple, np.argwhere(grid.doors).tolist())) == doors
    assert np.isfinite(grid.distances).all()
    if side == 13:
        assert (len(grid.cells), grid.distances.max()) == (104, 20)


@given(maps())
def test_rooms_are_what_a_walk_without_doors_can_reach(lines: tuple[str, ...]) -> None:
    grid = GridMap(lines)
    without_doors = [
        "".join("#" if grid.doors[r, c] else x for c, x in enumerate(line)) for r, line in enumerate(lines)
    ]
    rooms = Rooms(without_doors, NOWHERE, NOWHERE)
    for cell in rooms.cells():
        reachable = np.zeros(grid.shape, dtype=bool)
        reachable[tuple(np.array(list(rooms.distances_from(cell))).T)] = True
        np.testing.assert_array_equal(grid.rooms == grid.rooms[cell], reachable)
    assert ((grid.rooms == -1) == (~grid.free | grid.doors)).all()
    assert sorted({-1, *grid.rooms.ravel().tolist()}) == list(range(-1, grid.rooms.max() + 1))


@pytest.mark.parametrize("name", ["four-rooms-13", "four-rooms-9"])
def test_rooms_are_numbered_row_by_row(name: str) -> None:
    grid = GridMap.parse(name)
    rows, columns = grid.shape
    corners = [(1, 1), (1, columns - 2), (rows - 2, 1), (rows - 2, columns - 2)]
    assert [grid.rooms[corner] for corner in corners] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text"), [("four-rooms-13", FOUR_ROOMS_13), ("four-rooms-9", FOUR_ROOMS_9), ("#1 \n 2.", "#1 \n 2.")]
)
def test_a_map_is_read_from_its_name_its_text_or_its_lines(name: str, text: str) -> None:
    lines = text.strip("\n").split("\n")
    assert GridMap.parse(name) == GridMap.parse(text) == GridMap.parse(lines) == GridMap(tuple(lines))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (["   ", "  "], r"^layout .* rectangle .* \[2, 3\]"),
        ([], r"^layout .* rectangle .* \[\]"),
        ("", r"^layout .* rectangle .* \[0\]"),
        (["..x", ".?."], r"^layout .* \['\?', 'x'\]"),
        ("four-rooms-11", "^layout .*'four-rooms-13'"),
        (["##", "##"], "^layout .* walls only"),
    ],
)
def test_bad_maps_are_named(layout: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GridMap.parse(layout)
