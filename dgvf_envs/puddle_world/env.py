"""PuddleWorld: a point walks over the unit square to a corner, around puddles that cost reward."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from dgvf_envs.functional.dynamics import Array, Dynamics, Transition
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.puddle_world.puddles import PUDDLE_SETS, GaussianPuddle, Puddle
from dgvf_envs.puddle_world.view import PuddleWorldView

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], dtype=np.float64)
"""`[5, 2]`: the direction (x, y) of each action: left, right, down, up, stay."""


class PuddleWorldState(NamedTuple):
    """Positions of B walkers."""

    x: Array
    """`[B]` in [0, 1]."""
    y: Array
    """`[B]` in [0, 1]."""


class PuddleWorldConstants(NamedTuple):
    """What the dynamics need as arrays."""

    move_x: Array
    """`[A]`: displacement of each action along x."""
    move_y: Array
    """`[A]`: displacement of each action along y."""
    puddles: tuple
    """The puddles' own constants."""


@final
@dataclass(frozen=True)
class PuddleWorld(Dynamics[PuddleWorldState]):
    """The dynamics of PuddleWorld (Degris, White & Sutton 2012).

    Raises:
        ValueError: an argument is out of its range; the message names it, its value and what is allowed.
    """

    start: tuple[float, float] | Literal["random"] = (0.2, 0.4)
    """Where an episode starts: a point (x, y) outside the goal, or `"random"`: uniform over the square."""
    noise: float = 0.025
    """Scale of the noise added to each axis on every step, ≥ 0."""
    puddles: Sequence[Puddle] | str = "degris-2012"
    """The puddles, all of one kind: records, or the name of a set in `PUDDLE_SETS`."""
    goal: tuple[float, float] = (1.0, 1.0)
    """The goal (x, y) in the square."""
    goal_threshold: float = 0.1
    """The episode ends at an L1 distance to the goal below this, > 0."""
    thrust: float = 0.05
    """Mean length of a move, > 0."""
    reward_scale: float = 1.0
    """Factor on every reward, > 0."""
    noise_distribution: Literal["uniform", "normal"] = "uniform"
    """`"uniform"` on [-noise, noise], or `"normal"` with standard deviation `noise`."""
    stay: bool = True
    """Whether the fifth action, staying in place, exists."""
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
        for name in ("goal_threshold", "thrust", "reward_scale", "noise"):
            value, zero = getattr(self, name), name == "noise"  # nothing else may be 0
            number = float(value) if isinstance(value, numbers.Real) else math.nan
            if not (math.isfinite(number) and (number > 0 or (zero and number == 0))):
                raise ValueError(f"{name} must be a finite number {'>=' if zero else '>'} 0, got {value!r}")
        if self.noise_distribution not in ("uniform", "normal"):
            raise ValueError(f"noise_distribution must be 'uniform' or 'normal', got {self.noise_distribution!r}")
        _check_point("goal", self.goal)
        if isinstance(self.start, str):
            if self.start != "random":
                raise ValueError(f"start must be a point (x, y) or 'random', got {self.start!r}")
        else:
            _check_point("start", self.start)
            if sum(abs(g - s) for g, s in zip(self.goal, self.start, strict=True)) < self.goal_threshold:
                raise ValueError(f"start must lie outside the goal {self.goal!r}, got {self.start!r}")
        if isinstance(self.puddles, str):
            if self.puddles not in PUDDLE_SETS:
                raise ValueError(f"puddles must be records or one of {sorted(PUDDLE_SETS)}, got {self.puddles!r}")
        elif not all(isinstance(puddle, Puddle) for puddle in self.puddles):
            raise ValueError(f"puddles must be GaussianPuddle or CapsulePuddle records, got {self.puddles!r}")
        elif len({type(puddle) for puddle in self.puddles}) > 1:
            raise ValueError(f"puddles must all be of one kind, got {self.puddles!r}")

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
        """The reward on arrival at each position, `[B]`: -1 less the puddles' cost, times `reward_scale`."""
        return (-1.0 - self.puddle_kind.penalty(self.xp, self.constants.puddles, x, y)) * self.reward_scale

    def in_goal(self, x: Array, y: Array) -> Array:
        """Whether each position ends the episode, `[B]` boolean."""
        return abs(self.goal[0] - x) + abs(self.goal[1] - y) < self.goal_threshold

    def _noise(self, uniforms: Array) -> tuple[Array, Array]:
        u, v = uniforms[:, 0], uniforms[:, 1]
        if self.noise_distribution == "uniform":
            return (2.0 * self.noise) * (u - 0.5), (2.0 * self.noise) * (v - 0.5)
        # Box-Muller: two independent normals from two uniforms; 1 - u keeps the logarithm's argument above 0
        radius, angle = self.noise * self.xp.sqrt(-2.0 * self.xp.log(1.0 - u)), (2.0 * math.pi) * v
        return radius * self.xp.cos(angle), radius * self.xp.sin(angle)


def _check_point(name: str, point: Any) -> None:
    """Raise a ValueError unless `point` is (x, y) in the unit square."""
    try:
        x, y = (float(coordinate) for coordinate in point)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a point (x, y), got {point!r}") from None
    if not (0.0 <= x <= 1.0 and 0.0 <= y <= 1.0):
        raise ValueError(f"{name} must lie in the square [0, 1] x [0, 1], got {point!r}")


@final
class PuddleWorldEnv(DynamicsEnv[PuddleWorldState]):
    """
    ## Description

    A point walks over the unit square to a goal in the corner. Puddles lie in the way: entering one is allowed and
    costs reward, so the short path is not the good one. The world is the one of Degris, White & Sutton, *Off-Policy
    Actor-Critic* (ICML 2012), used by Veeriah et al., *Discovery of Useful Questions as Auxiliary Tasks* (NeurIPS
    2019).

    ## Action Space

    `Discrete(5)`. Each action displaces the point by 0.05, and uniform noise in [-0.025, 0.025] is added to each axis,
    whatever the action.

    | Num | Action | Displacement (x, y) |
    |-----|--------|---------------------|
    | 0 | left | (-0.05, 0) |
    | 1 | right | (+0.05, 0) |
    | 2 | down | (0, -0.05) |
    | 3 | up | (0, +0.05) |
    | 4 | stay | (0, 0) |

    ## Observation Space

    `Box(0, 1, (2,), float32)`: the position (x, y). The position itself is kept in double precision and clipped to the
    square.

    ## Rewards

    On arrival at (x, y), the last step of an episode included:

    r = -1 - 2 · [N(x; .3, .1) N(y; .6, .03) + N(x; .4, .03) N(y; .5, .1) + N(x; .8, .03) N(y; .9, .1)]

    where N(·; m, s) is the normal *density* with mean m and standard deviation s. The lowest reward is about -135.1,
    near (0.392, 0.592).

    ## Starting State

    (0.2, 0.4), or uniform over the square with `start="random"`.

    ## Episode End

    - Termination: the L1 distance |1 - x| + |1 - y| to the goal is below 0.1.
    - Truncation: after 5000 steps (`max_episode_steps`).

    `info["is_success"]` is true on the step that reaches the goal.

    ## Arguments

    Given to `gymnasium.make` or `gymnasium.make_vec`:

    | Argument | Default | Meaning |
    |----------|---------|---------|
    | `start` | `(0.2, 0.4)` | a point outside the goal, or `"random"` |
    | `noise` | `0.025` | scale of the noise on each axis, ≥ 0 |
    | `noise_distribution` | `"uniform"` | `"uniform"` on [-noise, noise], or `"normal"`, deviation `noise` |
    | `puddles` | `"degris-2012"` | `"degris-2012"`, `"sutton-1996"`, `"none"`, or puddles of `dgvf_envs.puddle_world` |
    | `goal` | `(1.0, 1.0)` | a point of the square |
    | `goal_threshold` | `0.1` | the L1 distance that ends the episode, > 0 |
    | `thrust` | `0.05` | length of a move, > 0 |
    | `stay` | `True` | whether action 4 exists |
    | `reward_scale` | `1.0` | factor on every reward, > 0 |
    | `max_episode_steps` | `5000` | the time limit |
    | `screen_size` | `600` | height of the picture in pixels |

    `PuddleWorldSutton-v0` is the world of Sutton, *Generalization in Reinforcement Learning: Successful Examples Using
    Sparse Coarse Coding* (NeurIPS 1996): two capsule puddles that cost 400 times the distance to their nearest edge,
    four actions, normal noise of standard deviation 0.01, a random start, and otherwise the same.

    ## Version History

    - v0: first version
    """

    dynamics: PuddleWorld

    def __init__(self, *, render_mode: str | None = None, screen_size: int = 600, **options: Any) -> None:
        """
        Args:
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of the picture in pixels.
            options: the fields of `PuddleWorld`.
        """
        world = PuddleWorld(**options)
        super().__init__(world, PuddleWorldView(world), render_mode, screen_size)

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Arrow keys, WASD, and the space bar for staying; give `gymnasium.utils.play.play` `noop=4`."""
        return keys_to_action(self.dynamics.stay)


@final
class PuddleWorldVectorEnv(DynamicsVectorEnv[PuddleWorldState]):
    """Many copies of `PuddleWorldEnv` as one batch; what `gymnasium.make_vec("PuddleWorld-v0")` returns."""

    dynamics: PuddleWorld

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 5000,
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
            options: the fields of `PuddleWorld`.
        """
        world = PuddleWorld(**options)
        view = PuddleWorldView(world)
        super().__init__(world, view, num_envs, max_episode_steps, autoreset_mode, render_mode, screen_size)


def keys_to_action(stay: bool = True) -> dict[tuple[int, ...], int]:
    """Arrow keys and WASD for the four moves, and the space bar for staying."""
    import pygame

    keys: dict[tuple[int, ...], int] = {
        (pygame.K_LEFT,): 0,
        (ord("a"),): 0,
        (pygame.K_RIGHT,): 1,
        (ord("d"),): 1,
        (pygame.K_DOWN,): 2,
        (ord("s"),): 2,
        (pygame.K_UP,): 3,
        (ord("w"),): 3,
    }
    return keys | {(ord(" "),): 4} if stay else keys
