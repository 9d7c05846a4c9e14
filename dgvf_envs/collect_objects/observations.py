"""The observation of every state of Collect-Objects, as a lookup table.

With C free cells there are 4 C states: agent in cell c, first object present, second object present, at index
c * 4 + first * 2 + second.
"""

from __future__ import annotations

from typing import Literal

import gymnasium as gym
import numpy as np

from dgvf_envs.collect_objects.grid_map import GridMap
from dgvf_envs.rendering.canvas import AGENT, PAPER, Color

AGENT_COLOR: Color = AGENT
FIRST_COLOR: Color = (240, 178, 50)
SECOND_COLOR: Color = (122, 84, 190)
FLOOR_COLOR: Color = PAPER
WALL_COLOR: Color = (70, 78, 96)


Observation = Literal["planes", "rgb", "state"]
"""The kinds of observation."""


def observation_table(grid: GridMap, first: int, second: int, kind: Observation) -> tuple[np.ndarray, gym.Space]:
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
    picture = np.where(grid.free[..., None], FLOOR_COLOR, WALL_COLOR).astype(np.uint8)
    pictures = np.tile(picture, (len(planes), 1, 1, 1))
    for plane, color in ((1, FIRST_COLOR), (2, SECOND_COLOR), (0, AGENT_COLOR)):  # the agent is on top
        pictures[planes[:, plane]] = color
    return pictures, gym.spaces.Box(0, 255, pictures.shape[1:], np.uint8)


def _state_table(grid: GridMap) -> tuple[np.ndarray, gym.Space]:
    index = np.arange(4 * len(grid.cells))
    columns = (*grid.cells[index // 4].T, index // 2 % 2, index % 2)
    return np.stack(columns, axis=1), gym.spaces.MultiDiscrete([*grid.shape, 2, 2])
