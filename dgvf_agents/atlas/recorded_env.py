"""The environment that a run's game is recorded in."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.monitor import Monitor

from dgvf_agents.runs.config import TrainConfig
from dgvf_envs.atari import make_atari


def recorded_env(config: TrainConfig) -> gym.Env[Any, Any]:
    """One copy of the world that a run is evaluated in, with unclipped rewards and games known to a `Monitor` in it.

    An Atari game is played under the run's own rules: lives end episodes where they did in training.
    """
    if config.atari is not None:
        return make_atari(config.env, config.atari, render_mode="rgb_array")
    return Monitor(gym.make(config.env, **config.evaluation_kwargs))


def first_full_moment(config: TrainConfig) -> int:
    """The first moment ≥ 1 at which no frame of the observation is left black because the game had not begun yet."""
    return 1 if config.atari is None else max(1, config.atari.stack - 1)
