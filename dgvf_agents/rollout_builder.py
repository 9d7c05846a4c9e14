"""Turns the steps of B environments into a `Rollout`."""

from __future__ import annotations

from typing import Any, final

import gymnasium as gym
import numpy as np
import torch

from dgvf_agents.types import Observations, Params, Rollout

Arrays = np.ndarray | dict[str, np.ndarray]
"""Observations of one space, or of each of a Dict space's by name."""


@final
class RolloutBuilder:
    """Collects T steps from B environments in NumPy arrays and hands them out as tensors."""

    def __init__(
        self,
        steps: int,
        copies: int,
        observation_space: gym.Space,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
    ) -> None:
        """
        Args:
            steps: T.
            copies: B.
            observation_space: of one environment.
            action_shape: of one action.
            action_dtype: of the actions.
        """
        self._steps, self._copies, self._observation_space = steps, copies, observation_space
        self._action_shape, self._action_dtype = action_shape, action_dtype
        self.clear()

    def clear(self) -> None:
        """Start a new rollout, in new arrays: those handed out stay as they are."""
        batch = (self._steps, self._copies)
        self._observations = _empty(self._observation_space, batch)
        self._next_observations = _empty(self._observation_space, batch)
        self._actions = np.empty((*batch, *self._action_shape), self._action_dtype)
        self._rewards = np.empty(batch, np.float32)
        self._terminated = np.zeros(batch, np.bool_)
        self._truncated = np.zeros(batch, np.bool_)
        self._t = 0

    def add(
        self,
        observations: Arrays,
        actions: np.ndarray,
        rewards: np.ndarray,
        done: np.ndarray,
        following: Arrays,
        infos: list[dict[str, Any]],
    ) -> None:
        """One step, as a Stable-Baselines3 `VecEnv` returns it.

        Args:
            observations: `[B, *obs]`: o_t.
            actions: `[B, *action]`.
            rewards: `[B]`.
            done: `[B]`: the episode ended.
            following: `[B, *obs]`: the next observations, the next episode's first where `done`.
            infos: `terminal_observation` and `TimeLimit.truncated` where `done`.
        """
        t, self._t = self._t, self._t + 1
        _put(self._observations, t, observations)
        _put(self._next_observations, t, following)
        self._actions[t], self._rewards[t] = actions, rewards
        for copy in np.flatnonzero(done):
            _put(self._next_observations, (t, copy), infos[copy]["terminal_observation"])
            by_time = infos[copy].get("TimeLimit.truncated", False)
            self._truncated[t, copy], self._terminated[t, copy] = by_time, not by_time

    @property
    def steps(self) -> int:
        """The steps added so far."""
        return self._t

    def get_state(self) -> dict[str, Any]:
        """The steps added so far, as a dict of numbers and arrays, which later steps change."""
        return {k: v for k, v in vars(self).items() if k == "_t" or isinstance(v, np.ndarray | dict)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from where `get_state` was called on a builder of the same sizes."""
        vars(self).update(state)

    def build(self, device: torch.device, statistics: Params | None = None) -> Rollout:
        """The rollout of the steps added.

        Args:
            device: where its tensors are to lie.
            statistics: `Rollout.statistics`.

        Raises:
            ValueError: the environment gave a reward or an observation that is not finite.
        """
        _check_finite("rewards", self._rewards)
        for array in [*_arrays(self._observations), *_arrays(self._next_observations)]:
            _check_finite("observations", array)
        index, slot = bootstrap_positions(self._truncated)

        def tensor(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        def tensors(arrays: Arrays) -> Observations:
            if isinstance(arrays, dict):
                return {name: tensor(array) for name, array in arrays.items()}
            return tensor(arrays)

        return Rollout(
            tensors(self._observations),
            tensor(self._actions),
            tensor(self._rewards),
            tensor(self._terminated),
            tensor(self._truncated),
            tensors(self._next_observations),
            tensor(index),
            tensor(slot),
            statistics or {},
        )


def _empty(space: gym.Space, batch: tuple[int, int]) -> Arrays:
    if isinstance(space, gym.spaces.Dict):
        return {name: np.empty((*batch, *(inner.shape or ())), inner.dtype) for name, inner in space.spaces.items()}
    return np.empty((*batch, *(space.shape or ())), space.dtype)


def _put(arrays: Arrays, place: Any, values: Any) -> None:
    if isinstance(arrays, dict):
        for name, array in arrays.items():
            array[place] = values[name]
    else:
        arrays[place] = values


def _arrays(arrays: Arrays) -> list[np.ndarray]:
    return list(arrays.values()) if isinstance(arrays, dict) else [arrays]


def _check_finite(name: str, values: np.ndarray) -> None:
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, the environment gave {_first_bad(values)}")


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
