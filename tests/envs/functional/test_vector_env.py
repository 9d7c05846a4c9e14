from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv

from dgvf_envs.collect_objects import CollectObjectsVectorEnv
from dgvf_envs.puddle_world import PuddleWorldVectorEnv
from tests.helpers import (
    ENV_IDS,
    SHORT_LIMITS,
    Policy,
    assert_same,
    each_mode,
    each_variant,
    each_world,
    flat,
    own_vector_env,
    random_policy,
    skilled_policy,
    sync_vector_env,
)

N = 6
MASK = np.array([True, False, False, True, True, False])


def both(env_id: str, mode: AutoresetMode, **options: Any) -> tuple[VectorEnv, VectorEnv]:
    """Ours, and Gymnasium's over scalar environments."""
    return own_vector_env(env_id, N, mode, **options), sync_vector_env(env_id, N, mode, **options)


def assert_same_steps(ours: VectorEnv, reference: VectorEnv, policy: Policy, steps: int, first: Any) -> list[Any]:
    """Both return the same, step by step; finished environments are reset by a mask where autoreset is disabled."""
    results, observation = [], first
    for t in range(steps):
        action = policy(observation)
        result = flat(ours.step(action))
        assert_same(result, flat(reference.step(action)), f"step {t}", rtol=1e-12)
        results.append(result)
        observation, _, terminated, truncated, _ = result
        done = terminated | truncated
        if ours.metadata["autoreset_mode"] is AutoresetMode.DISABLED and done.any():
            observation = assert_same_reset(ours, reference, mask=done)
    return results


def assert_same_reset(ours: VectorEnv, reference: VectorEnv, seed: Any = None, mask: np.ndarray | None = None) -> Any:
    options = [None if mask is None else {"reset_mask": mask.copy()} for _ in range(2)]
    result = ours.reset(seed=seed, options=options[0])
    assert_same(result, reference.reset(seed=seed, options=options[1]), "reset")
    return result[0].copy()


@each_mode
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_equals_sync_vector_env(env_id: str, mode: AutoresetMode) -> None:
    """Every value returned, with episodes that end both ways."""
    ours, reference = both(env_id, mode, max_episode_steps=SHORT_LIMITS[env_id])
    assert ours.metadata["autoreset_mode"] is mode
    first = assert_same_reset(ours, reference, seed=10)
    results = assert_same_steps(ours, reference, skilled_policy(env_id, N, seed=0), 150, first)
    assert sum(terminated.sum() for _, _, terminated, _, _ in results) >= 3
    assert sum((truncated & ~terminated).sum() for _, _, terminated, truncated, _ in results) >= 3


@each_mode
@each_variant
def test_variants_equal_sync_vector_env(env_id: str, options: dict[str, Any], mode: AutoresetMode) -> None:
    ours, reference = both(env_id, mode, **options, max_episode_steps=7)
    first = assert_same_reset(ours, reference, seed=0)
    results = assert_same_steps(ours, reference, random_policy(ours, seed=0), 30, first)
    assert any(truncated.any() for *_, truncated, _ in results)


@each_mode
def test_terminated_and_truncated_at_once(mode: AutoresetMode) -> None:
    """The goal reached on the very last step is both; SyncVectorEnv over a time limit says the same."""
    ours, reference = both("CollectObjects-v0", mode, layout=["S12"], max_episode_steps=2)
    first = assert_same_reset(ours, reference, seed=0)
    results = assert_same_steps(ours, reference, lambda _: np.full(N, 3), 6, first)
    assert any((terminated & truncated).all() for _, _, terminated, truncated, _ in results)


@each_mode
@each_world
@pytest.mark.parametrize("seed", [5, np.int64(5), [3, 3, 9, 1, 0, 2**40], (7, None, 8, None, None, 9), None], ids=repr)
def test_seeds_and_partial_resets_equal_sync_vector_env(env_id: str, mode: AutoresetMode, seed: Any) -> None:
    ours, reference = both(env_id, mode, max_episode_steps=9)
    plain = int(seed) if isinstance(seed, np.integer) else seed
    policy = random_policy(ours, seed=1)

    def go_on(first: np.ndarray) -> None:
        assert_same_steps(ours, reference, policy, 13, first)

    go_on(assert_same_reset(ours, reference, seed=0))  # the first seeding is complete; later ones may have holes
    observation = ours.reset(seed=seed)[0]
    np.testing.assert_array_equal(observation, reference.reset(seed=plain)[0])
    go_on(observation)
    go_on(assert_same_reset(ours, reference))  # the streams go on
    for new_seed in (None, 100, [20, None, None, None, 21, 22]):
        go_on(assert_same_reset(ours, reference, seed=new_seed, mask=MASK))


@each_world
def test_without_a_seed_the_seeds_are_random_and_known(env_id: str) -> None:
    envs = [own_vector_env(env_id, N) for _ in range(2)]
    for env in envs:
        env.reset()
    seeds = envs[0].np_random_seed
    assert len(set(seeds + envs[1].np_random_seed)) == 2 * N
    twin = own_vector_env(env_id, N)
    twin.reset(seed=seeds)
    assert twin.np_random_seed == seeds
    assert len(twin.np_random) == N
    for action in (1, 3, 3):
        assert_same(flat(envs[0].step(np.full(N, action))), flat(twin.step(np.full(N, action))))


@each_mode
@each_world
def test_what_is_returned_is_the_callers_own(env_id: str, mode: AutoresetMode) -> None:
    """Writing into everything that was returned changes nothing; what was returned earlier stays as it was."""
    env, twin = (own_vector_env(env_id, N, mode, max_episode_steps=4) for _ in range(2))
    kept = [env.reset(seed=0)]
    expected = [flat(twin.reset(seed=0))]
    policy = random_policy(env, seed=0)
    for _ in range(11):
        actions = policy(None)
        before = actions.copy()
        kept.append(env.step(actions))
        np.testing.assert_array_equal(actions, before)
        actions[...] = 0
        expected.append(flat(twin.step(before)))
        done = expected[-1][2] | expected[-1][3]
        if mode is AutoresetMode.DISABLED and done.any():
            mask = {"reset_mask": done.copy()}
            kept.append(env.reset(options=mask))
            assert_same(mask, {"reset_mask": done})
            expected.append(flat(twin.reset(options=mask)))
    assert_same([flat(result) for result in kept], expected)
    returned = [array for result in kept for array in arrays_in(result)]
    for array in returned:
        array[...] = None if array.dtype == object else 1
    actions = policy(None)
    assert_same(flat(env.step(actions)), flat(twin.step(actions)))


def arrays_in(result: Any) -> list[np.ndarray]:
    """Every array in what a step or a reset returned."""
    if isinstance(result, np.ndarray):
        return [result]
    values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else ()
    return [array for value in values for array in arrays_in(value)]


@each_mode
@each_world
@pytest.mark.parametrize(
    ("copied", "render_mode"),
    [(copy.deepcopy, "rgb_array"), (lambda env: pickle.loads(pickle.dumps(env)), None)],
    ids=["deepcopy", "pickle"],
)
def test_copies_in_mid_episode_go_on_alike(
    env_id: str, mode: AutoresetMode, copied: Callable, render_mode: str | None
) -> None:
    env = own_vector_env(env_id, N, mode, max_episode_steps=12, render_mode=render_mode, screen_size=64)
    env.reset(seed=0)
    for action in (1, 3, 1):
        env.step(np.full(N, action))
    if render_mode:
        env.render()
    twin = copied(env)
    results = assert_same_steps(env, twin, random_policy(env, seed=0), 25, None)
    assert any(truncated.any() for *_, truncated, _ in results)
    assert_same_reset(env, twin)
    if render_mode:
        assert_same(env.render(), twin.render())


@pytest.mark.parametrize("make", [PuddleWorldVectorEnv, CollectObjectsVectorEnv])
def test_without_a_time_limit_nothing_is_truncated(make: type[VectorEnv]) -> None:
    env = make(2, max_episode_steps=None)
    env.reset(seed=0)
    assert not any(env.step(np.zeros(2, dtype=int))[3].any() for _ in range(100))


@each_world
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64, list])
def test_actions_may_be_any_integers(env_id: str, kind: Any) -> None:
    env, twin = own_vector_env(env_id, 3), own_vector_env(env_id, 3)
    env.reset(seed=0), twin.reset(seed=0)
    actions = np.array([1, 3, 0])
    assert_same(flat(env.step(list(actions) if kind is list else actions.astype(kind))), flat(twin.step(actions)))


@each_world
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, dtype=int), "int64 of shape"),
        (np.zeros(3), "float64"),
        (["up", "up", "up"], "<U2"),
        (np.array([0, -1, 0]), "-1 for environment 1"),
        (np.array([0, 1, 5]), "5 for environment 2"),
    ],
)
def test_wrong_actions_are_named(env_id: str, actions: Any, message: str) -> None:
    env = own_vector_env(env_id, 3)
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    with pytest.raises(InvalidAction, match=f"^actions must .*got {message}"):
        env.step(actions)
    fine = np.zeros(3, dtype=int)
    assert_same(flat(env.step(fine)), flat(twin.step(fine)))  # nothing happened


@each_world
@pytest.mark.parametrize(
    ("name", "value"),
    [("num_envs", 0), ("num_envs", 2.5), ("max_episode_steps", 0), ("render_mode", "ansi"), ("screen_size", 5)],
)
def test_bad_options_are_named(env_id: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} .*{value!r}"):
        gym.make_vec(env_id, **{name: value})


@each_world
def test_an_order_of_calls_is_kept(env_id: str) -> None:
    env = own_vector_env(env_id, N, AutoresetMode.DISABLED, max_episode_steps=2, render_mode="rgb_array")
    zeros = np.zeros(N, dtype=int)
    with pytest.raises(ResetNeeded, match=r"^step\(\) was called before reset\(\)"):
        env.step(zeros)
    with pytest.raises(ResetNeeded, match=r"^render\(\) was called before reset\(\)"):
        env.render()
    with pytest.raises(ResetNeeded, match="partial reset"):
        env.reset(options={"reset_mask": MASK})
    env.reset(options={"reset_mask": np.ones(N, dtype=bool)})
    env.step(zeros)
    env.reset(options={"reset_mask": ~MASK})
    env.step(zeros)
    with pytest.raises(ResetNeeded, match=r"environments \[0, 3, 4\] are over"):
        env.step(zeros)
    env.reset(options={"reset_mask": MASK})
    env.step(zeros)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"reset_mask": [True] * N}}, r"reset_mask'\] must be a boolean array"),
        ({"options": {"reset_mask": np.ones(N - 1, dtype=bool)}}, r"reset_mask'\] must have shape"),
        ({"options": {"reset_mask": np.zeros(N, dtype=bool)}}, r"reset_mask'\] .* a True entry"),
        *(
            ({"seed": seed}, "^seed must be None, an integer or 6 integers")
            for seed in ([1, 2], [1.9, 2, 3], 2.5, "abc")
        ),
    ],
)
def test_bad_resets_are_refused(arguments: dict[str, Any], message: str) -> None:
    env = own_vector_env("PuddleWorld-v0", N)
    env.reset(seed=0)
    with pytest.raises((TypeError, ValueError), match=message):
        env.reset(**arguments)
