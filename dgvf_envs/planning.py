"""Planning: exact returns in Collect-Objects, value iteration in PuddleWorld.

The documentation's reference returns are computed here; agents can be compared with these planners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
from scipy.sparse import csr_array

from dgvf_envs.argument_checks import check_count
from dgvf_envs.collect_objects.dynamics import CollectObjects
from dgvf_envs.puddle_world.dynamics import PuddleWorld, PuddleWorldState

Policy = Literal["random", "optimal"]


class TransitionTable(NamedTuple):
    """A finite, deterministic Markov decision process with S states and A actions."""

    next_state: np.ndarray
    """`[S, A]` integer."""
    reward: np.ndarray
    """`[S, A]`."""
    terminated: np.ndarray
    """`[S, A]` boolean."""
    start: np.ndarray
    """`[S]`: the probability that an episode starts in each state."""


def transition_table(world: CollectObjects) -> TransitionTable:
    """All transitions of Collect-Objects; states are in the order of `CollectObjects.state_index`."""
    states = world.states()
    count, actions = len(states.agent), int(world.action_space.n)
    outcomes = [world.step(states, np.full(count, a), np.empty((count, 0))) for a in range(actions)]
    each_start = (np.arange(len(world.constants.starts)) + 0.5) / len(world.constants.starts)
    starts = world.state_index(world.reset(each_start[:, None]))
    return TransitionTable(
        np.stack([world.state_index(o.state) for o in outcomes], axis=1),
        np.stack([o.reward for o in outcomes], axis=1),
        np.stack([o.terminated for o in outcomes], axis=1),
        np.bincount(starts, minlength=count) / len(starts),
    )


def expected_return(world: CollectObjects, policy: Policy, horizon: int = 40, discount: float = 1.0) -> float:
    """The exact expected return from the start distribution, by backward induction over the time limit.

    Args:
        world: the dynamics.
        policy: `"random"` (uniform over the actions) or `"optimal"`.
        horizon: the time limit in steps, ≥ 1.
        discount: discount per step, in [0, 1].

    Raises:
        ValueError: an argument is out of its range.
    """
    check_count("horizon", horizon)
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount must lie in [0, 1], got {discount!r}")
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
    """State values of PuddleWorld on a grid, and the greedy policy."""

    world: PuddleWorld
    """The dynamics."""
    values: np.ndarray
    """`[G, G]`: undiscounted optimal values; x along the first axis, y along the second, both from 0 to 1."""

    def action_values(self, state: PuddleWorldState) -> np.ndarray:
        """`[B, A]`: the expected reward plus the value of the next state, for every action."""
        return _Backup.of(self.world, state, len(self.values)).action_values(self.values.ravel())

    def act(self, state: PuddleWorldState) -> np.ndarray:
        """`[B]`: the greedy actions."""
        return self.action_values(state).argmax(axis=1)


def plan_puddle_world(world: PuddleWorld, resolution: int = 101, tolerance: float = 1e-3) -> PuddleWorldPlan:
    """Undiscounted value iteration on a `resolution` x `resolution` grid with bilinear interpolation.

    Args:
        world: the dynamics; the noise must be uniform.
        resolution: grid points per axis G ≥ 2.
        tolerance: value iteration stops when no value changes by more than this.

    Raises:
        ValueError: the noise is not uniform, an argument is out of its range, or values do not converge.
    """
    check_count("resolution", resolution)
    if resolution < 2:
        raise ValueError(f"resolution must be >= 2, got {resolution!r}")
    if world.noise_distribution != "uniform":
        raise ValueError(f"noise_distribution must be 'uniform', got {world.noise_distribution!r}")
    axis = np.linspace(0.0, 1.0, resolution)
    grid = PuddleWorldState(*(points.ravel() for points in np.meshgrid(axis, axis, indexing="ij")))
    backup = _Backup.of(world, grid, resolution)
    values = np.zeros(resolution * resolution)
    for _ in range(_MAX_SWEEPS):
        new = backup.action_values(values).max(axis=1)
        if np.abs(new - values).max() < tolerance:
            return PuddleWorldPlan(world, new.reshape(resolution, resolution))
        values = new
    raise ValueError(
        f"tolerance must be reached within {_MAX_SWEEPS} sweeps, got {tolerance!r}: it is too small, or the goal "
        f"cannot be reached with thrust {world.thrust!r} and noise {world.noise!r}"
    )


_MAX_SWEEPS = 5_000
"""Of value iteration."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
_NOISE_DRAWS = np.stack(np.meshgrid(_NODES, _NODES, indexing="ij"), axis=-1).reshape(-1, 2) / 2 + 0.5
"""`[K, 2]`: Gauss-Legendre nodes for the two uniform draws of a step."""
_NOISE_WEIGHTS = np.outer(_WEIGHTS, _WEIGHTS).ravel() / 4
"""`[K]`: the weights of the nodes; they sum to 1."""


@final
@dataclass(frozen=True)
class _Backup:
    """The expected outcome of every action in B states, linear in the values of the grid points."""

    reward: np.ndarray
    """`[B, A]`: expected rewards."""
    next_value: csr_array
    """`[K * B * A, G * G]`: interpolates the value of the next state, times the node's weight; 0 if terminal."""

    @classmethod
    def of(cls, world: PuddleWorld, state: PuddleWorldState, resolution: int) -> _Backup:
        """Integrate over the noise by quadrature and interpolate between grid points."""
        actions, nodes = int(world.action_space.n), len(_NOISE_WEIGHTS)
        pairs = len(state.x) * actions
        before = PuddleWorldState(*(np.tile(np.repeat(x, actions), nodes) for x in state))
        action = np.tile(np.arange(actions), nodes * len(state.x))
        outcome = world.step(before, action, np.repeat(_NOISE_DRAWS, pairs, axis=0))
        weights = np.repeat(_NOISE_WEIGHTS, pairs)
        reward = (weights * outcome.reward).reshape(nodes, -1, actions).sum(axis=0)
        return cls(reward, _bilinear(outcome.state, resolution, weights * ~outcome.terminated))

    def action_values(self, values: np.ndarray) -> np.ndarray:
        """`[B, A]`: the expected reward plus the value of the next state; `values` is `[G * G]`."""
        return self.reward + (self.next_value @ values).reshape(-1, *self.reward.shape).sum(axis=0)


def _bilinear(state: PuddleWorldState, resolution: int, scale: np.ndarray) -> csr_array:
    """`[B, G * G]`: maps values at the grid points to interpolated values at the positions, times `scale` `[B]`."""
    x, y = state.x * (resolution - 1), state.y * (resolution - 1)
    left, low = np.minimum(x.astype(np.int32), resolution - 2), np.minimum(y.astype(np.int32), resolution - 2)
    dx, dy = x - left, y - low
    corner = left * resolution + low
    columns = np.stack([corner, corner + 1, corner + resolution, corner + resolution + 1], axis=1)
    weights = np.stack([(1 - dx) * (1 - dy), (1 - dx) * dy, dx * (1 - dy), dx * dy], axis=1) * scale[:, None]
    row_starts = np.arange(0, 4 * len(x) + 1, 4, dtype=np.int32)
    return csr_array((weights.ravel(), columns.ravel(), row_starts), shape=(len(x), resolution**2))


def mean_return(plan: PuddleWorldPlan, episodes: int, seed: int, horizon: int = 5000) -> tuple[float, float]:
    """The mean undiscounted return of a plan in simulated episodes, and its standard error."""
    check_count("episodes", episodes)
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
