"""The environments of a run, for training, for evaluation and in a window, and the returns known of them."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.train.config import TrainConfig
from dgvf_envs.atari import GAMES, make_atari, make_atari_vec
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec, spec_of

_PACKAGES = ("dgvf_envs", "gymnasium", "minigrid", "minatar", "ale_py")
"""Packages whose environments and wrappers a file may name."""


def modules_of(config: TrainConfig) -> list[str]:
    """The modules that a configuration names, apart from those of `_PACKAGES`."""
    named = (config.env.rpartition(":")[0], (config.env_wrapper or "").partition(":")[0])
    return [module for module in dict.fromkeys(named) if module and module.partition(".")[0] not in _PACKAGES]


def import_named(config: TrainConfig) -> None:
    """Import what a configuration of the user's own names, which files may name from then on.

    Raises:
        ValueError: there is no such module, environment or wrapper.
    """
    _wrapper(config)
    if config.atari is None:
        spec_of(config.env)


def check_names(config: TrainConfig) -> None:
    """Check that what a file names is known already, or a part of `_PACKAGES` as installed: nothing else is imported.

    Raises:
        ValueError: an environment or wrapper is not.
    """
    for module in modules_of(config):
        if module not in sys.modules:
            raise ValueError(f"it names the module {module}, which is not imported: if you trust it, --import {module}")
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if os.path.realpath(entry) != os.path.realpath(".")]
    try:
        import_named(config)
    finally:
        sys.path[:] = path
    if config.env.rpartition(":")[2].startswith("GymV2"):
        raise ValueError(f"env must not be one that loads what env_kwargs name, got {config.env!r}")


def training_environments(config: TrainConfig, seed: int | None = None) -> VecEnv:
    """The training environments of a configuration.

    Args:
        config: configuration of the run.
        seed: seed of the first environment (default: the configuration's).
    """
    return _environments(config, config.n_envs, config.seed if seed is None else seed, "env_kwargs")


@final
@dataclass(frozen=True)
class TrainingEnvFactory:
    """Makes training environments, in other processes too."""

    config: TrainConfig
    """Configuration of the run."""

    def __call__(self, num_envs: int, seed: int | None) -> VecEnv:
        """So many training environments; `seed` of the first one."""
        return training_environments(dataclasses.replace(self.config, n_envs=num_envs), seed)


def environments_of_run(config: TrainConfig) -> VecEnv | TrainingEnvFactory:
    """The training environments, or what distributed actors make them with."""
    if not config.actors:
        return training_environments(config)
    # without what may change when the run is resumed, so that its actors keep their configuration
    same = dataclasses.replace(config, actors=0, envs_per_actor=None, address=None, device="cpu")
    return TrainingEnvFactory(same)


def evaluation_environments(config: TrainConfig, num_envs: int, seed: int) -> VecEnv:
    """The evaluation environments of a configuration. On Atari: under the rules of training, scored on whole games.

    Args:
        config: configuration of the run.
        num_envs: number of environments ≥ 1.
        seed: seed of the first environment.
    """
    return _environments(config, num_envs, seed, "evaluation_kwargs")


def worlds_of(config: TrainConfig) -> str | None:
    """Differences between the environments of training and evaluation, in one line; `None` if there are none."""
    if config.env_kwargs == config.evaluation_kwargs:
        return None

    def described(arguments: dict[str, Any]) -> str:
        return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "the environment's defaults"

    return (
        f"training: {described(config.env_kwargs)}; evaluation: {described(config.evaluation_kwargs)}. Returns of the "
        "two cannot be compared."
    )


def window(config: TrainConfig, render_mode: str = "human") -> gym.Env[Any, Any]:
    """An environment in a window. On Atari an episode is a whole game, even if a lost life ends it in training.

    Raises:
        ValueError: the environment cannot be drawn.
    """
    if config.atari is not None:
        return make_atari(config.env, dataclasses.replace(config.atari, life_loss_ends=False), render_mode=render_mode)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is not in the possible render_modes")  # an error below
            env = gym.make(spec_of(config.env), render_mode=render_mode, **config.evaluation_kwargs)
    except TypeError as error:
        raise ValueError(f"env must take render_mode to be shown, got {config.env}: {error}") from error
    if not {render_mode, "rgb_array"} & {*(env.metadata.get("render_modes") or ())}:
        raise ValueError(f"env must have {render_mode} among its render_modes to be shown, got {config.env}")
    return wrapped(config, env)


def wrapped(config: TrainConfig, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment in the wrapper that `env_wrapper` names.

    Raises:
        ValueError: it does not name a wrapper class.
    """
    wrapper = _wrapper(config)
    return env if wrapper is None else wrapper(env)


def can_be_shown(config: TrainConfig) -> bool:
    """Whether `window` takes the environment."""
    if config.atari is None:
        try:
            window(config, "rgb_array").close()
        except ValueError:
            return False
    return True


def _environments(
    config: TrainConfig, num_envs: int, seed: int, field: Literal["env_kwargs", "evaluation_kwargs"]
) -> VecEnv:
    """Environments with the keyword arguments that a field of the configuration has.

    On Atari they report scores of whole games to Stable-Baselines3; a `VecMonitor` would report lives.

    Raises:
        ValueError: the environment does not take them.
    """
    if config.atari is not None:
        games = GymnasiumVecEnv(make_atari_vec(config.env, num_envs, config.atari, threads=config.threads))
        games.seed(seed)
        games.action_space.seed(seed)
        return games
    arguments: dict[str, Any] = getattr(config, field)
    wrapper_class = _wrapper(config)
    try:
        return make_vec(config.env, num_envs, seed, env_kwargs=arguments, wrapper_class=wrapper_class)
    except TypeError as error:
        if not arguments:
            raise
        raise ValueError(
            f"{field} must be keyword arguments of {config.env}, got {arguments!r}: {error}. The preset may set them "
            "for its own environment; the four rooms' set none"
        ) from error


def _wrapper(config: TrainConfig) -> Callable[[gym.Env], gym.Wrapper] | None:
    """The wrapper class that `env_wrapper` names.

    Raises:
        ValueError: `env_wrapper` does not name a wrapper class.
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


@final
@dataclass(frozen=True)
class ReferenceReturns:
    """Undiscounted returns that others are compared with, in an environment with its default arguments."""

    optimal: float | None
    """1 in normalized returns: an optimal policy, the level that counts as solved, a published score, or a human player
    on Atari; `None` if unknown."""
    random: float | None
    """0 in normalized returns: the uniformly random policy; `None` if unknown."""
    solved: float | None = None
    """Final return from which on a seed counts as solved; `None`: no threshold."""
    logarithmic: bool = False
    """Whether pictures have a logarithmic scale."""

    def normalized(self, value: float) -> float:
        """0 at the random policy's return, 1 at the optimal one; NaN if one is unknown."""
        if self.optimal is None or self.random is None:
            return math.nan
        return (value - self.random) / (self.optimal - self.random)


REFERENCE_RETURNS: dict[str, ReferenceReturns] = {
    "CollectObjects-v0": ReferenceReturns(3.0, 0.156, 2.9),
    "CollectObjectsSmall-v0": ReferenceReturns(3.0, 0.331, 2.9),
    "PuddleWorld-v0": ReferenceReturns(-36.7, -12_888.0, -45.0, logarithmic=True),
}
"""By environment id. From the pages of the environments, which say how they were computed."""


def reference_returns(config: TrainConfig) -> ReferenceReturns | None:
    """Those that a run's evaluation returns compare with; `None` if unknown."""
    if config.atari is not None:
        scores = GAMES.get(config.env)
        return None if scores is None else ReferenceReturns(scores.human, scores.random)
    return None if config.evaluation_kwargs or config.env_wrapper else REFERENCE_RETURNS.get(config.env)
