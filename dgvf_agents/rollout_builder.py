"""Turns the steps of B environments into a `Rollout`."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch

from dgvf_agents.types import Rollout


@final
class RolloutBuilder:
    """Collects T steps from B environments in NumPy arrays and hands them out as tensors."""

    def __init__(self, steps: int, copies: int, observation_shape: tuple[int, ...], observation_dtype: Any) -> None:
        """
        Args:
            steps: T.
            copies: B.
            observation_shape: of one observation.
            observation_dtype: of the observations.
        """
        self._steps, self._copies = steps, copies
        self._observation_shape, self._observation_dtype = observation_shape, observation_dtype
        self.clear()

    def clear(self) -> None:
        """Start a new rollout, in new arrays: those handed out stay as they are."""
        batch = (self._steps, self._copies)
        self._observations = np.empty((*batch, *self._observation_shape), self._observation_dtype)
        self._next_observations = np.empty_like(self._observations)
        self._actions = np.empty(batch, np.int64)
        self._rewards = np.empty(batch, np.float32)
        self._terminated = np.zeros(batch, np.bool_)
        self._truncated = np.zeros(batch, np.bool_)
        self._t = 0

    def add(
        self,
        observations: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        done: np.ndarray,
        following: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """One step, as a Stable-Baselines3 `VecEnv` returns it.

        Args:
            observations: `[B, *obs]`: o_t.
            actions: `[B]`.
            rewards: `[B]`.
            done: `[B]`: the episode ended.
            following: `[B, *obs]`: the next observations, the next episode's first where `done`.
            infos: `terminal_observation` and `TimeLimit.truncated` where `done`.
        """
        t, self._t = self._t, self._t + 1
        self._observations[t], self._actions[t], self._rewards[t] = observations, actions, rewards
        self._next_observations[t] = following
        for copy in np.flatnonzero(done):
            self._next_observations[t, copy] = infos[copy]["terminal_observation"]
            by_time = infos[copy].get("TimeLimit.truncated", False)
            self._truncated[t, copy], self._terminated[t, copy] = by_time, not by_time

    def build(self, device: torch.device) -> Rollout:
        """The rollout of the steps added.

        Raises:
            ValueError: the environment gave a reward or an observation that is not finite.
        """
        if not np.isfinite(self._rewards).all():
            raise ValueError(f"rewards must be finite, the environment gave {_first_bad(self._rewards)}")
        if self._observation_dtype == np.float32 and not np.isfinite(self._next_observations).all():
            raise ValueError(f"observations must be finite, the environment gave {_first_bad(self._next_observations)}")
        index, slot = bootstrap_positions(self._truncated)
        arrays = (
            self._observations,
            self._actions,
            self._rewards,
            self._terminated,
            self._truncated,
            self._next_observations,
            index,
            slot,
        )
        return Rollout(*(torch.from_numpy(array).to(device) for array in arrays))


def bootstrap_positions(truncated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where returns are bootstrapped from: the last step of every copy, and truncations before it.

    Args:
        truncated: `[T, B]` boolean.

    Returns:
        `Rollout.bootstrap_index` `[K]` and `Rollout.bootstrap_slot` `[T, B]`. K is 2 B for up to B early truncations,
        then 3 B, 5 B, 9 B, …, so that a compiled update hardly ever meets a new shape; places beyond the ones needed
        repeat the first.
    """
    steps, copies = truncated.shape
    early = np.flatnonzero(truncated[:-1])
    last = np.arange((steps - 1) * copies, steps * copies)
    room = copies
    while room < len(early):
        room *= 2
    padding = np.full(room - len(early), last[0])
    slot = np.zeros(steps * copies, np.int64)
    slot[last] = np.arange(copies)
    slot[early] = copies + np.arange(len(early))
    return np.concatenate([last, early, padding]), slot.reshape(steps, copies)


def _first_bad(values: np.ndarray) -> str:
    place = tuple(np.argwhere(~np.isfinite(values))[0])
    return f"{values[place]} in copy {place[1]}"
