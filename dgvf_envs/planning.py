"""What can be reached in the worlds: exact returns in Collect-Objects, value iteration in PuddleWorld.

These are the reference numbers of the documentation, and planners that a user may compare an agent with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np

from dgvf_envs.collect_objects.dynamics import CollectObjects
from dgvf_envs.puddle_world.dynamics import PuddleWorld, PuddleWorldState

Policy = Literal["random", "optimal"]


class TransitionTable(NamedTuple):
    """A deterministic finite world, S states and A actions."""

    next_state: np.ndarray
    """`[S, A]` integer."""
    reward: np.ndarray
    """`[S, A]`."""
    terminated: np.ndarray
    """`[S, A]` boolean."""
    start: np.ndarray
    """`[S]`: the probability that an episode starts in each state."""


def transition_table(world: CollectObjects) -> TransitionTable:
    """Every transition of a Collect-Objects world, by `CollectObjects.state_index`."""
    states = world.states()
    count, actions = len(states.agent), int(world.action_space.n)
    outcomes = [world.step(states, np.full(count, a), np.empty((count, 0))) for a in range(actions)]
    starts = world.state_index(
        world.reset((np.arange(len(world.constants.starts)) + 0.5)[:, None] / len(world.constants.starts))
    )
    start = np.bincount(starts, minlength=count) / len(starts)
    return TransitionTable(
        np.stack([world.state_index(o.state) for o in outcomes], axis=1),
        np.stack([o.reward for o in outcomes], axis=1),
        np.stack([o.terminated for o in outcomes], axis=1),
        start,
    )


def expected_return(world: CollectObjects, policy: Policy, horizon: int = 40, discount: float = 1.0) -> float:
    """The exact expected return from the start distribution, by backward induction over the time limit.

    Args:
        world: the world.
        policy: `"random"`, uniform over the actions, or `"optimal"`.
        horizon: the time limit in steps ≥ 1.
        discount: factor per step in [0, 1].

    Raises:
        ValueError: `policy` is neither.
    """
    if policy not in ("random", "optimal"):
        raise ValueError(f"policy must be 'random' or 'optimal', got {policy!r}")
    table = transition_table(world)
    over_actions = np.mean if policy == "random" else np.max
    values = np.zeros(len(table.start))
    for _ in range(horizon):
        values = over_actions(table.reward + discount * ~table.terminated * values[table.next_state], axis=1)
    return float(table.start @ values)


@final
@dataclass(frozen=True)
class PuddleWorldPlan:
    """State values of PuddleWorld on a grid, and the policy that is greedy in them."""

    world: PuddleWorld
    values: np.ndarray
    """`[G, G]`: undiscounted optimal values; first axis x, second y, both from 0 to 1."""

    def action_values(self, state: PuddleWorldState) -> np.ndarray:
        """`[B, A]`: expected reward plus value after each action, by quadrature over the noise."""
        count = int(self.world.action_space.n)
        return np.stack([_backup(self.world, self.values, state, a) for a in range(count)], axis=1)

    def act(self, state: PuddleWorldState) -> np.ndarray:
        """`[B]`: the greedy actions."""
        return self.action_values(state).argmax(axis=1)


def plan_puddle_world(world: PuddleWorld, resolution: int = 101, tolerance: float = 1e-3) -> PuddleWorldPlan:
    """Value iteration on a `resolution`² grid with bilinear interpolation; undiscounted.

    Args:
        world: the world, with uniform noise.
        resolution: grid points per axis ≥ 2.
        tolerance: iteration stops when no value changes by more than this.

    Raises:
        ValueError: the world's noise is not uniform.
    """
    if world.noise_distribution != "uniform":
        raise ValueError(f"noise_distribution must be 'uniform', got {world.noise_distribution!r}")
    axis = np.linspace(0.0, 1.0, resolution)
    grid = PuddleWorldState(*(points.ravel() for points in np.meshgrid(axis, axis, indexing="ij")))
    backups = [_Backup.of(world, grid, action, resolution) for action in range(int(world.action_space.n))]
    values = np.zeros(resolution * resolution)
    while True:
        new = np.max([backup(values) for backup in backups], axis=0)
        if np.abs(new - values).max() < tolerance:
            return PuddleWorldPlan(world, new.reshape(resolution, resolution))
        values = new


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True)
class _Backup:
    """One action's expected update for B states: `reward + Σ_k weights_k · values[corners_k]`."""

    reward: np.ndarray
    """`[B]`"""
    corners: np.ndarray
    """`[K, B]`: grid points, flat."""
    weights: np.ndarray
    """`[K, B]`: probability times interpolation weight, 0 where the episode ends."""

    @classmethod
    def of(cls, world: PuddleWorld, state: PuddleWorldState, action: int, resolution: int) -> _Backup:
        reward, corners, weights = 0.0, [], []
        for i, u in enumerate(0.5 * (_NODES + 1.0)):
            for j, v in enumerate(0.5 * (_NODES + 1.0)):
                probability = 0.25 * _WEIGHTS[i] * _WEIGHTS[j]
                draws = np.broadcast_to(np.array([u, v]), (len(state.x), 2))
                after = world.step(state, np.full(len(state.x), action), draws)
                reward = reward + probability * after.reward
                for corner, weight in _bilinear(after.state, resolution):
                    corners.append(corner)
                    weights.append(probability * weight * ~after.terminated)
        return cls(np.asarray(reward), np.stack(corners), np.stack(weights))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.reward + (self.weights * values[self.corners]).sum(axis=0)


def _backup(world: PuddleWorld, values: np.ndarray, state: PuddleWorldState, action: int) -> np.ndarray:
    return _Backup.of(world, state, action, len(values))(values.ravel())


def _bilinear(state: PuddleWorldState, resolution: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The four grid points around each position, flat, with their weights."""
    x, y = state.x * (resolution - 1), state.y * (resolution - 1)
    left, low = np.minimum(x.astype(np.int64), resolution - 2), np.minimum(y.astype(np.int64), resolution - 2)
    dx, dy = x - left, y - low
    corner = left * resolution + low
    return [
        (corner, (1 - dx) * (1 - dy)),
        (corner + resolution, dx * (1 - dy)),
        (corner + 1, (1 - dx) * dy),
        (corner + resolution + 1, dx * dy),
    ]


def mean_return(plan: PuddleWorldPlan, episodes: int, seed: int, horizon: int = 5000) -> tuple[float, float]:
    """Mean undiscounted return of the plan over simulated episodes, and its standard error."""
    world, rng = plan.world, np.random.default_rng(seed)
    state = world.reset(rng.random((episodes, world.reset_draws)))
    returns, running = np.zeros(episodes), np.ones(episodes, dtype=bool)
    for _ in range(horizon):
        after = world.step(state, plan.act(state), rng.random((episodes, world.step_draws)))
        returns += after.reward * running
        running &= ~after.terminated
        state = after.state
        if not running.any():
            break
    return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(episodes))
