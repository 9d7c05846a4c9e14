"""Steps foreseen against steps taken, in NumPy and torch, and an environment that is told what to expect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode

from dgvf_envs.functional.random_streams import UniformStreams
from dgvf_envs.functional.simulation import Foresight, foresee
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from tests.helpers import SHORT_LIMITS, VARIANTS, assert_same, each_variant, flat, own_vector_env

N, T = 6, 8


def environment(env_id: str, options: dict[str, Any], seed: int = 3) -> Any:
    limit = {"max_episode_steps": SHORT_LIMITS[env_id] // 3}
    env = own_vector_env(env_id, N, AutoresetMode.SAME_STEP, **limit, **options)
    env.reset(seed=seed)
    return env


def foreseen(env: DynamicsVectorEnv, actions: np.ndarray, xp: Any = np) -> Foresight:
    world = env.dynamics.on(xp, dtype=xp.float64)

    def array(value: np.ndarray) -> Any:
        return xp.asarray(value.copy())

    state, *rest = env.outlook(len(actions))
    state = type(state)(*map(array, state))
    planned = array(actions)
    return foresee(world, lambda _, t: planned[t], state, *map(array, rest), len(actions), env.max_episode_steps)


def numpy(foresight: Foresight) -> Foresight:
    states = type(foresight.states)(*map(np.asarray, foresight.states))
    return Foresight(*(states if part is foresight.states else np.asarray(part) for part in foresight))


def random_actions(env: Any, steps: int = T, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, env.single_action_space.n, (steps, N))


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@each_variant
def test_foreseen_steps_are_those_that_the_environment_takes(env_id: str, options: dict[str, Any], xp: Any) -> None:
    env = environment(env_id, options)
    for chunk in range(6):
        actions = random_actions(env, seed=chunk)
        ahead = numpy(foreseen(env, actions, xp))
        for t in range(T):
            observations, rewards, terminated, truncated, infos = env.step(actions[t])
            np.testing.assert_array_equal(ahead.observations[t], observations)
            np.testing.assert_allclose(ahead.rewards[t], rewards, rtol=1e-12)
            np.testing.assert_array_equal(ahead.terminated[t], terminated)
            np.testing.assert_array_equal(ahead.truncated[t], truncated)
            for copy in np.flatnonzero(terminated | truncated):
                np.testing.assert_array_equal(ahead.last_observations[t, copy], infos["final_obs"][copy])
                assert ahead.success[t, copy] == infos["final_info"]["is_success"][copy]


@pytest.mark.parametrize("name", ["puddle-random-start", "PuddleWorld-v0", "CollectObjectsSmall-v0"])
def test_an_environment_that_expects_its_steps_does_what_one_that_computes_them_does(name: str) -> None:
    env_id, options = VARIANTS[name]
    told, twin = environment(env_id, options), environment(env_id, options)
    ended = 0
    for chunk in range(10):
        actions = random_actions(told, seed=chunk)
        told.expect(numpy(foreseen(told, actions)))
        for t in range(T):
            assert told.expecting
            result = flat(told.step(actions[t]))
            assert_same(result, flat(twin.step(actions[t])), f"chunk {chunk}, step {t}")
            ended += int((result[2] | result[3]).sum())
            assert_same(told.dynamics.observe(told.outlook(1)[0]), result[0])  # its state is that of this step
        assert not told.expecting
    assert ended > 0
    last = random_actions(told, steps=1, seed=99)[0]
    assert_same(flat(told.step(last)), flat(twin.step(last)), "after the foreseen steps")


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
def test_other_actions_and_resets_drop_what_was_expected(name: str) -> None:
    env_id, options = VARIANTS[name]
    told, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(told)
    told.expect(numpy(foreseen(told, actions)))
    other = np.concatenate([actions[:3], (actions[3:] + 1) % told.single_action_space.n])
    for t in range(T):
        assert_same(flat(told.step(other[t])), flat(twin.step(other[t])), f"step {t}")
        assert told.expecting == (t < 3)
    told.expect(numpy(foreseen(told, actions)))
    for env in (told, twin):
        env.reset(options={"reset_mask": np.arange(N) < 2})
    for t in range(T):
        assert_same(flat(told.step(actions[t])), flat(twin.step(actions[t])), f"after the reset, step {t}")


@pytest.mark.parametrize("name", ["puddle-random-start", "CollectObjectsSmall-v0"])
@pytest.mark.parametrize("taken", [0, 3, T - 1])
def test_steps_still_expected_are_part_of_the_state(name: str, taken: int) -> None:
    env_id, options = VARIANTS[name]
    told, twin = environment(env_id, options), environment(env_id, options)
    actions = random_actions(told)
    told.expect(numpy(foreseen(told, actions)))
    for t in range(taken):
        told.step(actions[t])
        twin.step(actions[t])
    restored = environment(env_id, options, seed=99)
    state = told.get_state()
    restored.set_state(state)
    for t in range(taken, T):
        assert restored.expecting
        assert_same(flat(restored.step(actions[t])), flat(twin.step(actions[t])), f"step {t}")
    assert not restored.expecting
    for t in range(T):
        assert_same(flat(restored.step(actions[t])), flat(twin.step(actions[t])), f"after them, step {t}")
    again = environment(env_id, options, seed=98)
    again.set_state(state)  # which the steps have not changed
    assert_same(flat(again.step(actions[taken])), flat(told.step(actions[taken])))


def test_nothing_is_to_be_foreseen_before_a_reset() -> None:
    with pytest.raises(ResetNeeded, match="call reset"):
        own_vector_env("PuddleWorld-v0", N, AutoresetMode.SAME_STEP).outlook(T)


def test_invalid_actions_are_refused_while_steps_are_expected() -> None:
    env = environment("CollectObjectsSmall-v0", {})
    env.expect(numpy(foreseen(env, random_actions(env))))
    with pytest.raises(InvalidAction, match="actions must lie in"):
        env.step(np.full(N, 7))


def test_only_an_environment_that_resets_within_the_step_and_draws_nothing_is_foreseeable() -> None:
    actions = np.zeros((1, N), np.int64)
    ahead = numpy(foreseen(environment("CollectObjectsSmall-v0", {}), actions))
    env = own_vector_env("CollectObjectsSmall-v0", N, AutoresetMode.NEXT_STEP)
    assert not env.foreseeable
    with pytest.raises(ValueError, match="SAME_STEP"):
        env.expect(ahead)


def test_streams_hand_out_ahead_what_they_hand_out_later() -> None:
    streams = UniformStreams([np.random.default_rng(s) for s in range(3)], most=2)
    for round_ in range(400):
        count = 1 + round_ % 7
        numbers, cursors = streams.ahead(count)
        ahead = np.stack([numbers[row, cursors[row] : cursors[row] + count] for row in range(3)])
        np.testing.assert_array_equal(ahead[:, :1], streams.peek(1))
        np.testing.assert_array_equal(ahead, streams.take(np.arange(3), count))


def test_more_numbers_than_are_drawn_ahead_are_refused() -> None:
    streams = UniformStreams([np.random.default_rng(0)], most=1)
    with pytest.raises(ValueError, match=r"count must be at most the \d+ numbers .* got 1000000"):
        streams.ahead(1_000_000)
