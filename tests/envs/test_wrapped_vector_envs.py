"""Wrapped vector environments under the adapter: what wrappers keep and report, in all autoreset modes."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import (
    DictInfoToList,
    NormalizeObservation,
    RecordEpisodeStatistics,
    RescaleObservation,
)

from dgvf_envs.sb3_adapter import GymnasiumVecEnv
from tests.helpers import each_mode


class Fixed(gym.Env[np.ndarray, int]):
    """Episodes of a fixed length with reward 1."""

    observation_space, action_space = gym.spaces.Box(0, 1, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.t = 0
        return np.zeros(1, np.float32), {"level": 1}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return np.ones(1, np.float32), 1.0, self.t == self.length, False, {}


class Counting(VectorWrapper[Any, Any, Any, Any, Any]):
    """Counts every environment's steps since its reset, in an array, in a list and in a dict."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.counts, self.listed = np.zeros(self.num_envs, int), [0] * self.num_envs
        self.named = {"of each": {"counts": np.zeros(self.num_envs, int)}, "of all": 0}
        return super().reset(**kwargs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = super().step(actions)
        self.counts += 1
        self.named["of each"]["counts"] += 1  # type: ignore[index]
        self.listed = [count + 1 for count in self.listed]
        return observations, rewards, terminated, truncated, infos | {"counts": self.counts.copy(), "mean": 0.5}


LENGTHS = (2, 3, 5)


def fixed(mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([lambda length=length: Fixed(length) for length in LENGTHS], autoreset_mode=mode)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_wrappers_keep_what_belongs_to_other_environments(mode: AutoresetMode) -> None:
    wrapper = Counting(fixed(mode))
    env = GymnasiumVecEnv(wrapper)
    env.reset()
    for t in range(1, 31):
        infos = env.step(np.zeros(3, int))[3]
        expected = [(t - 1) % length + 1 for length in LENGTHS]
        assert [info["counts"] for info in infos] == expected
        assert [info["mean"] for info in infos] == [0.5] * 3
        assert wrapper.named["of each"]["counts"].tolist() == wrapper.listed  # type: ignore[index]
        assert wrapper.listed == [count % length for count, length in zip(expected, LENGTHS, strict=True)]


class Frames(VectorWrapper[Any, Any, Any, Any, Any]):
    """Keeps as many frames as there are environments, and honors the mask."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        mask = (kwargs.get("options") or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations, infos = super().reset(**kwargs)
        if mask.all():
            self.frames = deque([observations.copy()] * self.num_envs, maxlen=self.num_envs)
        for frame in self.frames:
            frame[mask] = observations[mask]
        return self._stacked(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, *others = super().step(actions)
        self.frames.append(observations.copy())
        return self._stacked(), *others  # type: ignore[return-value]

    def _stacked(self) -> np.ndarray:
        return np.concatenate(list(self.frames), -1)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_wrappers_may_keep_frames_and_spaces(mode: AutoresetMode) -> None:
    env = GymnasiumVecEnv(Frames(RescaleObservation(fixed(mode), np.float32(0.0), np.float32(2.0))))
    assert not env.reset().any()
    for t in range(1, 31):
        observations = env.step(np.zeros(3, int))[0]
        for i, length in enumerate(LENGTHS):
            since = t % length
            assert observations[i].tolist() == ([0.0] * 3 + [2.0] * since)[-3:]


def test_infos_that_only_some_resets_have_are_not_the_last_step_s() -> None:
    class Rising(Fixed):
        level = 0

        def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
            self.level += 1
            return super().reset()[0], {"level": self.level} if self.level > 1 else {}

    env = GymnasiumVecEnv(SyncVectorEnv([lambda: Rising(2)] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    env.reset()
    infos = [env.step(np.zeros(2, int))[3][0] for _ in range(4)]
    assert [{*info} - {"TimeLimit.truncated"} for info in infos] == [set(), {"terminal_observation"}] * 2
    assert env.reset_infos == [{"level": 3}] * 2


@each_mode
def test_infos_of_the_last_step_have_what_wrappers_add(mode: AutoresetMode) -> None:
    env = GymnasiumVecEnv(RecordEpisodeStatistics(fixed(mode)))
    env.reset()
    for t in range(1, 31):
        _, _, dones, infos = env.step(np.zeros(3, int))
        for length, done, info in zip(LENGTHS, dones, infos, strict=True):
            assert done == (t % length == 0) == ("episode" in info)
            assert "level" not in info  # of the reset
            if done:
                assert (info["episode"]["l"], info["episode"]["r"]) == (length, length)
        assert env.reset_infos == [{"level": 1}] * 3 or mode is AutoresetMode.SAME_STEP
    assert all(info["level"] == 1 for info in env.reset_infos)


def test_a_final_observation_that_is_missing() -> None:
    class Own(VectorEnv[Any, Any, Any]):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
        num_envs, single_observation_space, single_action_space = 2, Fixed.observation_space, Fixed.action_space
        observation_space, action_space = (
            batch_space(Fixed.observation_space, 2),
            batch_space(Fixed.action_space, 2),
        )

        def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros((2, 1), np.float32), {}

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            ended = np.ones(2, bool)
            return np.zeros((2, 1), np.float32), np.zeros(2), ended, ~ended, {"final_observation": np.ones((2, 1))}

    env = GymnasiumVecEnv(Own())
    env.reset()
    with pytest.raises(ValueError, match=r"infos must hold final_obs .* got \['final_observation'\]"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("wrapper", [NormalizeObservation, DictInfoToList])
def test_wrappers_that_cannot_be_adapted_are_refused_by_name(wrapper: type[VectorWrapper]) -> None:
    """Inner ones, too. Without partial resets, they fail when the first episode ends."""
    env = Counting(wrapper(fixed(AutoresetMode.NEXT_STEP)))
    with pytest.raises(ValueError, match=f"must not be wrapped in Gymnasium's {wrapper.__name__}"):
        GymnasiumVecEnv(env)
