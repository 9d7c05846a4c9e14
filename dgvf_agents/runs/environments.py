"""The environments of a training run: those that it trains in, those that it is evaluated in, and one in a window."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.runs.config import TrainConfig
from dgvf_envs.atari import make_atari, make_atari_vec
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec


def training_environments(config: TrainConfig, seed: int | None = None) -> VecEnv:
    """The copies that a configuration trains in.

    Args:
        config: the run's.
        seed: of the first copy; the configuration's when left out.
    """
    seed = config.seed if seed is None else seed
    if config.atari is not None:
        return _games(config, config.n_envs, seed)
    return make_vec(config.env, config.n_envs, seed, env_kwargs=config.env_kwargs, wrapper_class=_wrapper(config))


def evaluation_environments(config: TrainConfig, copies: int, seed: int) -> VecEnv:
    """Copies of the world as evaluation has it; of a game, under the rules of training, with whole games as episodes.

    Args:
        config: the run's.
        copies: how many ≥ 1.
        seed: of the first copy.
    """
    if config.atari is not None:
        return _games(config, copies, seed)
    return make_vec(config.env, copies, seed, env_kwargs=config.evaluation_kwargs, wrapper_class=_wrapper(config))


def window(config: TrainConfig) -> gym.Env[Any, Any]:
    """One copy in a window; an episode of a game is all of it, whatever a lost life is in training."""
    if config.atari is not None:
        return make_atari(config.env, dataclasses.replace(config.atari, life_loss_ends=False), render_mode="human")
    env = gym.make(config.env, render_mode="human", **config.evaluation_kwargs)
    wrapper = _wrapper(config)
    return env if wrapper is None else wrapper(env)


def _wrapper(config: TrainConfig) -> Callable[[gym.Env], gym.Wrapper] | None:
    """
    Raises:
        ValueError: `env_wrapper` does not name a class of wrappers.
    """
    if config.env_wrapper is None:
        return None
    module, _, name = config.env_wrapper.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"env_wrapper must be module:Class, got {config.env_wrapper!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, gym.Wrapper)):
        raise ValueError(f"env_wrapper must name a gymnasium.Wrapper, got {config.env_wrapper!r}")
    return found


def _games(config: TrainConfig, copies: int, seed: int) -> VecEnv:
    """They tell Stable-Baselines3 the scores of whole games themselves; a monitor around them would see lives."""
    assert config.atari is not None
    env = GymnasiumVecEnv(make_atari_vec(config.env, copies, config.atari, threads=config.threads))
    env.seed(seed)
    env.action_space.seed(seed)
    return env
