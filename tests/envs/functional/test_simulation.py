"""Simulated steps against real steps, in NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from dgvf_envs.functional.random_streams import UniformStreams
from dgvf_envs.functional.simulation import SimulatedRollout, simulate_rollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from tests.helpers import SHORT_LIMITS, VARIANTS, assert_same, each_variant, flat, own_vector_env

N, T = 6, 8


def environment(env_id: str, options: dict[str, Any], seed: int = 3) -> Any:
    limit = {"max_episode_steps": SHORT_LIMITS[env_id] // 3}
    env = own_vector_env(env_id, N, AutoresetMode.SAME_STEP, **{**limit, **options})
    env.reset(seed=seed)
    return env


def simulated(env: DynamicsVectorEnv, actions: np.ndarray, xp: Any = np) -> SimulatedRollout:
    world = env.dynamics.on(xp, dtype=xp.float64)

    def array(value: np.ndarray) -> Any:
        return xp.asarray(value.copy())

    state, *rest = env.simulation_inputs(len(actions))
    state = type(state)(*map(array, state))
    planned = array(actions)
    return simulate_rollout(
        world, lambda _, t: planned[t], state, *map(array, rest), len(actions), env.max_episode_steps
    )


def numpy(rollout: SimulatedRollout) -> SimulatedRollout:
    states = type(rollout.states)(*map(np.asarray, rollout.states))
    return SimulatedRollout(*(states if part is rollout.states else np.asarray(part) for part in rollout))


def random_actions(env: Any, steps: int = T, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, env.single_action_space.n, (steps, N))


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@each_variant
def test_simulated_steps_are_those_that_the_environment_takes(env_id: str, options: dict[str, Any], xp: Any) -> None:
    env = environment(env_id, options)
    for chunk in range(6):
        actions = random_actions(env, seed=chunk)
        ahead = numpy(simulated(env, actions, xp))
        for t in range(T):
            observations, rewards, terminated, truncated, infos = env.step(actions[t])
            np.testing.assert_array_equal(ahead.observations[t], observations)
            np.testing.assert_allclose(ahead.rewards[t], rewards, rtol=1e-12)
            np.testing.assert_array_equal(ahead.terminated[t], terminated)
            np.testing.assert_array_equal(ahead.truncated[t], truncated)
            for i in np.flatnonzero(terminated | truncated):
                np.testing.assert_array_equal(ahead.final_observations[t, i], infos["final_obs"][i])
                assert ahead.success[t, i] == infos["final_info"]["is_success"][i]


def test_more_short_episodes_than_random_numbers_are_drawn_at_once() -> None:
    """All draws are of resets: their buffers are refilled in time."""
    env, twin = (environment("CollectObjectsSmall-v0", {"max_episode_steps": 1}) for _ in range(2))
    for chunk in range(1_100 // T):
        actions = random_actions(env, seed=chunk)
        env.take_steps(numpy(simulated(env, actions)))
        for action in actions:
            observations = twin.step(action)[0]
        np.testing.assert_array_equal(env.dynamics.observe(env.simulation_inputs(1)[0]), observations)


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
def test_steps_may_be_taken_all_at_once(name: str) -> None:
    env_id, options = VARIANTS[name]
    env, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(env)
    env.take_steps(numpy(simulated(env, actions)))
    for t in range(T):
        twin.step(actions[t])
    assert_same(env.get_state(), twin.get_state())
    for t in range(T):
        assert_same(flat(env.step(actions[t])), flat(twin.step(actions[t])), f"after them, step {t}")


def test_simulation_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        own_vector_env("PuddleWorld-v0", N, AutoresetMode.SAME_STEP).simulation_inputs(T)
    env = environment("CollectObjectsSmall-v0", {})
    ahead = numpy(simulated(env, random_actions(env)))
    drawn = own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.SAME_STEP, render_mode="rgb_array")
    for other in (own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.NEXT_STEP), drawn):
        assert not other.supports_simulation
        with pytest.raises(ValueError, match=r"take_steps\(\) needs"):
            other.take_steps(ahead)
    with pytest.raises(ValueError, match=r"count must be at most the buffer's length"):
        UniformStreams([np.random.default_rng(0)], max_draws=1).prefetch(1_000_000)
