"""A restored environment continues exactly like the original, with all supported wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecMonitor, VecNormalize

from dgvf_envs.functional.env_state import get_env_state, set_env_state
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec
from tests.helpers import AUTORESET_MODES, Traveller, assert_same, each_variant, flat, own_vector_env

NUM_ENVS = 3


def _dummy(env_id: str = "PuddleWorld-v0") -> VecEnv:
    return make_vec_env(env_id, NUM_ENVS, seed=5, env_kwargs={"max_episode_steps": 12})


KINDS: dict[str, Callable[[], VecEnv]] = {
    "ours": lambda: make_vec("PuddleWorld-v0", NUM_ENVS, 5, env_kwargs={"max_episode_steps": 12}),
    "ours, planes": lambda: make_vec("CollectObjectsSmall-v0", NUM_ENVS, 5),
    "DummyVecEnv": _dummy,
    "VecFrameStack": lambda: VecFrameStack(_dummy(), 3),
    "VecNormalize": lambda: VecNormalize(_dummy()),
    "VecNormalize, stacked": lambda: VecNormalize(VecFrameStack(_dummy(), 2)),
    **{
        mode.name: lambda mode=mode: VecMonitor(
            GymnasiumVecEnv(own_vector_env("PuddleWorld-v0", NUM_ENVS, mode, start="random", max_episode_steps=9))
        )
        for mode in AUTORESET_MODES
    },
}


def _played(env: VecEnv, steps: int, seed: int, actions: int = 4) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [_without_times(flat(env.step(rng.integers(actions, size=NUM_ENVS)))) for _ in range(steps)]


def _without_times(result: Any) -> Any:
    for info in result[3]:
        info.get("episode", {}).pop("t", None)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_environment_continues_like_the_original(kind: str) -> None:
    original, restored = KINDS[kind](), KINDS[kind]()
    original.reset()
    _played(original, 17, seed=0)
    state = get_env_state(original)
    expected = _played(original, 40, seed=1)
    assert any(step[2].any() for step in expected)  # episodes end
    restored.reset()
    _played(restored, 5, seed=2)
    set_env_state(restored, state)
    assert_same(_played(restored, 40, seed=1), expected)
    set_env_state(original, state)  # steps taken since have not changed it
    assert_same(_played(original, 40, seed=1), expected)
    assert_same(original.reset(), restored.reset())


@pytest.mark.parametrize("steps", [0, 1])
def test_a_state_of_an_episode_s_first_steps_is_restored(steps: int) -> None:
    """Gymnasium's checker compares observations of the first two steps."""
    original, restored = KINDS["DummyVecEnv"](), KINDS["DummyVecEnv"]()
    original.reset()
    _played(original, steps, seed=0)
    set_env_state(restored, get_env_state(original))
    assert_same(_played(restored, 20, seed=1), _played(original, 20, seed=1))


@each_variant
def test_every_variant_is_restored(env_id: str, options: dict[str, Any]) -> None:
    original, restored = own_vector_env(env_id, NUM_ENVS, **options), own_vector_env(env_id, NUM_ENVS, **options)
    original.reset(seed=1)
    for env in (original, restored):
        env.action_space.seed(0)
    for _ in range(30):
        original.step(original.action_space.sample())
    restored.set_state(original.get_state())
    assert restored.np_random_seed == original.np_random_seed
    for _ in range(60):
        actions = original.action_space.sample()
        assert_same(flat(restored.step(actions)), flat(original.step(actions)))


def test_a_pending_seed_is_part_of_the_state() -> None:
    original, restored = KINDS["ours"](), make_vec("PuddleWorld-v0", NUM_ENVS, 99, env_kwargs={"max_episode_steps": 12})
    set_env_state(restored, get_env_state(original))  # neither was reset yet
    assert_same(restored.reset(), original.reset())
    assert_same(_played(restored, 15, 0), _played(original, 15, 0))


@pytest.mark.parametrize(
    ("original", "other", "message"),
    [
        ("ours", lambda: make_vec("PuddleWorld-v0", NUM_ENVS, env_kwargs={"noise": 0.0}), "state must belong to 3"),
        ("ours", lambda: make_vec("PuddleWorld-v0", 2), "state must belong to 2 copies"),
        ("ours", lambda: make_vec("CollectObjects-v0", NUM_ENVS), "copies of CollectObjects"),
        ("ours", lambda: make_vec("CartPole-v1", NUM_ENVS), r"which has no set_state\(state\)"),
        ("ours", _dummy, "state must belong to a DummyVecEnv, got one of a VecMonitor"),
        ("DummyVecEnv", lambda: make_vec_env("PuddleWorld-v0", 2), "state must have 2 environments, got 3"),
        ("DummyVecEnv", lambda: _dummy("PuddleWorldSutton-v0"), "state must belong to PuddleWorld"),
    ],
)
def test_the_state_of_another_environment_is_refused(original: str, other: Callable, message: str) -> None:
    env = KINDS[original]()
    env.reset()
    with pytest.raises(ValueError, match=message):
        set_env_state(other(), get_env_state(env))


def test_unsupported_environments_are_named() -> None:
    for env in (DummyVecEnv([lambda: gym.make("CartPole-v1")]), make_vec("CartPole-v1", 2)):
        with pytest.raises(NotImplementedError, match="cannot be saved"):
            get_env_state(env)


def test_training_of_statistics_is_not_part_of_the_state() -> None:
    original, evaluation = VecNormalize(_dummy()), VecNormalize(_dummy(), training=False)
    for env in (original, evaluation):
        env.reset()
    _played(original, 11, seed=0)
    set_env_state(evaluation, get_env_state(original))
    assert not evaluation.training
    count = evaluation.obs_rms.count
    _played(evaluation, 5, seed=1)
    assert evaluation.obs_rms.count == original.obs_rms.count == count


@pytest.mark.parametrize("norm_reward", [True, False])
def test_statistics_of_observations_of_several_parts_are_restored(norm_reward: bool) -> None:
    original, restored = (
        VecNormalize(DummyVecEnv([Traveller] * NUM_ENVS), norm_reward=norm_reward, norm_obs_keys=["place"])
        for _ in range(2)
    )
    for seed, env in enumerate((original, restored)):
        env.seed(seed)
        env.reset()
        _played(env, 11 + seed, seed, actions=3)
    set_env_state(restored, get_env_state(original))
    assert_same(_played(restored, 30, seed=1, actions=3), _played(original, 30, seed=1, actions=3))
    assert restored.obs_rms["place"].count == original.obs_rms["place"].count > 100  # type: ignore[index]
