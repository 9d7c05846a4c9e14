"""Simulated steps against real steps, in NumPy and torch, one by one and all at once."""

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
    env = own_vector_env(env_id, N, AutoresetMode.SAME_STEP, **limit, **options)
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


def test_simulation_needs_a_reset() -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        own_vector_env("PuddleWorld-v0", N, AutoresetMode.SAME_STEP).simulation_inputs(T)


def test_simulation_needs_same_step_autoreset_and_no_rendering() -> None:
    actions = np.zeros((1, N), np.int64)
    ahead = numpy(simulated(environment("CollectObjectsSmall-v0", {}), actions))
    env = own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.NEXT_STEP)
    assert not env.supports_simulation
    with pytest.raises(ValueError, match=r"take_steps\(\) needs autoreset_mode SAME_STEP"):
        env.take_steps(ahead)
    drawn = own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.SAME_STEP, render_mode="rgb_array")
    assert not drawn.supports_simulation
    with pytest.raises(ValueError, match="'rgb_array'"):
        drawn.take_steps(ahead)


def test_prefetching_more_than_the_buffer_is_refused() -> None:
    streams = UniformStreams([np.random.default_rng(0)], max_draws=1)
    with pytest.raises(ValueError, match=r"count must be at most the buffer's length \d+, got 1000000"):
        streams.prefetch(1_000_000)
