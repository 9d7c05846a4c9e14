"""Scores and lengths of whole games, for many games at once."""

from __future__ import annotations

import time
from typing import Any, final

import numpy as np


@final
class GameRecords:
    """What each of N running games has scored; in the terms of Stable-Baselines3's `Monitor`."""

    def __init__(self, num_envs: int) -> None:
        """
        Args:
            num_envs: the number of games N.
        """
        self.scores = np.zeros(num_envs)
        """`[N]` float64: the sums of unclipped rewards."""
        self.steps = np.zeros(num_envs, dtype=np.int64)
        """`[N]`: the agent's steps."""
        self._made = time.time()

    def begin(self, games: np.ndarray) -> None:
        """Start anew where `games` `[N]` is true."""
        self.scores[games] = 0.0
        self.steps[games] = 0

    def add(self, rewards: np.ndarray) -> None:
        """Count one step of every game, with its unclipped rewards `[N]`."""
        self.scores += rewards
        self.steps += 1

    def of(self, games: np.ndarray) -> dict[str, Any]:
        """Score `r`, steps `l` and seconds `t` since this was made where `games` `[N]` is true, else 0; each `[N]`."""
        return {
            "r": np.where(games, self.scores, 0.0),
            "l": np.where(games, self.steps, 0),
            "t": np.where(games, round(time.time() - self._made, 6), 0.0),
        }
