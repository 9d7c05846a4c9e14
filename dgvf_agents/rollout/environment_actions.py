"""What an environment gets of the actions that a policy drew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

FromPolicy = Callable[[np.ndarray], np.ndarray]
"""From actions `[B, *drawn]` as a rollout holds them to `[B, *action]` of the environment's space."""


def for_environment(space: gym.Space, squashed: bool = False) -> FromPolicy:
    """How actions for a space are handed to it, as Stable-Baselines3 does it.

    Args:
        space: of the environment's actions.
        squashed: whether actions of a Box come in [-1, 1], to be stretched to its bounds; they are clipped otherwise.
    """
    if isinstance(space, gym.spaces.Box):
        low, high, shape, kind = space.low, space.high, space.shape, space.dtype

        def box(actions: np.ndarray) -> np.ndarray:
            actions = actions.reshape(-1, *shape)
            actions = low + 0.5 * (actions + 1.0) * (high - low) if squashed else np.clip(actions, low, high)
            return actions.astype(kind, copy=False)

        return box
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        dtype: Any = space.dtype
        return lambda actions: actions.astype(dtype)
    return _unchanged


def _unchanged(actions: np.ndarray) -> np.ndarray:
    return actions
