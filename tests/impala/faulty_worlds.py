"""Environments that fail, for actors in other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from dgvf_envs.sb3_adapter import make_vec


def small_rooms(num_envs: int, seed: int | None) -> VecEnv:
    return make_vec("CollectObjectsSmall-v0", num_envs, seed)


def world_of(kind: type[gym.Env], *arguments: Any) -> Callable[[int, int | None], VecEnv]:
    """Makes environments of a kind; can be sent to actors."""
    return lambda num_envs, seed: DummyVecEnv([lambda: kind(*arguments)] * num_envs)


@final
class Faulty(gym.Env):
    """Zeros and rewards of 1 in episodes of 6 steps, until a fault at a step or reset, once per file or always."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    render_mode = None

    def __init__(self, kind: str, at: int = 8, once: Path | None = None, value: float = np.nan) -> None:
        self.kind, self.at, self.once, self.value = kind, at, once, value
        self.steps, self.resets = 0, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.resets += 1
        bad = self.kind == "first observation" and self.resets > 1
        return np.full(2, self.value if bad else 0.0, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        fault = self.kind if self.steps >= self.at and self._is_due() else "none"
        if fault == "error":
            raise ZeroDivisionError("the simulator broke")
        if fault == "exit":
            os._exit(7)
        if fault == "hang":
            time.sleep(600)
        observation = np.array([0.0, self.value if fault == "observation" else 0.0], np.float32)
        return observation, self.value if fault == "reward" else 1.0, self.steps % 6 == 0, False, {}

    def _is_due(self) -> bool:
        try:
            return self.once is None or self.once.touch(exist_ok=False) is None
        except FileExistsError:
            return False


@final
class Numbered(gym.Env):
    """Rewards are numbers that no other step has, in whatever process. The observation is the process's id."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 1e9, (1,), np.float32)

    def __init__(self, file: Path) -> None:
        self._file = file

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.array([os.getpid()], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        with self._file.open("ab") as file:  # one byte for each step
            file.write(b".")
            file.flush()
            number = file.tell()
        return np.array([os.getpid()], np.float32), float(number), False, False, {}
