"""Rollouts are what the environments gave, true last observations included, and refuse what is not finite."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgvf_agents.rollout_builder import RolloutBuilder, bootstrap_positions
from dgvf_agents.types import Rollout

CPU = torch.device("cpu")


def _filled(rewards: np.ndarray, following: np.ndarray) -> Rollout:
    """A rollout of T steps of B copies where copy 1 is truncated at step 0 and terminated at step 2."""
    steps, copies = rewards.shape
    builder = RolloutBuilder(steps, copies, gym.spaces.Box(-1e9, 1e9, following.shape[2:], np.float32))
    for t in range(steps):
        done = np.zeros(copies, dtype=bool)
        infos: list[dict] = [{} for _ in range(copies)]
        if t in (0, 2):
            done[1] = True
            infos[1] = {"terminal_observation": np.full(following.shape[2:], -1.0 - t), "TimeLimit.truncated": t == 0}
        builder.add(following[t] - 100, np.arange(copies), rewards[t], done, following[t], infos)
    return builder.build(CPU)


def test_a_rollout_holds_the_true_last_observations() -> None:
    following = np.arange(4 * 3 * 2, dtype=np.float32).reshape(4, 3, 2)
    rollout = _filled(np.ones((4, 3)), following)
    expected = following.copy()
    expected[0, 1], expected[2, 1] = -1.0, -3.0
    assert np.array_equal(rollout.next_observations.numpy(), expected)
    assert np.array_equal(rollout.observations.numpy(), following - 100)
    assert torch.argwhere(rollout.truncated).tolist() == [[0, 1]]
    assert torch.argwhere(rollout.terminated).tolist() == [[2, 1]]
    assert rollout.cut.tolist()[-1] == [True] * 3


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_every_step_that_bootstraps_finds_its_own_observation(steps: int, copies: int, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=steps * copies, max_size=steps * copies))
    truncated = np.array(flags).reshape(steps, copies)
    index, slot = bootstrap_positions(truncated)
    assert len(index) % copies == 0
    for t, copy in np.ndindex(steps, copies):
        if truncated[t, copy] or t == steps - 1:
            assert index[slot[t, copy]] == t * copies + copy
        else:
            assert slot[t, copy] == 0


def test_rollouts_handed_out_are_not_overwritten() -> None:
    builder = RolloutBuilder(1, 2, gym.spaces.Box(-1, 1, (1,), np.float32))
    step = (np.zeros(2, dtype=np.int64), np.ones(2), np.zeros(2, dtype=bool))
    builder.add(np.zeros((2, 1)), *step, np.zeros((2, 1)), [{}, {}])
    first = builder.build(CPU)
    builder.clear()
    builder.add(np.ones((2, 1)), *step, np.ones((2, 1)), [{}, {}])
    assert first.observations.sum() == 0
    assert builder.build(CPU).observations.sum() == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rewards_and_observations_must_be_finite(bad: float) -> None:
    rewards, following = np.ones((4, 3)), np.zeros((4, 3, 2), dtype=np.float32)
    rewards[2, 0] = bad
    with pytest.raises(ValueError, match=r"rewards must be finite.*copy 0"):
        _filled(rewards, following)
    following[1, 2, 0] = bad
    with pytest.raises(ValueError, match=r"observations must be finite.*copy 2"):
        _filled(np.ones((4, 3)), following)


def test_dict_observations_and_actions_with_several_parts() -> None:
    space = gym.spaces.Dict({"place": gym.spaces.Box(-9, 9, (2,), np.float64), "level": gym.spaces.Discrete(5)})
    builder = RolloutBuilder(2, 2, space, (3,), np.float32)

    def observed(t: int) -> dict[str, np.ndarray]:
        return {"place": np.full((2, 2), t, np.float64), "level": np.full(2, t)}

    over = {"terminal_observation": {"place": np.array([7.0, 8.0]), "level": 4}}
    for t, infos in enumerate([[{}, over], [{}, {}]]):
        done = np.array([False, bool(infos[1])])
        builder.add(observed(t), np.full((2, 3), 0.5 + t), np.ones(2), done, observed(t + 1), infos)
    rollout = builder.build(CPU, {"encoder.mean": torch.ones(1)})
    assert isinstance(rollout.observations, dict)
    assert isinstance(rollout.next_observations, dict)
    assert rollout.next_observations["place"][0].tolist() == [[1.0, 1.0], [7.0, 8.0]]
    assert rollout.next_observations["level"].tolist() == [[1, 4], [2, 2]]
    assert rollout.observations["level"].tolist() == [[0, 0], [1, 1]]
    assert rollout.actions.shape == (2, 2, 3)
    assert rollout.actions[1].unique().tolist() == [1.5]
    assert rollout.statistics.keys() == {"encoder.mean"}
