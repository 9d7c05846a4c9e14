"""Collect-Objects: four rooms, two objects, to be taken in the right order."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from dgvf_envs.collect_objects.grid_map import Cell, GridMap
from dgvf_envs.collect_objects.view import (
    AGENT_COLOR,
    FIRST_COLOR,
    FLOOR_COLOR,
    SECOND_COLOR,
    WALL_COLOR,
    CollectObjectsView,
)
from dgvf_envs.functional.dynamics import Array, Dynamics, Transition
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.functional.vector_env import DynamicsVectorEnv

Observation = Literal["planes", "rgb", "state"]
WrongOrder = Literal["ignore", "remove", "terminate"]

FIRST_REWARD, SECOND_REWARD = 1.0, 2.0


class CollectObjectsState(NamedTuple):
    """B agents and what they have left to collect."""

    agent: Array
    """`[B]` integer: index of the agent's cell in `GridMap.cells`."""
    first: Array
    """`[B]` boolean: the first object is still there."""
    second: Array
    """`[B]` boolean: the second object is still there."""


class CollectObjectsConstants(NamedTuple):
    """What the dynamics need as arrays; C cells, S of them starts."""

    next_cell: Array
    """`[C * 4]`: where move a leads from cell c, at c * 4 + a."""
    starts: Array
    """`[S]`: cells where episodes start."""
    observations: Array
    """`[4 * C, ...]`: the observation of every state, at `state_index`."""


@final
@dataclass(frozen=True)
class CollectObjects(Dynamics[CollectObjectsState]):
    """The dynamics of Collect-Objects (Veeriah et al. 2019, section 4.1).

    Raises:
        ValueError: an argument is out of its range, or the objects cannot be collected; the message says which.
    """

    layout: str | Sequence[str] = "four-rooms-13"
    """The map: a name in `grid_map.LAYOUTS`, a text with line breaks, or its lines; `GridMap` has the signs."""
    objects: tuple[Cell, Cell] | None = None
    """(row, column) of the first and the second object; the map's `1` and `2` when left out, else (2, 10), (9, 10)."""
    observation: Observation = "planes"
    """`"planes"`: binary planes for agent, first and second object; `"rgb"`: one pixel a cell; `"state"`: integers."""
    wrong_order: WrongOrder = "ignore"
    """What reaching the second object first does: nothing, take it away without reward, or end the episode."""
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
        planes = _planes(grid, first, second)
        observations, space = {"planes": _as_planes, "rgb": _as_rgb, "state": _as_state}[self.observation](grid, planes)
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
        """`[B]` integer in [0, 4 C): agent * 4 + first * 2 + second; numbers all states of the world."""
        return state.agent * 4 + state.first * 2 + state.second

    def states(self) -> CollectObjectsState:
        """All 4 C states, by `state_index`."""
        one_each = self.constants.next_cell * 0 + 1  # [4 C], where the constants live
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
    """`[S]`: the cells where episodes start; from each, both objects can be reached."""
    marked = [int(grid.index[cell]) for cell in grid.marked("S")]
    starts = np.array([c for c in marked or range(len(grid.cells)) if c not in (first, second)], dtype=np.int64)
    if len(starts) == 0:
        raise ValueError("layout must have a cell where the agent can start: a free cell without an object")
    legs = grid.distances[starts, first] + grid.distances[first, second]
    if np.isinf(legs).any():
        cells = [tuple(int(x) for x in grid.cells[c]) for c in (starts[np.isinf(legs)][0], first, second)]
        raise ValueError(f"objects must be reachable: no way leads from {cells[0]} to {cells[1]} and on to {cells[2]}")
    return starts


def _planes(grid: GridMap, first: int, second: int) -> np.ndarray:
    """`[4 C, 3, rows, columns]` boolean: where agent, first and second object are, for every state."""
    count = len(grid.cells)
    index = np.arange(4 * count)
    planes = np.zeros((4 * count, 3, *grid.shape), dtype=bool)
    rows, columns = grid.cells.T
    planes[index, 0, rows[index // 4], columns[index // 4]] = True
    planes[:, 1, rows[first], columns[first]] = index // 2 % 2
    planes[:, 2, rows[second], columns[second]] = index % 2
    return planes


def _as_planes(grid: GridMap, planes: np.ndarray) -> tuple[np.ndarray, gym.Space]:
    return planes.astype(np.int8), gym.spaces.MultiBinary(planes.shape[1:])


def _as_rgb(grid: GridMap, planes: np.ndarray) -> tuple[np.ndarray, gym.Space]:
    picture = np.where(grid.free[..., None], FLOOR_COLOR, WALL_COLOR).astype(np.uint8)
    pictures = np.tile(picture, (len(planes), 1, 1, 1))
    for plane, color in ((1, FIRST_COLOR), (2, SECOND_COLOR), (0, AGENT_COLOR)):  # the agent hides what it stands on
        pictures[planes[:, plane]] = color
    return pictures, gym.spaces.Box(0, 255, pictures.shape[1:], np.uint8)


def _as_state(grid: GridMap, planes: np.ndarray) -> tuple[np.ndarray, gym.Space]:
    index = np.arange(len(planes))
    columns = (*grid.cells[index // 4].T, index // 2 % 2, index % 2)
    return np.stack(columns, axis=1), gym.spaces.MultiDiscrete([*grid.shape, 2, 2])


@final
class CollectObjectsEnv(DynamicsEnv[CollectObjectsState]):
    """
    ## Description

    An agent walks through four rooms and collects two objects in the right order, before time runs out. The objects lie
    in the same cells in every episode; where the agent starts is drawn anew. The world follows the Collect-Objects
    domain of Veeriah et al., *Discovery of Useful Questions as Auxiliary Tasks* (NeurIPS 2019); the paper does not give
    the map or the objects' cells, and the default map is the one of Sutton, Precup & Singh (1999).

    ## Action Space

    `Discrete(4)`, deterministic. A move into a wall changes nothing.

    | Num | Action | (row, column) |
    |-----|--------|---------------|
    | 0 | up | (-1, 0) |
    | 1 | down | (+1, 0) |
    | 2 | left | (0, -1) |
    | 3 | right | (0, +1) |

    ## Observation Space

    | `observation` | Space | Meaning |
    |---------------|-------|---------|
    | `"planes"` | `MultiBinary((3, rows, columns))` | where the agent, the first and the second object are |
    | `"rgb"` | `Box(0, 255, (rows, columns, 3), uint8)` | one pixel a cell; the agent hides what it stands on |
    | `"state"` | `MultiDiscrete([rows, columns, 2, 2])` | agent's row and column, first and second still there |

    An object's plane is empty once it is taken.

    ## Rewards

    1 for taking the first object, 2 for taking the second after the first, 0 otherwise. Reaching the second object
    before the first does nothing, by default: see `wrong_order`.

    ## Starting State

    Uniform over the free cells without an object, or over the cells marked `S` in the map.

    ## Episode End

    - Termination: the second object was taken in order. With `wrong_order="terminate"` also when it is reached too
      early, with `"remove"` also when no object is left.
    - Truncation: after 40 steps (`max_episode_steps`), enough to collect both from everywhere on the registered maps.

    `info["is_success"]` is true on the step that takes the second object in order.

    ## Arguments

    Given to `gymnasium.make` or `gymnasium.make_vec`:

    | Argument | Default | Meaning |
    |----------|---------|---------|
    | `layout` | `"four-rooms-13"` | `"four-rooms-13"`, `"four-rooms-9"`, a text, or its lines |
    | `objects` | `((2, 10), (9, 10))` | (row, column) of the first and the second object |
    | `observation` | `"planes"` | `"planes"`, `"rgb"` or `"state"` |
    | `wrong_order` | `"ignore"` | what reaching the second object first does: `"ignore"`, `"remove"`, `"terminate"` |
    | `max_episode_steps` | `40` | the time limit |
    | `screen_size` | `600` | height of the picture in pixels |

    In a `layout`, `#` is a wall, a space or `.` a free cell, `S` a cell where episodes start, `1` and `2` the objects.
    With `wrong_order="remove"` the second object vanishes without reward when it is reached too early.

    `CollectObjectsOpposite-v0` puts the objects into opposite rooms, (2, 10) and (10, 2): much harder to explore.
    `CollectObjectsSmall-v0` is a 9x9 map with the objects at (2, 6) and (6, 2), for quick work.

    ## Version History

    - v0: first version
    """

    dynamics: CollectObjects

    def __init__(self, *, render_mode: str | None = None, screen_size: int = 600, **options: Any) -> None:
        """
        Args:
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of the picture in pixels.
            options: the fields of `CollectObjects`.
        """
        world = CollectObjects(**options)
        super().__init__(world, CollectObjectsView(world), render_mode, screen_size)

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Arrow keys and WASD; give `gymnasium.utils.play.play` `wait_on_player=True`, as no action stays in place."""
        import pygame

        arrows = (pygame.K_UP, pygame.K_DOWN, pygame.K_LEFT, pygame.K_RIGHT)
        return {(key,): action % 4 for action, key in enumerate((*arrows, *map(ord, "wsad")))}


@final
class CollectObjectsVectorEnv(DynamicsVectorEnv[CollectObjectsState]):
    """Many copies of `CollectObjectsEnv` as one batch; what `gymnasium.make_vec("CollectObjects-v0")` returns."""

    dynamics: CollectObjects

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 40,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        screen_size: int = 600,
        **options: Any,
    ) -> None:
        """
        Args:
            num_envs: the number of copies ≥ 1.
            max_episode_steps: the time limit, `None` for none.
            autoreset_mode: `NEXT_STEP`, `SAME_STEP` or `DISABLED`.
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of each picture in pixels.
            options: the fields of `CollectObjects`.
        """
        world = CollectObjects(**options)
        view = CollectObjectsView(world)
        super().__init__(world, view, num_envs, max_episode_steps, autoreset_mode, render_mode, screen_size)
