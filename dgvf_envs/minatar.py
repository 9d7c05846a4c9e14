"""MinAtar (Young & Tian 2019), registered with Gymnasium when this is imported: `MinAtar/Asterix-v1` and so on."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

if find_spec("minatar") is not None and "MinAtar/Asterix-v1" not in gym.registry:
    import_module("minatar.gym").register_envs()


@final
class ChannelsFirst(gym.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """Observations [C, 10, 10] as 0.0 and 1.0 in place of booleans [10, 10, C]."""

    def __init__(self, env: gym.Env[np.ndarray, Any]) -> None:
        super().__init__(env)
        assert env.observation_space.shape is not None
        height, width, channels = env.observation_space.shape
        self.observation_space = Box(0.0, 1.0, (channels, height, width), np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.moveaxis(observation, -1, 0).astype(np.float32)
