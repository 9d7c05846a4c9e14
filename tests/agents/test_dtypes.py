"""Spaces of every dtype: training, and going on from a file in the middle of a rollout."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from dgvf_agents import DGVFA2C
from tests.agents.test_updates import Samples

OBSERVATIONS = ["bool", "int8", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64"]
ACTIONS = [spaces.Discrete(3, dtype=np.int8), spaces.Box(-3, 3, (2,), np.int32), spaces.Box(-1, 1, (2,), np.float64)]


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        *((spaces.Box(0, 1, (3,), np.dtype(name).type), spaces.Discrete(2)) for name in OBSERVATIONS),
        *((spaces.Box(0, 1, (3,), np.float32), actions) for actions in ACTIONS),
    ],
    ids=str,
)
def test_every_dtype_trains_and_is_saved(observations: gym.Space, actions: gym.Space, tmp_path: Path) -> None:
    env = Samples(observations, actions)
    model = DGVFA2C("MlpPolicy", env, questions=3, compile=False, device="cpu", seed=0).learn(20)
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", env).learn(10, reset_num_timesteps=False)
    assert loaded.num_timesteps == 30
