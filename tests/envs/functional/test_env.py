from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding

from dgvf_envs.collect_objects import CollectObjectsEnv
from dgvf_envs.puddle_world import PuddleWorldEnv
from tests.helpers import assert_same, each_world, flat, rooms_of
from tests.oracles import PuddleWalk


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_puddle_world_draws_two_numbers_a_step_from_its_seed(seed: int) -> None:
    env, (rng, _) = PuddleWorldEnv(), seeding.np_random(seed)
    observation, info = env.reset(seed=seed)
    assert info == {}
    x, y = 0.2, 0.4
    for action in np.random.default_rng(seed).integers(5, size=100).tolist():
        np.testing.assert_array_equal(observation, np.array([x, y], dtype=np.float32))
        x, y, reward, terminated = PuddleWalk().step(x, y, action, *rng.random(2).tolist())
        observation, *rest = env.step(action)
        assert_same(rest, [reward, terminated, False, {"is_success": terminated}], rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_collect_objects_draws_one_number_a_reset_from_its_seed(seed: int) -> None:
    env, (rng, _) = CollectObjectsEnv(observation="state"), seeding.np_random(seed)
    rules = rooms_of(env.dynamics)
    for k in range(5):
        observation, _ = env.reset(seed=seed if k == 0 else None)
        state = rules.starts()[int(rng.random() * len(rules.starts()))]
        for action in np.random.default_rng(k).integers(4, size=60).tolist():
            assert observation.tolist() == [*state[0], *state[1:]]
            state, reward, terminated, success = rules.step(state, action)
            observation, *rest = env.step(action)
            assert_same(rest, [reward, terminated, False, {"is_success": success}])


@each_world
@pytest.mark.parametrize("action", [-1, 5, 1.0, "up", None, np.array([1]), np.float64(1.0), [1]], ids=repr)
def test_wrong_actions_are_named(env_id: str, action: Any) -> None:
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    before = copy.deepcopy(env)
    with pytest.raises(InvalidAction, match=r"^action must be an integer in \[0, .\], got ") as caught:
        env.step(action)
    assert repr(action) in str(caught.value)
    assert_same(flat(env.step(1)), flat(before.step(1)))  # nothing happened


@pytest.mark.parametrize(
    ("env_id", "options", "action"),
    [
        ("PuddleWorld-v0", {"start": (0.9, 0.95), "goal_threshold": 0.14}, 1),
        ("CollectObjects-v0", {"layout": ["S12"]}, 3),
    ],
)
def test_an_order_of_calls_is_kept(env_id: str, options: dict[str, Any], action: int) -> None:
    env = gym.make(env_id, render_mode="rgb_array", **options).unwrapped
    for call in (env.render, lambda: env.step(action)):
        with pytest.raises(ResetNeeded, match=r"was called before reset\(\)"):
            call()
    env.reset(seed=0)
    while not env.step(action)[2]:
        pass
    with pytest.raises(ResetNeeded, match=r"^step\(\) was called after the episode terminated"):
        env.step(action)
    env.reset()
    env.step(action)


@each_world
def test_a_render_mode_is_needed_to_render(env_id: str) -> None:
    env = gym.make(env_id)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=rf"render\(\) was called without a render mode.*{env_id}"):
        assert env.render() is None
