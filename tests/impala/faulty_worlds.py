"""Environments that fail, for actors in other processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from dgvf_envs.sb3_adapter import make_vec


def small_rooms(num_envs: int, seed: int | None) -> VecEnv:
    return make_vec("CollectObjectsSmall-v0", num_envs, seed)


@final
class Faulty(gym.Env):
    """Episodes of 8 steps with reward 1; raises, hangs or exits at a step, once per file or always."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)

    def __init__(self, kind: str, at: int, once: str | None) -> None:
        self._kind, self._at, self._once, self._steps = kind, at, once, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        if self._steps == self._at and self._is_due():
            self._fail()
        return self.observation_space.sample(), 1.0, self._steps % 8 == 0, False, {}

    def _is_due(self) -> bool:
        if self._once is None:
            return True
        try:
            Path(self._once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _fail(self) -> None:
        if self._kind == "raise":
            raise ValueError("the lamp is broken")
        if self._kind == "hang":
            time.sleep(1000.0)
        if self._kind == "exit":
            os._exit(3)


@final
class FaultyWorld:
    """Makes them; can be sent to actors."""

    def __init__(self, kind: str, at: int, once: Path | None = None) -> None:
        self._arguments: tuple[Any, ...] = (kind, at, None if once is None else str(once))

    def __call__(self, num_envs: int, seed: int | None) -> VecEnv:
        return DummyVecEnv([lambda: Faulty(*self._arguments)] * num_envs)


@final
class Numbered(gym.Env):
    """Rewards are numbers that no other step has, in whatever process. The observation is the process's id."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 1e9, (1,), np.float32)

    def __init__(self, file: str) -> None:
        self._file = file

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.array([os.getpid()], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        with open(self._file, "ab") as file:  # one byte for each step
            file.write(b".")
            file.flush()
            number = file.tell()
        return np.array([os.getpid()], np.float32), float(number), False, False, {}


@final
class NumberedWorld:
    """Makes them; can be sent to actors."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)

    def __call__(self, num_envs: int, seed: int | None) -> VecEnv:
        return DummyVecEnv([lambda: Numbered(self._file)] * num_envs)
