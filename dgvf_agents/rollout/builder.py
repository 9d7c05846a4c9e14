"""Turns the steps of B environments into a `Rollout`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.devices import CPU, upload

Arrays = np.ndarray | dict[str, np.ndarray]
"""Observations of one space, or of each of a Dict space's by name."""


@final
class RolloutBuilder:
    """Collects T steps from B environments and hands them out as tensors on a device.

    Observations go there one by one, as the agent needs them to act, and stay; all else goes there once per rollout.
    """

    def __init__(
        self,
        steps: int,
        copies: int,
        observation_space: gym.Space,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        device: torch.device = CPU,
        needs_final_observation: bool = True,
    ) -> None:
        """
        Args:
            steps: T.
            copies: B.
            observation_space: of one environment; observations keep its dtype.
            action_shape: of one action.
            action_dtype: of the actions.
            device: where rollouts are to lie.
            needs_final_observation: whether the auxiliary task reads the final observation of terminated episodes.
        """
        self._steps, self._copies, self._observation_space = steps, copies, observation_space
        self._action_shape, self._action_dtype = action_shape, action_dtype
        self._device, self._ends_are_seen = device, needs_final_observation
        self.clear()

    def clear(self) -> None:
        """Start a new rollout, in new arrays: those handed out stay as they are."""
        batch = (self._steps, self._copies)
        self._observed: list[Observations] = []
        self._ends: list[tuple[int, int, Any]] = []
        self._actions = np.empty((*batch, *self._action_shape), self._action_dtype)
        self._rewards = np.empty(batch, np.float32)
        self._terminated = np.zeros(batch, np.bool_)
        self._truncated = np.zeros(batch, np.bool_)
        self._t = 0

    def observe(self, observations: Arrays) -> Observations:
        """o_t of the coming step `[B, *obs]` on the device, to act on.

        Args:
            observations: `[B, *obs]`; copied, so that the environment may write over them.

        Raises:
            ValueError: one is not finite.
        """
        del self._observed[self._t :]
        self._observed.append(_uploaded(observations, self._observation_space, self._device))
        return self._observed[self._t]

    def add(
        self,
        actions: np.ndarray,
        rewards: np.ndarray,
        done: np.ndarray,
        following: Arrays,
        infos: list[dict[str, Any]],
    ) -> None:
        """One step from what was observed last, as a Stable-Baselines3 `VecEnv` returns it.

        Args:
            actions: `[B, *action]`.
            rewards: `[B]`.
            done: `[B]`: the episode ended.
            following: `[B, *obs]`: what is observed next, the next episode's first where `done`.
            infos: `terminal_observation` and `TimeLimit.truncated` where `done`. Where nothing depends on the former
                and it is missing, the next episode's first observation stands in for it.

        Raises:
            ValueError: an observation is not finite, or a `terminal_observation` that is needed is missing.
        """
        t, self._t = self._t, self._t + 1
        self._actions[t], self._rewards[t] = actions, rewards
        for copy in np.flatnonzero(done).tolist():
            last, by_time = infos[copy].get("terminal_observation"), infos[copy].get("TimeLimit.truncated", False)
            if last is not None:
                self._ends.append((t, copy, deepcopy(last)))
            elif by_time or self._ends_are_seen:
                raise ValueError(_missing(by_time, copy))
            self._truncated[t, copy], self._terminated[t, copy] = by_time, not by_time
        if self._t == self._steps:
            self.observe(following)

    @property
    def steps(self) -> int:
        """The steps added so far."""
        return self._t

    def get_state(self) -> dict[str, Any]:
        """The steps added so far, as a dict of numbers, arrays and tensors, which later steps change."""
        return {name: getattr(self, name) for name in _STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from where `get_state` was called on a builder of the same sizes, with tensors on this one's device."""
        vars(self).update({name: state[name] for name in _STATE})

    def build(self, statistics: Params | None = None) -> Rollout:
        """The rollout of the T steps added.

        Args:
            statistics: `Rollout.statistics`.

        Raises:
            ValueError: the environment gave a reward or an observation that is not finite.
        """
        if not np.isfinite(self._rewards).all():
            step, copy = np.argwhere(~np.isfinite(self._rewards))[0]
            raise ValueError(_not_finite("rewards", self._rewards[step, copy], copy))
        index, slot = bootstrap_positions(self._truncated)
        actions, rewards, terminated, truncated = (
            upload(array, self._device) for array in (self._actions, self._rewards, self._terminated, self._truncated)
        )
        return Rollout(
            _stacked(self._observed[:-1]),
            actions,
            rewards,
            terminated,
            truncated,
            self._next_observations(),
            upload(index, self._device),
            upload(slot, self._device),
            statistics or {},
        )

    def _next_observations(self) -> Observations:
        """What was observed after each step, the true last observation where an episode ended."""
        following = _stacked(self._observed[1:])
        if not self._ends:
            return following
        steps, copies, last = zip(*self._ends, strict=True)
        place = tuple(upload(np.array(numbers), self._device) for numbers in (steps, copies))
        if isinstance(following, dict):
            batch: Arrays = {name: np.stack([one[name] for one in last]) for name in following}
        else:
            batch = np.stack(last)
        uploaded = _uploaded(batch, self._observation_space, self._device, copies)
        for whole, ends in zip(_leaves(following), _leaves(uploaded), strict=True):
            whole[place] = ends
        return following


_STATE = ("_t", "_observed", "_ends", "_actions", "_rewards", "_terminated", "_truncated")


def _uploaded(
    observations: Arrays, space: gym.Space, device: torch.device, copies: Sequence[int] | None = None
) -> Observations:
    """A copy of observations `[N, *obs]` on the device; `copies` says whose they are."""
    if isinstance(space, gym.spaces.Dict):
        assert isinstance(observations, dict)
        parts = {name: _uploaded(observations[name], inner, device, copies) for name, inner in space.spaces.items()}
        return cast(dict[str, Tensor], parts)
    array = np.array(observations, space.dtype, order="C")
    if device.type == "cpu" and array.dtype == np.uint8 and array.ndim == 4:  # images
        return upload(array, device).contiguous(memory_format=torch.channels_last)  # as its convolutions take them
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        place = tuple(np.argwhere(~np.isfinite(array))[0])
        raise ValueError(_not_finite("observations", array[place], place[0] if copies is None else copies[place[0]]))
    return upload(array, device)


def _stacked(observed: list[Observations]) -> Observations:
    """`[T, B, *obs]` of T observations `[B, *obs]`."""
    if isinstance(observed[0], dict):
        return {name: torch.stack([cast(dict[str, Tensor], one)[name] for one in observed]) for name in observed[0]}
    return torch.stack(cast(list[Tensor], observed))


def _leaves(observations: Observations) -> list[Tensor]:
    return list(observations.values()) if isinstance(observations, dict) else [observations]


def _not_finite(name: str, value: Any, copy: int) -> str:
    return f"{name} must be finite, the environment gave {value} in copy {copy}"


def _missing(by_time: bool, copy: int) -> str:
    why = "returns of a truncated episode are bootstrapped from it" if by_time else "the auxiliary task looks at it"
    return (
        f"infos must hold terminal_observation where an episode ends, copy {copy} of the environment gave none: {why}, "
        "so have the VecEnv put the episode's last observation there, as those of Stable-Baselines3 do"
    )


def bootstrap_positions(truncated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where returns are bootstrapped from: the last step of every copy, and truncations before it.

    Args:
        truncated: `[T, B]` boolean.

    Returns:
        `Rollout.bootstrap_index` `[K]` and `Rollout.bootstrap_slot` `[T, B]`. K has room for B / 4 early truncations,
        or 4, 16, … times as many, so that a compiled update hardly ever meets a new shape; places beyond the ones
        needed repeat the first.
    """
    steps, copies = truncated.shape
    early = np.flatnonzero(truncated[:-1])
    last = np.arange((steps - 1) * copies, steps * copies)
    room = -(-copies // 4)
    while room < len(early):
        room *= 4
    padding = np.full(room - len(early), last[0])
    slot = np.zeros(steps * copies, np.int64)
    slot[last] = np.arange(copies)
    slot[early] = copies + np.arange(len(early))
    return np.concatenate([last, early, padding]), slot.reshape(steps, copies)
