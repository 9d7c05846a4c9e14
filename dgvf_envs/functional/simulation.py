"""Simulated rollouts: several steps of acting and stepping as one pure function.

While collecting experience, an agent alternates between its network and the environment. `simulate_rollout` takes
several of these steps at once, so that a compiler can fuse them; `DynamicsVectorEnv.take_steps` takes their outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dgvf_envs.functional.dynamics import Array, Dynamics, State, Transition, select


class SimulatedRollout(NamedTuple):
    """T steps of N environments with autoreset mode `SAME_STEP`."""

    actions: Array
    """`[T, N]` integer."""
    states: Any
    """The states after each step and its autoreset; every field is `[T, N]`."""
    elapsed_steps: Array
    """`[T, N]` integer: steps since the episode began, 0 after an autoreset."""
    draws: Array
    """`[T, N]` integer: the number of uniform draws consumed."""
    observations: Array
    """`[T, N, ...]`: observations of `states`."""
    final_observations: Array
    """`[T, N, ...]`: observations before the autoreset; equal to `observations` where no episode ended."""
    rewards: Array
    """`[T, N]`: R_{t+1}."""
    terminated: Array
    """`[T, N]` boolean."""
    truncated: Array
    """`[T, N]` boolean: the time limit was reached, whether or not the episode also terminated."""
    success: Array
    """`[T, N]` boolean."""

    def steps(self) -> list[SimulatedRollout]:
        """The T steps, without the time axis; views."""
        kind = type(self.states)
        states = [kind(*fields) for fields in zip(*self.states, strict=True)]
        parts = zip(self.actions, states, *self[2:], strict=True)
        return [SimulatedRollout(*part) for part in parts]


def simulate_rollout(
    dynamics: Dynamics[State],
    act: Callable[[Array, int], Array],
    state: State,
    elapsed_steps: Array,
    uniforms: Array,
    cursor: Array,
    steps: int,
    max_episode_steps: int | None,
) -> SimulatedRollout:
    """Act and step in N environments.

    Args:
        dynamics: the dynamics, in the namespace of the arrays.
        act: returns the actions `[N]` for observations `[N, ...]` at step t.
        state: the initial state; every field is `[N]`.
        elapsed_steps: `[N]` integer: steps since the episodes began.
        uniforms: `[N, M]`: the uniform draws of each environment.
        cursor: `[N]` integer: index of the next draw; `steps * (step_draws + reset_draws)` draws must be left.
        steps: T ≥ 1.
        max_episode_steps: the time limit; `None` for no limit.
    """
    xp = dynamics.xp
    trajectory = []
    for t in range(steps):
        actions = act(dynamics.observe(state), t)
        after: Transition = dynamics.step(state, actions, _draws(uniforms, cursor, dynamics.step_draws, xp))
        elapsed_steps = elapsed_steps + 1
        truncated = elapsed_steps >= max_episode_steps if max_episode_steps else elapsed_steps < 0
        done = after.terminated | truncated
        initial = dynamics.reset(_draws(uniforms, cursor + dynamics.step_draws, dynamics.reset_draws, xp))
        state = select(xp, done, initial, after.state)
        draws = dynamics.step_draws + dynamics.reset_draws * done
        elapsed_steps, cursor = xp.where(done, 0, elapsed_steps), cursor + draws
        observations, final_observations = dynamics.observe(state), dynamics.observe(after.state)
        outcome = (after.reward, after.terminated, truncated, after.success)
        trajectory.append((actions, *state, elapsed_steps, draws, observations, final_observations, *outcome))
    actions, *stacked = map(xp.stack, zip(*trajectory, strict=True))
    states = type(state)(*stacked[: len(state)])
    return SimulatedRollout(actions, states, *stacked[len(state) :])


def _draws(uniforms: Array, cursor: Array, count: int, xp: Any) -> Array:
    """`[N, count]`: the draws of each row from its `cursor` on."""
    if count == 0:
        return uniforms[:, :0]
    row = np.arange(len(cursor)) if xp is np else xp.arange(len(cursor), device=cursor.device)
    return xp.stack([uniforms[row, cursor + k] for k in range(count)], 1)
