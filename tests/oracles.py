"""Slow, literal transcriptions of the two worlds in plain Python; the tests' truth. They use nothing of `dgvf_envs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

Cell = tuple[int, int]
Rewarder = Callable[[float, float], float]


def gaussian_penalty(x: float, y: float, mean_x: float, mean_y: float, std_x: float, std_y: float) -> float:
    """N(x; mean_x, std_x) · N(y; mean_y, std_y), N the normal density."""
    return NormalDist(mean_x, std_x).pdf(x) * NormalDist(mean_y, std_y).pdf(y)


def degris_reward(x: float, y: float) -> float:
    """-1 - 2·[N(x;.3,.1)N(y;.6,.03) + N(x;.4,.03)N(y;.5,.1) + N(x;.8,.03)N(y;.9,.1)]."""
    return -1 - 2 * (
        gaussian_penalty(x, y, 0.3, 0.6, 0.1, 0.03)
        + gaussian_penalty(x, y, 0.4, 0.5, 0.03, 0.1)
        + gaussian_penalty(x, y, 0.8, 0.9, 0.03, 0.1)
    )


def sutton_reward(x: float, y: float) -> float:
    """-1 - 400 · (depth below the nearest edge) in the deeper of the two capsules of 1996, radius 0.1."""
    distances = [
        segment_distance((x, y), (0.1, 0.75), (0.45, 0.75)),
        segment_distance((x, y), (0.45, 0.4), (0.45, 0.8)),
    ]
    return -1 - 400 * max(0.0, *(0.1 - distance for distance in distances))


def segment_distance(p: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
    """Distance from p to the segment ab: to the nearer end, or to the line where p projects between the ends."""
    ab, ap, bp = (b[0] - a[0], b[1] - a[1]), (p[0] - a[0], p[1] - a[1]), (p[0] - b[0], p[1] - b[1])
    if ab == (0.0, 0.0) or ab[0] * ap[0] + ab[1] * ap[1] <= 0:
        return math.hypot(*ap)
    if ab[0] * bp[0] + ab[1] * bp[1] >= 0:
        return math.hypot(*bp)
    return abs(ab[0] * ap[1] - ab[1] * ap[0]) / math.hypot(*ab)


def clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def puddle_noise(u: float, v: float, noise: float, distribution: str) -> tuple[float, float]:
    """Uniform on [-noise, noise], or Box & Muller's two normals of standard deviation `noise`."""
    if distribution == "uniform":
        return -noise + 2 * noise * u, -noise + 2 * noise * v
    radius = math.sqrt(-2 * math.log(1 - u))
    return noise * radius * math.cos(2 * math.pi * v), noise * radius * math.sin(2 * math.pi * v)


@dataclass(frozen=True)
class PuddleWalk:
    """PuddleWorld for one point."""

    reward: Rewarder = degris_reward
    goal: tuple[float, float] = (1.0, 1.0)
    goal_threshold: float = 0.1
    thrust: float = 0.05
    noise: float = 0.025
    noise_distribution: str = "uniform"
    reward_scale: float = 1.0

    def step(self, x: float, y: float, action: int, u: float, v: float) -> tuple[float, float, float, bool]:
        """New x and y, reward on arrival, and whether the goal is reached."""
        direction = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)][action]
        noise_x, noise_y = puddle_noise(u, v, self.noise, self.noise_distribution)
        x = clip(x + self.thrust * direction[0] + noise_x)
        y = clip(y + self.thrust * direction[1] + noise_y)
        return x, y, self.reward_scale * self.reward(x, y), self.goal_distance(x, y) < self.goal_threshold

    def goal_distance(self, x: float, y: float) -> float:
        return abs(self.goal[0] - x) + abs(self.goal[1] - y)


Room = tuple[Cell, bool, bool]
"""Where the agent is, and whether the first and the second object are still there."""

MOVES: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))


@dataclass(frozen=True)
class Rooms:
    """Collect-Objects for one agent on a map of text lines."""

    lines: Sequence[str]
    first: Cell
    second: Cell
    wrong_order: str = "ignore"

    def free(self, cell: Cell) -> bool:
        row, column = cell
        return 0 <= row < len(self.lines) and 0 <= column < len(self.lines[0]) and self.lines[row][column] != "#"

    def cells(self) -> list[Cell]:
        return [cell for cell in product(range(len(self.lines)), range(len(self.lines[0]))) if self.free(cell)]

    def starts(self) -> list[Room]:
        marked = [(row, column) for row, column in self.cells() if self.lines[row][column] == "S"]
        return [(cell, True, True) for cell in marked or self.cells() if cell not in (self.first, self.second)]

    def move(self, cell: Cell, action: int) -> Cell:
        target = (cell[0] + MOVES[action][0], cell[1] + MOVES[action][1])
        return target if self.free(target) else cell

    def step(self, state: Room, action: int) -> tuple[Room, float, bool, bool]:
        """The next state, the reward, whether the episode ends, and whether the task is solved."""
        cell, first, second = state
        cell = self.move(cell, action)
        if cell == self.first and first:
            first = False
            ended = self.wrong_order == "remove" and not second
            return (cell, first, second), 1.0, ended, False
        if cell == self.second and second:
            if not first:
                return (cell, first, False), 2.0, True, True
            if self.wrong_order == "remove":
                return (cell, first, False), 0.0, False, False
            return (cell, first, second), 0.0, self.wrong_order == "terminate", False
        nothing_left = self.wrong_order == "remove" and not first and not second
        return (cell, first, second), 0.0, nothing_left, False

    def states(self) -> Iterator[Room]:
        return product(self.cells(), (False, True), (False, True))

    def distances_from(self, cell: Cell) -> dict[Cell, int]:
        """Breadth-first search over single moves."""
        distances, reached = {cell: 0}, [cell]
        for here in reached:  # grows on the way
            for there in (self.move(here, action) for action in range(4)):
                if there not in distances:
                    distances[there] = distances[here] + 1
                    reached.append(there)
        return distances

    def solution_length(self, start: Cell) -> int:
        """Moves from `start` over the first object to the second; passing the second too early costs nothing."""
        return self.distances_from(start)[self.first] + self.distances_from(self.first)[self.second]
