"""Steps of many copies of a world, computed ahead together with the actions.

An agent that collects experience goes back and forth between its network and the environment. Where the environment is
a world of this package, `foresee` takes all those steps as one pure function, which `torch.compile` makes one piece of
code of; `DynamicsVectorEnv.expect` then lets the environment return what was foreseen, step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dgvf_envs.functional.dynamics import Array, Dynamics, State, Transition, select


class Foresight(NamedTuple):
    """T steps of N copies, whose episodes begin anew within the step that ends them."""

    actions: Array
    """`[T, N]` integer."""
    states: Any
    """The states after each step, those of new episodes where one ended; every field `[T, N]`."""
    elapsed: Array
    """`[T, N]` integer: steps into the episode after each step, 0 where a new one began."""
    draws: Array
    """`[T, N]` integer: how many uniform numbers each copy consumed."""
    observations: Array
    """`[T, N, ...]`: of `states`."""
    last_observations: Array
    """`[T, N, ...]`: the same, but the ended episode's last one where one ended."""
    rewards: Array
    """`[T, N]`: R_{t+1}."""
    terminated: Array
    """`[T, N]` boolean."""
    truncated: Array
    """`[T, N]` boolean: the time limit was reached, whether or not the episode terminated too."""
    success: Array
    """`[T, N]` boolean."""


def foresee(
    world: Dynamics[State],
    act: Callable[[Array, int], Array],
    state: State,
    elapsed: Array,
    numbers: Array,
    cursor: Array,
    steps: int,
    max_episode_steps: int | None,
) -> Foresight:
    """Take `steps` steps in every copy.

    Args:
        world: the dynamics, in the namespace of all these arrays.
        act: actions `[N]` for observations `[N, ...]` at step t.
        state: where the copies are, fields `[N]`.
        elapsed: `[N]` integer: steps into their episodes.
        numbers: `[N, M]`: uniform numbers of every copy's stream.
        cursor: `[N]` integer: which comes next, with `steps * (step_draws + reset_draws)` there from it on.
        steps: T ≥ 1.
        max_episode_steps: the time limit; `None` for none.
    """
    xp = world.xp
    taken = []
    for t in range(steps):
        actions = act(world.observe(state), t)
        arrived: Transition = world.step(state, actions, _next(numbers, cursor, world.step_draws, xp))
        elapsed = elapsed + 1
        truncated = elapsed >= max_episode_steps if max_episode_steps else elapsed < 0
        ended = arrived.terminated | truncated
        fresh = world.reset(_next(numbers, cursor + world.step_draws, world.reset_draws, xp))
        state = select(xp, ended, fresh, arrived.state)
        draws = world.step_draws + world.reset_draws * ended
        elapsed, cursor = xp.where(ended, 0, elapsed), cursor + draws
        now, last = world.observe(state), world.observe(arrived.state)
        outcome = (arrived.reward, arrived.terminated, truncated, arrived.success)
        taken.append((actions, *state, elapsed, draws, now, last, *outcome))
    actions, *fields, elapsed, draws, now, last, rewards, terminated, truncated, success = map(
        xp.stack, zip(*taken, strict=True)
    )
    states = type(state)(*fields)
    return Foresight(actions, states, elapsed, draws, now, last, rewards, terminated, truncated, success)


def _next(numbers: Array, cursor: Array, count: int, xp: Any) -> Array:
    """`[N, count]`: of every row of `numbers` those from its `cursor` on."""
    if count == 0:
        return numbers[:, :0]
    row = (cursor * 0 + 1).cumsum(0) - 1  # arange, where the arrays live
    return xp.stack([numbers[row, cursor + k] for k in range(count)], 1)
