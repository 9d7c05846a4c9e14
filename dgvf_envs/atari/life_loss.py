"""Ending the agent's episode when a life is lost, while the game continues."""

from __future__ import annotations

from typing import Any, SupportsFloat, TypeVar, final

import gymnasium as gym
import numpy as np

Lives = TypeVar("Lives", int, np.ndarray)


def life_lost(before: Lives, after: Lives) -> Any:
    """Whether a life was lost in a step; for integers or arrays `[N]`.

    The last life counts too, as in DeepMind's `dqn_zoo`: some games continue for a few frames after it is lost.
    """
    return after < before


@final
class LifeLossEnds(gym.Wrapper[np.ndarray, int, np.ndarray, int], gym.utils.RecordConstructorArgs):
    """Sets `terminated` when a life is lost; the `reset()` that follows continues the game.

    This must be the outermost wrapper, so that the frame stack is continued too. A `reset` with a seed or with options,
    or at any other time, starts a new game.
    """

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: an Atari environment with `lives` in its infos.
        """
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._lives = 0
        self._continuation: tuple[np.ndarray, dict[str, Any]] | None = None
        """The result of the next `reset()` if it continues the game."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        continuation, self._continuation = self._continuation, None
        if continuation is not None and seed is None and not options:
            return continuation
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return observation, info

    def step(self, action: int) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, game_over, truncated, info = self.env.step(action)
        lost = life_lost(self._lives, info["lives"])
        self._lives = info["lives"]
        continues = lost and not (game_over or truncated)
        self._continuation = (observation.copy(), dict(info)) if continues else None
        return observation, reward, game_over or lost, truncated, info
