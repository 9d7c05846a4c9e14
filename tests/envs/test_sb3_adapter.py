from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import TransformObservation, TransformReward
from gymnasium.wrappers.vector import TransformReward as VectorTransformReward
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec
from tests.helpers import (
    ENV_IDS,
    SHORT_LIMITS,
    WORLD_IDS,
    Traveller,
    assert_same,
    each_mode,
    flat,
    own_vector_env,
    skilled_policy,
    sync_vector_env,
)

N = 4


def dummy_vec_env(make: Callable[[], gym.Env], n: int = N) -> DummyVecEnv:
    """The reference: Stable-Baselines3's own vector environment."""
    return DummyVecEnv([make] * n)


def stream(env: VecEnv, actions: np.ndarray, seed: int | None = 7) -> Iterator[Any]:
    """Everything that a learner sees."""
    if seed is not None:
        env.seed(seed)
    yield flat(env.reset())
    yield flat(env.reset_infos)
    for action in actions:
        yield flat(env.step(action.copy()))
        yield flat(env.reset_infos)


def assert_same_streams(env: VecEnv, reference: VecEnv, actions: np.ndarray, seed: int | None = 7) -> list[Any]:
    results = list(stream(reference, actions, seed))
    for t, (one, other) in enumerate(zip(stream(env, actions, seed), results, strict=True)):
        assert_same(one, other, f"item {t}", rtol=1e-6)  # rewards go through single precision
    return results


def ends(results: list[Any]) -> tuple[int, int]:
    """How many episodes terminated, and how many ran out of time."""
    infos = [info for result in results if len(result) == N for info in result[3] if isinstance(info, dict)]
    last = [info for info in infos if "terminal_observation" in info]
    by_time = sum(info["TimeLimit.truncated"] for info in last)
    return len(last) - by_time, by_time


def random_actions(n: int, steps: int, seed: int = 0, num_envs: int = N) -> np.ndarray:
    return np.random.default_rng(seed).integers(n, size=(steps, num_envs))


@each_mode
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_our_environments_give_what_stable_baselines_own_give(env_id: str, mode: AutoresetMode) -> None:
    limit = SHORT_LIMITS[env_id]
    reference = dummy_vec_env(lambda: gym.make(env_id, max_episode_steps=limit))
    env = GymnasiumVecEnv(own_vector_env(env_id, N, mode, max_episode_steps=limit))
    env.seed(7)
    observation, policy, actions = env.reset(), skilled_policy(env_id, N, seed=0), []
    for _ in range(130):
        actions.append(policy(observation))
        observation = env.step(actions[-1])[0]
    results = assert_same_streams(
        GymnasiumVecEnv(own_vector_env(env_id, N, mode, max_episode_steps=limit)), reference, np.array(actions)
    )
    assert min(ends(results)) > 0, "episodes end both ways"


@each_mode
def test_any_sync_vector_env(mode: AutoresetMode) -> None:
    """Dictionaries of observations; infos with numbers, text, arrays and dictionaries, present now and then."""
    env = GymnasiumVecEnv(SyncVectorEnv([Traveller] * N, autoreset_mode=mode))
    results = assert_same_streams(env, dummy_vec_env(Traveller), random_actions(3, 60))
    assert min(ends(results)) > 0


class Pair(Traveller):
    """Observes a tuple."""

    observation_space = gym.spaces.Tuple(Traveller.observation_space.values())  # type: ignore[assignment]

    def observation(self) -> Any:
        named = super().observation()
        return tuple(named[name] for name in Traveller.observation_space)


@each_mode
def test_observations_of_a_tuple_of_spaces(mode: AutoresetMode) -> None:
    env = GymnasiumVecEnv(SyncVectorEnv([Pair] * N, autoreset_mode=mode))
    assert min(ends(assert_same_streams(env, dummy_vec_env(Pair), random_actions(3, 60)))) > 0


@each_mode
def test_environments_that_reuse_their_buffers(mode: AutoresetMode) -> None:
    """Stable-Baselines3 keeps an observation over the next step, so it must not be overwritten there."""
    actions = random_actions(3, 30)
    reference = list(stream(dummy_vec_env(Traveller), actions))
    for venv in (SyncVectorEnv([Traveller] * N, copy=False, autoreset_mode=mode), Foreign()):
        env = GymnasiumVecEnv(venv, partial_reset=True)
        env.seed(7)
        kept = [env.reset()] + [env.step(action)[0] for action in actions]
        assert_same(kept, [reference[0], *(result[0] for result in reference[2::2])])


def test_async_vector_env() -> None:
    env = GymnasiumVecEnv(AsyncVectorEnv([Traveller] * 2, context="spawn"))
    try:
        assert_same_streams(env, dummy_vec_env(Traveller, 2), random_actions(3, 40, num_envs=2))
        assert env.get_attr("speed", indices=1) == [0.1]
        for speed in (0.5, (0.1, 0.2), [0.3]):
            env.set_attr("speed", speed)
            assert env.get_attr("speed") == [speed, speed]
        env.set_attr("speed", 0.5)
        with pytest.raises(ValueError, match=r"^indices must select all environments.*\[0\]"):
            env.set_attr("speed", 0.2, indices=[0])
        fuel = env.get_attr("fuel")
        assert env.env_method("refuel", 2, extra=1) == [left + 3 for left in fuel]
        assert env.env_method("refuel", 2, indices=1) == [fuel[1] + 2]
    finally:
        env.close()


def test_async_without_shared_memory_is_refused_where_it_resets_twice() -> None:
    """Its workers forget that they were reset by a mask, and reset once more at the next step."""
    env = AsyncVectorEnv([Traveller], shared_memory=False, context="spawn")
    try:
        with pytest.raises(ValueError, match=r"AutoresetMode\.SAME_STEP"):
            GymnasiumVecEnv(env)
    finally:
        env.close()


class Foreign(VectorEnv):
    """A vector environment of a class that the adapter does not know; it does honor the mask."""

    num_envs, single_observation_space, single_action_space = N, Traveller.observation_space, Traveller.action_space

    def __init__(self, mode: Any = AutoresetMode.NEXT_STEP) -> None:
        self.metadata = {"autoreset_mode": mode}
        inner = SyncVectorEnv([Traveller] * N, copy=False)
        self.reset, self.step = inner.reset, inner.step


def unsupported_vector_env() -> VectorEnv:
    return gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")


@pytest.mark.parametrize(
    ("make", "partial_reset", "message"),
    [
        (unsupported_vector_env, None, r"^env must autoreset .*CartPole.*NEXT_STEP.*vectorization_mode='sync'"),
        (Foreign, None, "partial_reset=True"),
        (lambda: sync_vector_env("PuddleWorld-v0", 2), False, r"AutoresetMode\.SAME_STEP"),
        (lambda: Foreign(None), True, "must be an AutoresetMode, got None"),
        (lambda: Foreign("NextStep"), True, "must be an AutoresetMode, got 'NextStep'"),
        (lambda: gym.make("PuddleWorld-v0"), None, r"^env must be a gymnasium.vector.VectorEnv, got "),
    ],
)
def test_what_would_give_wrong_data_is_refused(make: Callable, partial_reset: bool | None, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        GymnasiumVecEnv(make(), partial_reset=partial_reset)


def test_an_unknown_class_is_accepted_on_the_users_word() -> None:
    env = GymnasiumVecEnv(Foreign(), partial_reset=True)
    assert_same_streams(env, dummy_vec_env(Traveller), random_actions(3, 30))


def both() -> tuple[GymnasiumVecEnv, DummyVecEnv]:
    reference = dummy_vec_env(lambda: TransformReward(Traveller(), float))
    env = GymnasiumVecEnv(SyncVectorEnv([lambda: TransformReward(Traveller(), float)] * N))
    env.seed(0), reference.seed(0)
    env.reset(), reference.reset()
    return env, reference


@pytest.mark.parametrize("indices", [None, 2, [0, 3], (1,), range(2)], ids=repr)
def test_access_by_environment_is_that_of_stable_baselines(indices: Any) -> None:
    env, reference = both()
    assert env.get_attr("fuel", indices) == reference.get_attr("fuel", indices)
    for one in (env, reference):
        one.set_attr("speed", 0.7, indices)
    chosen = list(range(N)) if indices is None else [indices] if isinstance(indices, int) else list(indices)
    assert env.get_attr("speed") == [0.7 if i in chosen else 0.1 for i in range(N)]
    answers = [one.env_method("refuel", 5, indices=indices, extra=2) for one in (env, reference)]
    assert answers[0] == answers[1]
    assert env.get_attr("calls") == reference.get_attr("calls") == [[7] if i in chosen else [] for i in range(N)]
    for wrapper in (TransformReward, TransformObservation):
        assert env.env_is_wrapped(wrapper, indices) == reference.env_is_wrapped(wrapper, indices)
    assert env.has_attr("speed")
    assert not env.has_attr("wings")


def test_access_to_one_batch_is_shared() -> None:
    env = GymnasiumVecEnv(VectorTransformReward(own_vector_env("PuddleWorld-v0", N), lambda r: r))
    world = env.get_attr("dynamics")
    assert len(world) == N
    assert world[0] is world[3]
    assert env.get_attr("max_episode_steps", indices=[1, 2]) == [5000, 5000]
    env.set_attr("render_label", "all")
    assert env.get_attr("render_label", indices=0) == ["all"]
    with pytest.raises(ValueError, match=r"^indices must select all environments.*\[0\]"):
        env.set_attr("render_label", "one", indices=[0])
    assert [len(seeds) for seeds in env.get_attr("np_random_seed", indices=[0, 1])] == [N, N]
    assert env.env_is_wrapped(TransformReward) == [False] * N
    with pytest.raises(AttributeError):
        env.get_attr("wings")


def test_seeds_are_used_once() -> None:
    env, reference = both()
    assert env.seed(3) == reference.seed(3) == [3, 4, 5, 6]
    for _ in range(3):
        assert_same(flat(env.reset()), flat(reference.reset()))
    assert_same_streams(env, reference, random_actions(3, 12), seed=None)


def test_options_that_differ_are_an_error() -> None:
    env, _ = both()
    env.set_options([{"harbor": i} for i in range(N)])
    with pytest.raises(ValueError, match=r"^options must be the same for all environments.*'harbor': 3"):
        env.reset()


@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_pictures_are_those_of_the_copies(env_id: str) -> None:
    env = GymnasiumVecEnv(own_vector_env(env_id, N, render_mode="rgb_array", screen_size=64))
    reference = dummy_vec_env(lambda: gym.make(env_id, render_mode="rgb_array", screen_size=64))
    env.seed(0), reference.seed(0)
    env.reset(), reference.reset()
    assert env.render_mode == "rgb_array"
    assert env.metadata["render_modes"] == ["human", "rgb_array"]
    assert_same(list(env.get_images()), list(reference.get_images()))
    np.testing.assert_array_equal(env.render("rgb_array"), reference.render("rgb_array"))
    assert env.render().shape == (2 * 64, 2 * 91, 3)


@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_make_vec_takes_our_own_vector_environment(env_id: str) -> None:
    env = make_vec(env_id, N, seed=7, env_kwargs={"max_episode_steps": 6})
    assert isinstance(env, VecMonitor)
    assert isinstance(env.unwrapped.env, DynamicsVectorEnv)
    assert env.unwrapped.env.max_episode_steps == 6
    assert env.unwrapped.env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_make_vec_seeds_the_first_reset_and_the_actions() -> None:
    one, same, other = (make_vec("PuddleWorldSutton-v0", N, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first := one.reset(), same.reset())
    assert (first != other.reset()).any()
    assert [one.action_space.sample() for _ in range(20)] == [same.action_space.sample() for _ in range(20)]
    assert (one.reset() != first).any()


@pytest.mark.parametrize(
    ("env_id", "wrapper"),
    [("CartPole-v1", None), ("MountainCar-v0", None), ("PuddleWorld-v0", lambda env: TransformReward(env, abs))],
)
def test_make_vec_falls_back_to_sync_vector_env(env_id: str, wrapper: Callable | None) -> None:
    """If the id's own vector environment is unsupported or missing, or if there is a wrapper."""
    env = make_vec(env_id, N, seed=7, env_kwargs={"max_episode_steps": 12}, wrapper_class=wrapper)
    assert isinstance(env.unwrapped.env, SyncVectorEnv)
    assert env.env_is_wrapped(TransformReward) == [wrapper is not None] * N
    wrap = wrapper or (lambda env: env)
    reference = dummy_vec_env(lambda: wrap(gym.make(env_id, max_episode_steps=12)))
    results = assert_same_streams(env.unwrapped, reference, random_actions(2, 40))
    assert sum(ends(results)) > 0


@pytest.mark.parametrize("n_envs", [0, -1, "2"])
def test_the_number_of_environments_is_checked(n_envs: Any) -> None:
    with pytest.raises(ValueError, match=f"^n_envs must be .*>= 1, got {n_envs!r}"):
        make_vec("PuddleWorld-v0", n_envs)


def test_arguments_that_only_single_environments_take() -> None:
    env = make_vec("CartPole-v1", 2, env_kwargs={"disable_env_checker": True})
    assert isinstance(env.unwrapped.env, SyncVectorEnv)
    with pytest.raises(TypeError, match="unexpected keyword argument nois"):
        make_vec("PuddleWorld-v0", 2, env_kwargs={"nois": 0.1})


def test_async_environments_know_their_wrappers() -> None:
    env = GymnasiumVecEnv(AsyncVectorEnv([lambda: Monitor(gym.make("PuddleWorld-v0"))] * 2))
    try:
        assert env.env_is_wrapped(Monitor) == [True, True]
        assert env.env_is_wrapped(TransformReward, indices=[1]) == [False]
    finally:
        env.close()


class Pictures(VectorWrapper):
    """Renders all environments as one array."""

    render_mode = "rgb_array"

    def render(self) -> Any:
        return np.arange(N * 12, dtype=np.uint8).reshape(N, 2, 2, 3)


def test_pictures_may_be_one_array() -> None:
    env = GymnasiumVecEnv(Pictures(own_vector_env("PuddleWorld-v0", N)))
    assert [frame.shape for frame in env.get_images()] == [(2, 2, 3)] * N  # type: ignore[union-attr]


def test_clipped_rewards_are_not_taken_for_scores_unsaid() -> None:
    with pytest.warns(UserWarning, match=r"^ALE/Pong-v5 clips its rewards"):
        make_vec("ALE/Pong-v5", 1).close()
    make_vec("ALE/Pong-v5", 1, env_kwargs={"reward_clipping": False}).close()
