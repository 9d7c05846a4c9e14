"""The spec of an environment's id."""

from __future__ import annotations

import importlib

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec


def spec_of(env_id: str) -> EnvSpec:
    """The spec of an id; `"module:Id-v0"` imports the module first.

    Raises:
        ValueError: there is no such module.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # of what the module imports
            raise ValueError(f"env must name a module on Python's path before the colon, got {env_id!r}") from error
    return gym.spec(name)
