"""Rollouts hold the environments' steps and final observations; values that are not finite are rejected."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from dgvf_agents.agents.rollout import RolloutBuilder, Step, bootstrap_positions
from dgvf_agents.core.types import Rollout

CPU = torch.device("cpu")


def _add(
    builder: RolloutBuilder, actions: Any, rewards: Any, done: Any, following: Any, infos: Any, *more: Any
) -> None:
    builder.add(Step(actions, following, rewards, done, infos, []), *more)


def _filled(rewards: np.ndarray, seen: np.ndarray, device: torch.device = CPU) -> Rollout:
    """A rollout o_0 … o_T of B environments; environment 1 is truncated at step 0 and terminated at step 2."""
    steps, num_envs = rewards.shape
    space = gym.spaces.Box(0, 255, seen.shape[2:], seen.dtype.type)
    builder = RolloutBuilder(steps, num_envs, space, device=device)
    for t in range(steps):
        done = np.zeros(num_envs, dtype=bool)
        infos: list[dict] = [{} for _ in range(num_envs)]
        if t in (0, 2):
            done[1] = True
            infos[1] = {"terminal_observation": np.full(seen.shape[2:], 101.0 + t), "TimeLimit.truncated": t == 0}
        observed = builder.observe(seen[t])
        assert isinstance(observed, torch.Tensor)
        assert (observed.device, observed.shape) == (device, seen.shape[1:])
        _add(builder, np.arange(num_envs), rewards[t], done, seen[t + 1], infos)
    return builder.build()


def test_a_rollout_holds_final_observations() -> None:
    seen = np.arange(5 * 3 * 2, dtype=np.float32).reshape(5, 3, 2)
    rollout = _filled(np.ones((4, 3)), seen)
    expected = seen[1:].copy()
    expected[0, 1], expected[2, 1] = 101.0, 103.0
    assert np.array_equal(rollout.next_observations.numpy(), expected)
    assert np.array_equal(rollout.observations.numpy(), seen[:-1])
    assert rollout.rewards.dtype == torch.float32
    assert torch.argwhere(rollout.truncated).tolist() == [[0, 1]]
    assert torch.argwhere(rollout.terminated).tolist() == [[2, 1]]
    assert rollout.segment_end.tolist()[-1] == [True] * 3


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_every_step_that_bootstraps_finds_its_own_observation(steps: int, num_envs: int, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=steps * num_envs, max_size=steps * num_envs))
    truncated = np.array(flags).reshape(steps, num_envs)
    index, slot = bootstrap_positions(truncated)
    early, quarter = int(truncated[:-1].sum()), (num_envs + 3) // 4
    room = next(quarter * 4**k for k in range(9) if quarter * 4**k >= early)
    assert len(index) == num_envs + room  # few shapes
    assert (index[num_envs + early :] == index[0]).all()
    for t, i in np.ndindex(steps, num_envs):
        if truncated[t, i] or t == steps - 1:
            assert index[slot[t, i]] == t * num_envs + i
        else:
            assert slot[t, i] == 0


def test_built_rollouts_are_not_overwritten() -> None:
    builder = RolloutBuilder(1, 2, gym.spaces.Box(-1, 1, (1,), np.float32))
    step = (np.zeros(2, dtype=np.int64), np.ones(2), np.zeros(2, dtype=bool))
    buffer = np.zeros((2, 1), np.float32)  # of an environment that overwrites its observations
    builder.observe(buffer)
    buffer += 4
    _add(builder, *step, buffer, [{}, {}])
    buffer += 4
    first = builder.build()
    builder.clear()
    builder.observe(np.ones((2, 1)))
    _add(builder, *step, np.ones((2, 1)), [{}, {}])
    assert (first.observations.sum(), first.next_observations.sum()) == (0, 8)
    assert builder.build().observations.sum() == 2


def test_the_latest_observation_of_a_step_counts() -> None:
    """A step that was observed but never taken is observed anew."""
    builder = RolloutBuilder(2, 1, gym.spaces.Box(0, 9, (1,), np.float32))
    for t in range(2):
        builder.observe(np.full((1, 1), 8.0))
        assert builder.observe(np.full((1, 1), t)).tolist() == [[t]]  # type: ignore[union-attr]
        _add(builder, np.zeros(1), np.zeros(1), np.zeros(1, bool), np.full((1, 1), t + 1.0), [{}])
    rollout = builder.build()
    assert rollout.observations.flatten().tolist() == [0.0, 1.0]  # type: ignore[union-attr]
    assert rollout.next_observations.flatten().tolist() == [1.0, 2.0]  # type: ignore[union-attr]


def test_an_environment_may_write_over_its_last_observations() -> None:
    builder = RolloutBuilder(2, 1, gym.spaces.Box(0, 9, (1,), np.float32))
    last = np.zeros(1)
    for t in range(2):
        last[:] = 5.0 + t
        builder.observe(np.zeros((1, 1)))
        _add(builder, np.zeros(1), np.zeros(1), np.ones(1, bool), np.zeros((1, 1)), [{"terminal_observation": last}])
    last[:] = 0.0
    assert builder.build().next_observations.flatten().tolist() == [5.0, 6.0]  # type: ignore[union-attr]


class Transfers(TorchDispatchMode):
    """Counts CPU tensors that are copied to another device."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.device != CPU:
            self.count += any(isinstance(one, torch.Tensor) and one.device == CPU for one in args)
        return result


def test_every_observation_is_uploaded_once_with_its_dtype() -> None:
    """The meta device stands for an accelerator: it computes nothing and rejects CPU tensors."""
    meta, counts = torch.device("meta"), []
    for steps in (4, 7):
        seen = np.zeros((steps + 1, 3, 2, 5, 5), np.uint8)
        with Transfers() as transfers:
            rollout = _filled(np.ones((steps, 3)), seen, meta)
        counts.append(transfers.count)
        tensors = [field for field in rollout if isinstance(field, torch.Tensor)]
        assert {tensor.device for tensor in tensors} == {meta}
        for observations in (rollout.observations, rollout.next_observations):
            assert isinstance(observations, torch.Tensor)
            assert (observations.dtype, observations.shape) == (torch.uint8, (steps, *seen.shape[1:]))
    once = 6 + 3  # actions, rewards, two ends, two bootstraps; final observations and their two indices
    assert counts == [steps + 1 + once for steps in (4, 7)]


def test_images_are_channels_last_on_the_cpu() -> None:
    seen = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 6, 5), np.uint8)
    space = gym.spaces.Box(0, 255, seen.shape[2:], np.uint8)
    builder = RolloutBuilder(3, 2, space)
    for t in range(3):
        builder.observe(seen[t])
        ended = [{"terminal_observation": seen[0, 0]}, {}]
        _add(builder, np.zeros(2), np.zeros(2), np.array([t == 1, False]), seen[t + 1], ended if t == 1 else [{}, {}])
    rollout, following = builder.build(), seen[1:].copy()
    following[1, 0] = seen[0, 0]
    for observations, expected in ((rollout.observations, seen[:-1]), (rollout.next_observations, following)):
        assert isinstance(observations, torch.Tensor)
        assert np.array_equal(observations.numpy(), expected)
        assert observations.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("is_dict", [False, True])
def test_final_observations_must_be_finite(is_dict: bool) -> None:
    space: gym.Space = gym.spaces.Box(0, 1, (3,), np.float32)
    zeros, bad = np.zeros((2, 3)), np.array([0.0, 0.0, np.nan])
    builder = RolloutBuilder(1, 2, gym.spaces.Dict({"a": space}) if is_dict else space)
    builder.observe({"a": zeros} if is_dict else zeros)
    infos: list[dict] = [{}, {"terminal_observation": {"a": bad} if is_dict else bad}]
    _add(builder, np.zeros(2), np.zeros(2), np.array([False, True]), {"a": zeros} if is_dict else zeros, infos)
    with pytest.raises(ValueError, match=r"^observations must be finite, got nan from environment 1$"):
        builder.build()


def test_observations_are_contiguous_whatever_the_layout_of_the_environments() -> None:
    seen = np.asfortranarray(np.arange(12.0).reshape(2, 2, 3))
    observed = RolloutBuilder(1, 2, gym.spaces.Box(0, 99, (2, 3), np.float64)).observe(seen)
    assert isinstance(observed, torch.Tensor)
    assert observed.is_contiguous()
    assert np.array_equal(observed.numpy(), seen)


def test_dict_observations_and_actions_with_several_parts() -> None:
    space = gym.spaces.Dict({"place": gym.spaces.Box(-9, 9, (2,), np.float64), "level": gym.spaces.Discrete(5)})
    builder = RolloutBuilder(2, 2, space, (3,), np.float32)
    over = {"terminal_observation": {"place": np.array([7.0, 8.0]), "level": 4}}
    for t, infos in enumerate([[{}, over], [{}, {}]]):
        now, following = ({"place": np.full((2, 2), float(k)), "level": np.full(2, k)} for k in (t, t + 1))
        builder.observe(now)
        _add(builder, np.full((2, 3), 0.5 + t), np.ones(2), np.array([False, bool(infos[1])]), following, infos)
    rollout: Any = builder.build()
    assert rollout.next_observations["place"][0].tolist() == [[1.0, 1.0], [7.0, 8.0]]
    assert rollout.next_observations["level"].tolist() == [[1, 4], [2, 2]]
    assert rollout.observations["level"].tolist() == [[0, 0], [1, 1]]
    assert rollout.actions[:, 0].tolist() == [[0.5] * 3, [1.5] * 3]
