"""Losing a life as an end of the agent's episode, while the game goes on."""

from __future__ import annotations

from typing import Any, SupportsFloat, TypeVar, final

import gymnasium as gym
import numpy as np

Lives = TypeVar("Lives", int, np.ndarray)


def life_lost(before: Lives, after: Lives) -> Any:
    """Whether a step cost a life; for numbers, or arrays `[N]`.

    The last life counts too, as in DeepMind's `dqn_zoo`: some games go on for a few frames without lives before they
    are over.
    """
    return after < before


@final
class LifeLossEnds(gym.Wrapper[np.ndarray, int, np.ndarray, int], gym.utils.RecordConstructorArgs):
    """Reports `terminated` where a life is lost; the `reset()` that follows goes on with the game as it is.

    It comes last, outside the frame stack, so that the stack goes on too. A `reset` with a seed, with options, or at
    any other moment starts a new game.
    """

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: an Atari environment whose infos have `lives`.
        """
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._lives = 0
        self._resting: tuple[np.ndarray, dict[str, Any]] | None = None
        """What a reset returns where a life was lost and the game goes on."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        resting, self._resting = self._resting, None
        if resting is not None and seed is None and not options:
            return resting
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return observation, info

    def step(self, action: int) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, game_over, truncated, info = self.env.step(action)
        lost = life_lost(self._lives, info["lives"])
        self._lives = info["lives"]
        goes_on = lost and not (game_over or truncated)
        self._resting = (observation.copy(), dict(info)) if goes_on else None
        return observation, reward, game_over or lost, truncated, info
