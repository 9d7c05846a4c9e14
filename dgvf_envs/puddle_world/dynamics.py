"""The dynamics of PuddleWorld: states, transitions and rewards, as pure functions over a batch.

The literature has two kinds of puddles: sums of Gaussian densities (Degris, White & Sutton 2012) and capsules (Sutton
1996).
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple, final

import gymnasium as gym
import numpy as np

from dgvf_envs.functional.dynamics import Array, Dynamics, Transition

Start = tuple[float, float] | Literal["random"]
NoiseDistribution = Literal["uniform", "normal"]

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], dtype=np.float64)
"""`[5, 2]`: the direction (x, y) of each action: left, right, down, up, stay."""


def _finite(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _check_positive(**values: Any) -> None:
    for name, value in values.items():
        if not (_finite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def _check_not_negative(**values: Any) -> None:
    for name, value in values.items():
        if not (_finite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")


def _check_point(name: str, point: Any, anywhere: bool = False) -> None:
    """Raise a `ValueError` unless `point` is (x, y), in the unit square or anywhere."""
    try:
        x, y = point
    except (TypeError, ValueError):
        x = y = None
    if not (_finite(x) and _finite(y)):
        raise ValueError(f"{name} must be a point (x, y), got {point!r}")
    if not (anywhere or (0.0 <= x <= 1.0 and 0.0 <= y <= 1.0)):
        raise ValueError(f"{name} must lie in the square [0, 1] x [0, 1], got {point!r}")


@dataclass(frozen=True)
class Puddle(ABC):
    """One puddle. All puddles of an environment have the same class."""

    @staticmethod
    @abstractmethod
    def constants(puddles: Sequence[Any]) -> tuple:
        """The parameters of P puddles as a `NamedTuple` of float64 arrays, each `[P, 1]`."""

    @staticmethod
    @abstractmethod
    def penalty(xp: ModuleType, constants: Any, x: Array, y: Array) -> Array:
        """The total penalty at each position, which is subtracted from the reward.

        Args:
            xp: the array namespace.
            constants: the result of `constants`, in that namespace.
            x: `[B]`.
            y: `[B]`.

        Returns:
            `[B]`, ≥ 0.
        """


class GaussianConstants(NamedTuple):
    """Parameters of P Gaussian puddles; every field is `[P, 1]`."""

    x: Array
    y: Array
    x_precision: Array
    """1 / (2 σ_x²)"""
    y_precision: Array
    """1 / (2 σ_y²)"""
    peak: Array
    """scale / (2π σ_x σ_y): the penalty at the center."""


@final
@dataclass(frozen=True)
class GaussianPuddle(Puddle):
    """A puddle with penalty `scale · N(·; x, std_x) · N(·; y, std_y)`, N the normal density (Degris et al. 2012)."""

    x: float
    """x of the center, in [0, 1]."""
    y: float
    """y of the center, in [0, 1]."""
    std_x: float
    """Standard deviation σ_x along x, > 0."""
    std_y: float
    """Standard deviation σ_y along y, > 0."""
    scale: float = 2.0
    """Factor applied to the product of the two densities, ≥ 0."""

    def __post_init__(self) -> None:
        _check_point("(x, y)", (self.x, self.y))
        _check_positive(std_x=self.std_x, std_y=self.std_y)
        _check_not_negative(scale=self.scale)

    @staticmethod
    def constants(puddles: Sequence[GaussianPuddle]) -> GaussianConstants:
        columns = [(p.x, p.y, p.std_x, p.std_y, p.scale) for p in puddles]
        x, y, std_x, std_y, scale = np.array(columns, dtype=np.float64).reshape(-1, 5).T[..., None]
        peak = scale / (2.0 * math.pi * std_x * std_y)
        return GaussianConstants(x, y, 0.5 / std_x**2, 0.5 / std_y**2, peak)

    @staticmethod
    def penalty(xp: ModuleType, constants: GaussianConstants, x: Array, y: Array) -> Array:
        dx, dy = x - constants.x, y - constants.y  # [P, B]
        exponent = dx * dx * constants.x_precision + dy * dy * constants.y_precision
        return (constants.peak * xp.exp(-exponent)).sum(0)


class CapsuleConstants(NamedTuple):
    """Parameters of P capsules; every field is `[P, 1]`."""

    x: Array
    """x of the segment's start."""
    y: Array
    """y of the segment's start."""
    dx: Array
    """Extent of the segment along x, end minus start."""
    dy: Array
    """Extent of the segment along y, end minus start."""
    inverse_length: Array
    """1 / length², 0 for a disc."""
    radius: Array
    slope: Array


@final
@dataclass(frozen=True)
class CapsulePuddle(Puddle):
    """A line segment with a radius; the penalty is `slope` times the distance to the nearest edge (Sutton 1996).

    Where capsules overlap, the highest penalty applies.
    """

    start: tuple[float, float]
    """One end of the segment, (x, y)."""
    end: tuple[float, float]
    """The other end, (x, y)."""
    radius: float = 0.1
    """Distance from the segment to the edge, > 0."""
    slope: float = 400.0
    """Penalty per unit of distance to the edge, ≥ 0."""

    def __post_init__(self) -> None:
        _check_point("start", self.start, anywhere=True)
        _check_point("end", self.end, anywhere=True)
        _check_positive(radius=self.radius)
        _check_not_negative(slope=self.slope)

    @staticmethod
    def constants(puddles: Sequence[CapsulePuddle]) -> CapsuleConstants:
        columns = [(*p.start, p.end[0] - p.start[0], p.end[1] - p.start[1], p.radius, p.slope) for p in puddles]
        x, y, dx, dy, radius, slope = np.array(columns, dtype=np.float64).reshape(-1, 6).T[..., None]
        squared = dx**2 + dy**2
        some_length = squared >= np.finfo(np.float64).tiny  # smaller values have an inverse that may overflow
        inverse = np.divide(1.0, squared, out=np.zeros_like(squared), where=some_length)
        return CapsuleConstants(x, y, dx, dy, inverse, radius, slope)

    @staticmethod
    def penalty(xp: ModuleType, constants: CapsuleConstants, x: Array, y: Array) -> Array:
        c = constants
        along = (((x - c.x) * c.dx + (y - c.y) * c.dy) * c.inverse_length).clip(0.0, 1.0)  # [P, B]
        away_x, away_y = x - c.x - along * c.dx, y - c.y - along * c.dy
        depth = (c.radius - xp.sqrt(away_x * away_x + away_y * away_y)).clip(0.0, None)
        return xp.amax(c.slope * depth, 0)


DEGRIS_2012: tuple[GaussianPuddle, ...] = (
    GaussianPuddle(0.3, 0.6, 0.1, 0.03),
    GaussianPuddle(0.4, 0.5, 0.03, 0.1),
    GaussianPuddle(0.8, 0.9, 0.03, 0.1),
)
"""The three puddles of Degris, White & Sutton (2012)."""

SUTTON_1996: tuple[CapsulePuddle, ...] = (
    CapsulePuddle((0.1, 0.75), (0.45, 0.75)),
    CapsulePuddle((0.45, 0.4), (0.45, 0.8)),
)
"""The two puddles of Sutton (1996)."""

PUDDLE_SETS: dict[str, tuple[Puddle, ...]] = {"degris-2012": DEGRIS_2012, "sutton-1996": SUTTON_1996, "none": ()}
"""The named sets of puddles."""


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
        puddles = PUDDLE_SETS[self.puddles] if isinstance(self.puddles, str) else tuple(self.puddles)
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
        _check_positive(**{name: getattr(self, name) for name in ("goal_threshold", "thrust", "reward_scale")})
        _check_not_negative(noise=self.noise)
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
        elif not isinstance(self.puddles, Sequence):
            raise ValueError(f"puddles must be a list or tuple of puddles or a set's name, got {self.puddles!r}")
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
