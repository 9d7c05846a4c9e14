"""The dynamics of PuddleWorld: states, transitions and rewards, as pure functions over a batch."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

import gymnasium as gym
import numpy as np

from dgvf_envs.functional.dynamics import Array, Dynamics, Transition
from dgvf_envs.puddle_world.puddles import PUDDLE_SETS, GaussianPuddle, Puddle

Start = tuple[float, float] | Literal["random"]
NoiseDistribution = Literal["uniform", "normal"]

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], dtype=np.float64)
"""`[5, 2]`: the direction (x, y) of each action: left, right, down, up, stay."""


class PuddleWorldState(NamedTuple):
    """The positions of B agents."""

    x: Array
    """`[B]` in [0, 1]."""
    y: Array
    """`[B]` in [0, 1]."""


class PuddleWorldConstants(NamedTuple):
    """The arrays that the dynamics use; A actions."""

    move_x: Array
    """`[A]`: mean displacement of each action along x."""
    move_y: Array
    """`[A]`: mean displacement of each action along y."""
    puddles: tuple
    """The parameters of the puddles, as `puddle_kind.constants` returns them."""


@final
@dataclass(frozen=True)
class PuddleWorld(Dynamics[PuddleWorldState]):
    """The dynamics of PuddleWorld (Degris, White & Sutton 2012).

    Raises:
        ValueError: an argument is out of range; the message names it, its value and the allowed values.
    """

    start: Start = (0.2, 0.4)
    """The start of an episode: a point (x, y) outside the goal region, or `"random"`: uniform over the square."""
    noise: float = 0.025
    """Scale of the noise that is added to both coordinates at every step, ≥ 0."""
    puddles: Sequence[Puddle] | str = "degris-2012"
    """The puddles, all of the same class, or the name of a set in `PUDDLE_SETS`."""
    goal: tuple[float, float] = (1.0, 1.0)
    """The goal (x, y), a point in the square."""
    goal_threshold: float = 0.1
    """The episode terminates when the L1 distance to the goal is below this value, > 0."""
    thrust: float = 0.05
    """Mean displacement of a move, > 0."""
    reward_scale: float = 1.0
    """Factor applied to every reward, > 0."""
    noise_distribution: NoiseDistribution = "uniform"
    """`"uniform"` on [-noise, noise], or `"normal"` with standard deviation `noise`."""
    stay: bool = True
    """Whether there is a fifth action, which stays in place."""
    puddle_kind: type[Puddle] = field(init=False, repr=False, compare=False)
    """The class of the puddles."""

    step_draws = 2

    def __post_init__(self) -> None:
        self._check()
        puddles = tuple(PUDDLE_SETS[self.puddles] if isinstance(self.puddles, str) else self.puddles)
        kind: type[Puddle] = type(puddles[0]) if puddles else GaussianPuddle
        move = self.thrust * MOVES[: 5 if self.stay else 4]
        derived = {
            "puddle_kind": kind,
            "constants": PuddleWorldConstants(
                np.ascontiguousarray(move[:, 0]), np.ascontiguousarray(move[:, 1]), kind.constants(puddles)
            ),
            "reset_draws": 2 if isinstance(self.start, str) else 0,
            "observation_space": gym.spaces.Box(0.0, 1.0, (2,), np.float32),
            "action_space": gym.spaces.Discrete(len(move)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        for name in ("goal_threshold", "thrust", "reward_scale"):
            if not (_finite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)!r}")
        if not (_finite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise must be a finite number >= 0, got {self.noise!r}")
        if self.noise_distribution not in ("uniform", "normal"):
            raise ValueError(f"noise_distribution must be 'uniform' or 'normal', got {self.noise_distribution!r}")
        _check_point("goal", self.goal)
        self._check_start()
        self._check_puddles()

    def _check_start(self) -> None:
        if isinstance(self.start, str):
            if self.start != "random":
                raise ValueError(f"start must be a point (x, y) or 'random', got {self.start!r}")
            return
        _check_point("start", self.start)
        if sum(abs(g - s) for g, s in zip(self.goal, self.start, strict=True)) < self.goal_threshold:
            raise ValueError(f"start must lie outside the goal region around {self.goal!r}, got {self.start!r}")

    def _check_puddles(self) -> None:
        if isinstance(self.puddles, str):
            if self.puddles not in PUDDLE_SETS:
                raise ValueError(f"puddles must be puddles or one of {sorted(PUDDLE_SETS)}, got {self.puddles!r}")
        elif not all(isinstance(puddle, Puddle) for puddle in self.puddles):
            raise ValueError(f"puddles must be GaussianPuddle or CapsulePuddle instances, got {self.puddles!r}")
        elif len({type(puddle) for puddle in self.puddles}) > 1:
            raise ValueError(f"puddles must all be of the same class, got {self.puddles!r}")

    def reset(self, uniforms: Array) -> PuddleWorldState:
        if isinstance(self.start, str):  # "random"
            return PuddleWorldState(uniforms[:, 0] + 0.0, uniforms[:, 1] + 0.0)  # copies, in either namespace
        one = self.constants.move_x[:1]  # carries dtype and device
        origin = (one * 0.0).repeat(len(uniforms))
        return PuddleWorldState(origin + self.start[0], origin + self.start[1])

    def step(self, state: PuddleWorldState, action: Array, uniforms: Array) -> Transition:
        noise_x, noise_y = self._noise(uniforms)
        x = (state.x + self.constants.move_x[action] + noise_x).clip(0.0, 1.0)
        y = (state.y + self.constants.move_y[action] + noise_y).clip(0.0, 1.0)
        terminated = self.in_goal(x, y)
        return Transition(PuddleWorldState(x, y), self.reward(x, y), terminated, terminated)

    def observe(self, state: PuddleWorldState) -> Array:
        stacked = self.xp.stack((state.x, state.y), axis=-1)
        return stacked.astype(np.float32) if self.xp is np else stacked.float()

    def reward(self, x: Array, y: Array) -> Array:
        """`[B]`: the reward for arriving at each position: `reward_scale` times (-1 minus the puddles' penalty)."""
        return (-1.0 - self.puddle_kind.penalty(self.xp, self.constants.puddles, x, y)) * self.reward_scale

    def in_goal(self, x: Array, y: Array) -> Array:
        """`[B]` boolean: whether the episode terminates at each position."""
        return abs(self.goal[0] - x) + abs(self.goal[1] - y) < self.goal_threshold

    def _noise(self, uniforms: Array) -> tuple[Array, Array]:
        u, v = uniforms[:, 0], uniforms[:, 1]
        if self.noise_distribution == "uniform":
            return (2.0 * self.noise) * (u - 0.5), (2.0 * self.noise) * (v - 0.5)
        # Box-Muller: two independent normals from two uniforms; 1 - u keeps the logarithm's argument above 0
        radius, angle = self.noise * self.xp.sqrt(-2.0 * self.xp.log(1.0 - u)), (2.0 * math.pi) * v
        return radius * self.xp.cos(angle), radius * self.xp.sin(angle)


def _finite(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _check_point(name: str, point: Any) -> None:
    """Raise a `ValueError` unless `point` is (x, y) in the unit square."""
    try:
        x, y = (float(coordinate) for coordinate in point)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a point (x, y), got {point!r}") from None
    if not (0.0 <= x <= 1.0 and 0.0 <= y <= 1.0):
        raise ValueError(f"{name} must lie in the square [0, 1] x [0, 1], got {point!r}")
