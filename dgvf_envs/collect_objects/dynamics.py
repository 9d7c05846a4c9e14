"""The dynamics of Collect-Objects: states, transitions and rewards, as pure functions over a batch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final, get_args

import gymnasium as gym
import numpy as np

from dgvf_envs.collect_objects.grid_map import Cell, GridMap
from dgvf_envs.functional.dynamics import Array, Dynamics, Transition
from dgvf_envs.rendering import AGENT, PAPER, Color

Observation = Literal["planes", "rgb", "state"]
"""The kinds of observation."""

WrongOrder = Literal["ignore", "remove", "terminate"]
"""Effect of reaching the second object before the first."""

FIRST_REWARD, SECOND_REWARD = 1.0, 2.0

FIRST_COLOR: Color = (240, 178, 50)
SECOND_COLOR: Color = (122, 84, 190)
WALL_COLOR: Color = (70, 78, 96)


class CollectObjectsState(NamedTuple):
    """B agents and the objects they have not collected yet."""

    agent: Array
    """`[B]` integer: index of the agent's cell in `GridMap.cells`."""
    first: Array
    """`[B]` boolean: the first object is present."""
    second: Array
    """`[B]` boolean: the second object is present."""


class CollectObjectsConstants(NamedTuple):
    """The arrays that the dynamics use; C free cells, S of them starting cells."""

    next_cell: Array
    """`[C * 4]`: the cell reached from cell c by action a, at c * 4 + a."""
    starts: Array
    """`[S]`: the cells where episodes start."""
    observations: Array
    """`[4 * C, ...]`: the observation of every state, at `state_index`."""


@final
@dataclass(frozen=True)
class CollectObjects(Dynamics[CollectObjectsState]):
    """The dynamics of Collect-Objects (Veeriah et al. 2019, section 4.1).

    Raises:
        ValueError: an argument is invalid, or the objects cannot be collected from every starting cell.
    """

    layout: str | Sequence[str] = "four-rooms-13"
    """The map: a name in `grid_map.LAYOUTS`, a multi-line string, or a sequence of lines; see `GridMap`."""
    objects: tuple[Cell, Cell] | None = None
    """(row, column) of the first and the second object. If `None`: the map's `1` and `2`, or (2, 10) and (9, 10) if it
    has none."""
    observation: Observation = "planes"
    """`"planes"`: binary planes of agent, first and second object; `"rgb"`: one pixel per cell; `"state"`: integers."""
    wrong_order: WrongOrder = "ignore"
    """When the second object is reached first: `"ignore"` it, `"remove"` it without reward, or `"terminate"`."""
    map: GridMap = field(init=False, repr=False, compare=False)
    """The parsed map."""
    first_cell: int = field(init=False, repr=False, compare=False)
    """Index of the first object's cell."""
    second_cell: int = field(init=False, repr=False, compare=False)
    """Index of the second object's cell."""

    reset_draws = 1
    step_draws = 0

    def __post_init__(self) -> None:
        for name, allowed in (("observation", get_args(Observation)), ("wrong_order", get_args(WrongOrder))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        grid = GridMap.parse(self.layout)
        first, second = _object_cells(grid, self.objects)
        starts = _start_cells(grid, first, second)
        observations, space = _observation_table(grid, first, second, self.observation)
        derived = {
            "map": grid,
            "first_cell": first,
            "second_cell": second,
            "constants": CollectObjectsConstants(grid.next_cell.ravel(), starts, observations),
            "observation_space": space,
            "action_space": gym.spaces.Discrete(4),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def reset(self, uniforms: Array) -> CollectObjectsState:
        starts = self.constants.starts
        drawn = uniforms[:, 0] * len(starts)
        agent = starts[drawn.astype(np.int64) if self.xp is np else drawn.long()]
        return CollectObjectsState(agent, agent >= 0, agent >= 0)

    def step(self, state: CollectObjectsState, action: Array, uniforms: Array) -> Transition:
        agent = self.constants.next_cell[state.agent * 4 + action]
        at_first = (agent == self.first_cell) & state.first
        at_second = (agent == self.second_cell) & state.second
        in_order, too_early = at_second & ~state.first, at_second & state.first
        first = state.first & ~at_first
        second = state.second & ~(at_second if self.wrong_order == "remove" else in_order)
        reward = at_first * FIRST_REWARD + in_order * SECOND_REWARD
        terminated = in_order
        if self.wrong_order == "terminate":
            terminated = in_order | too_early
        elif self.wrong_order == "remove":
            terminated = ~(first | second)
        return Transition(CollectObjectsState(agent, first, second), reward, terminated, in_order)

    def observe(self, state: CollectObjectsState) -> Array:
        return self.constants.observations[self.state_index(state)]

    def state_index(self, state: CollectObjectsState) -> Array:
        """`[B]` integer in [0, 4 C): the index of each state, agent * 4 + first * 2 + second."""
        return state.agent * 4 + state.first * 2 + state.second

    def states(self) -> CollectObjectsState:
        """All 4 C states, in the order of `state_index`."""
        one_each = self.constants.next_cell * 0 + 1  # [4 C], on the device of the constants
        index = one_each.cumsum(0) - 1
        return CollectObjectsState(index // 4, index // 2 % 2 == 1, index % 2 == 1)


def _object_cells(grid: GridMap, objects: Any) -> tuple[int, int]:
    """The indices of the objects' cells."""
    if objects is None:
        marks = [grid.marked("1"), grid.marked("2")]
        if [len(cells) for cells in marks] not in ([0, 0], [1, 1]):
            raise ValueError(f"layout must mark one '1' and one '2', or neither, got them at {marks}")
        objects = tuple(cells[0] for cells in marks) if marks[0] else ((2, 10), (9, 10))
    try:
        cells = [(operator.index(row), operator.index(column)) for row, column in objects]
    except (TypeError, ValueError):
        raise ValueError(f"objects must be two integer (row, column) pairs, got {objects!r}") from None
    if len(cells) != 2 or cells[0] == cells[1]:
        raise ValueError(f"objects must be two different (row, column) pairs, got {objects!r}")
    for cell in cells:
        if not (0 <= cell[0] < grid.shape[0] and 0 <= cell[1] < grid.shape[1]):
            raise ValueError(f"objects must lie on the map of {grid.shape} cells, got {cell}")
        if not grid.free[cell]:
            raise ValueError(f"objects must lie on free cells, got {cell}, a wall")
    first, second = (int(grid.index[cell]) for cell in cells)
    return first, second


def _start_cells(grid: GridMap, first: int, second: int) -> np.ndarray:
    """`[S]`: the cells where episodes start, from which both objects can be reached."""
    marked = [int(grid.index[cell]) for cell in grid.marked("S")]
    starts = np.array([c for c in marked or range(len(grid.cells)) if c not in (first, second)], dtype=np.int64)
    if len(starts) == 0:
        raise ValueError("layout must have a cell where the agent can start: a free cell without an object")
    legs = grid.distances[starts, first] + grid.distances[first, second]
    if np.isinf(legs).any():
        cells = [tuple(int(x) for x in grid.cells[c]) for c in (starts[np.isinf(legs)][0], first, second)]
        raise ValueError(f"objects must be reachable: no path leads from {cells[0]} to {cells[1]} and on to {cells[2]}")
    return starts


def _observation_table(grid: GridMap, first: int, second: int, kind: Observation) -> tuple[np.ndarray, gym.Space]:
    """All observations, `[4 C, ...]`, and their space.

    Args:
        grid: the map.
        first: index of the first object's cell.
        second: index of the second object's cell.
        kind: the kind of observation.
    """
    if kind == "state":
        return _state_table(grid)
    planes = _planes(grid, first, second)
    if kind == "planes":
        return planes.astype(np.int8), gym.spaces.MultiBinary(planes.shape[1:])
    return _rgb_table(grid, planes)


def _planes(grid: GridMap, first: int, second: int) -> np.ndarray:
    """`[4 C, 3, rows, columns]` boolean: the positions of agent, first and second object in every state."""
    count = len(grid.cells)
    index = np.arange(4 * count)
    planes = np.zeros((4 * count, 3, *grid.shape), dtype=bool)
    rows, columns = grid.cells.T
    planes[index, 0, rows[index // 4], columns[index // 4]] = True
    planes[:, 1, rows[first], columns[first]] = index // 2 % 2
    planes[:, 2, rows[second], columns[second]] = index % 2
    return planes


def _rgb_table(grid: GridMap, planes: np.ndarray) -> tuple[np.ndarray, gym.Space]:
    picture = np.where(grid.free[..., None], PAPER, WALL_COLOR).astype(np.uint8)
    pictures = np.tile(picture, (len(planes), 1, 1, 1))
    for plane, color in ((1, FIRST_COLOR), (2, SECOND_COLOR), (0, AGENT)):  # the agent is on top
        pictures[planes[:, plane]] = color
    return pictures, gym.spaces.Box(0, 255, pictures.shape[1:], np.uint8)


def _state_table(grid: GridMap) -> tuple[np.ndarray, gym.Space]:
    index = np.arange(4 * len(grid.cells))
    columns = (*grid.cells[index // 4].T, index // 2 % 2, index % 2)
    return np.stack(columns, axis=1), gym.spaces.MultiDiscrete([*grid.shape, 2, 2])
