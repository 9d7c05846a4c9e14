"""Simulated steps against real steps, in NumPy and torch, and environments with a lookahead cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.error import InvalidAction, ResetNeeded
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

    state, *rest = env.lookahead_inputs(len(actions))
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


# Some episodes of "collect-terminate" end at their time limit.
@pytest.mark.parametrize(
    "name", ["puddle-random-start", "PuddleWorld-v0", "CollectObjectsSmall-v0", "collect-terminate"]
)
def test_cached_steps_equal_computed_steps(name: str) -> None:
    env_id, options = VARIANTS[name]
    cached, twin = environment(env_id, options), environment(env_id, options)
    ended = 0
    for chunk in range(10):
        actions = random_actions(cached, seed=chunk)
        cached.set_lookahead(numpy(simulated(cached, actions)))
        for t in range(T):
            assert cached.has_lookahead
            result = flat(cached.step(actions[t]))
            assert_same(result, flat(twin.step(actions[t])), f"chunk {chunk}, step {t}")
            ended += int((result[2] | result[3]).sum())
            assert_same(
                cached.dynamics.observe(cached.lookahead_inputs(1)[0]), result[0]
            )  # its state belongs to this step
        assert not cached.has_lookahead
    assert ended > 0
    last = random_actions(cached, steps=1, seed=99)[0]
    assert_same(flat(cached.step(last)), flat(twin.step(last)), "after the cached steps")


@pytest.mark.parametrize("at_once", [True, False])
def test_more_short_episodes_than_random_numbers_are_drawn_at_once(at_once: bool) -> None:
    """All draws are of resets: their buffers are refilled in time."""
    cached, twin = (environment("CollectObjectsSmall-v0", {"max_episode_steps": 1}) for _ in range(2))
    for chunk in range(1_100 // T):
        actions = random_actions(cached, seed=chunk)
        (cached.take_steps if at_once else cached.set_lookahead)(numpy(simulated(cached, actions)))
        for action in actions:
            observations = twin.step(action)[0]
            if not at_once:
                cached.step(action)
        np.testing.assert_array_equal(cached.dynamics.observe(cached.lookahead_inputs(1)[0]), observations)


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
def test_other_actions_and_resets_clear_the_cache(name: str) -> None:
    env_id, options = VARIANTS[name]
    cached, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(cached)
    cached.set_lookahead(numpy(simulated(cached, actions)))
    other = np.concatenate([actions[:3], (actions[3:] + 1) % cached.single_action_space.n])
    for t in range(T):
        assert_same(flat(cached.step(other[t])), flat(twin.step(other[t])), f"step {t}")
        assert cached.has_lookahead == (t < 3)
    cached.set_lookahead(numpy(simulated(cached, actions)))
    for env in (cached, twin):
        env.reset(options={"reset_mask": np.arange(N) < 2})
    for t in range(T):
        assert_same(flat(cached.step(actions[t])), flat(twin.step(actions[t])), f"after the reset, step {t}")


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
@pytest.mark.parametrize("taken", [0, 3, T - 1])
def test_cached_steps_are_part_of_the_state(name: str, taken: int) -> None:
    env_id, options = VARIANTS[name]
    cached, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(cached)
    cached.set_lookahead(numpy(simulated(cached, actions)))
    for t in range(taken):
        cached.step(actions[t])
        twin.step(actions[t])
    restored = environment(env_id, options, seed=99)
    state = cached.get_state()
    restored.set_state(state)
    for t in range(taken, T):
        assert restored.has_lookahead
        assert_same(flat(restored.step(actions[t])), flat(twin.step(actions[t])), f"step {t}")
    assert not restored.has_lookahead
    for t in range(T):
        assert_same(flat(restored.step(actions[t])), flat(twin.step(actions[t])), f"after them, step {t}")
    again = environment(env_id, options, seed=98)
    again.set_state(state)  # which the steps have not changed
    assert_same(flat(again.step(actions[taken])), flat(cached.step(actions[taken])))


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
def test_steps_may_be_taken_all_at_once(name: str) -> None:
    env_id, options = VARIANTS[name]
    env, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(env)
    env.set_lookahead(numpy(simulated(env, actions)))  # which is dropped
    env.take_steps(numpy(simulated(env, actions)))
    assert not env.has_lookahead
    for t in range(T):
        twin.step(actions[t])
    assert_same(env.get_state(), twin.get_state())
    for t in range(T):
        assert_same(flat(env.step(actions[t])), flat(twin.step(actions[t])), f"after them, step {t}")


def test_lookahead_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        own_vector_env("PuddleWorld-v0", N, AutoresetMode.SAME_STEP).lookahead_inputs(T)
    env = environment("CollectObjectsSmall-v0", {})
    ahead = numpy(simulated(env, random_actions(env)))
    env.set_lookahead(ahead)
    with pytest.raises(InvalidAction, match="actions must lie in"):
        env.step(np.full(N, 7))
    drawn = own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.SAME_STEP, render_mode="rgb_array")
    for other in (own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.NEXT_STEP), drawn):
        assert not other.supports_lookahead
        for take in (other.set_lookahead, other.take_steps):
            with pytest.raises(ValueError, match=rf"{take.__name__}\(\) needs"):
                take(ahead)
    with pytest.raises(ValueError, match=r"count must be at most the buffer's length"):
        UniformStreams([np.random.default_rng(0)], max_draws=1).prefetch(1_000_000)
