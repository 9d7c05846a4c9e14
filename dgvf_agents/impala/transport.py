"""What travels between actors and the learner, and the learner's batch made of it. All arrays are NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.devices import upload
from dgvf_agents.impala.frames import Stacks, decode, decode_finals, encode, may_stack_frames
from dgvf_agents.rollout.builder import bootstrap_positions


class Parameters(NamedTuple):
    """Parameters that actors act with."""

    version: int
    """Number of updates before them."""
    theta: np.ndarray
    """`[n]`: packed θ."""
    statistics: dict[str, np.ndarray]
    """Running statistics by name."""


class Arrays(NamedTuple):
    """Observations as they are."""

    observations: np.ndarray
    """`[T + 1, B, *obs]`: o_0 … o_T."""
    finals: np.ndarray
    """`[E, *obs]`: final observations of episodes that ended before the last step."""


Observed = Arrays | Stacks


class PackedRollout(NamedTuple):
    """A rollout of one actor, with the fields of `Rollout`."""

    observed: dict[str, Observed]
    """By name for a Dict space, otherwise under the empty name."""
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    behavior_log_probs: np.ndarray
    starts: np.ndarray
    """`[B]` boolean: whether an episode starts with the rollout."""
    infos: list[dict[str, Any]]
    """Of finished episodes, as Stable-Baselines3 reads them: `episode`, `is_success`."""


class Message(NamedTuple):
    """What an actor's call returns."""

    actor: int
    incarnation: int
    """How often the actor was replaced before."""
    sequence: int
    """Number of rollouts of this incarnation before."""
    version: int
    """Version of the parameters that the actor acted with."""
    rollout: PackedRollout


def pack(rollout: Rollout, space: gym.Space, starts: np.ndarray, infos: list[dict[str, Any]]) -> PackedRollout:
    """A rollout as arrays, its frame stacks as unique frames.

    Args:
        rollout: on the CPU, with `behavior_log_probs`.
        space: observation space.
        starts: `[B]` boolean.
        infos: of finished episodes.
    """
    assert rollout.behavior_log_probs is not None
    terminated, truncated = rollout.terminated.numpy(), rollout.truncated.numpy()
    ends = np.nonzero((terminated | truncated)[:-1])
    pairs = _named(rollout.observations), _named(rollout.next_observations), _spaces(space)
    observed = {
        name: _observed(pairs[0][name], pairs[1][name], pairs[2][name], (ends[0], ends[1])) for name in pairs[0]
    }
    actions, rewards, log_probs = rollout.actions, rollout.rewards, rollout.behavior_log_probs
    return PackedRollout(
        observed, actions.numpy(), rewards.numpy(), terminated, truncated, log_probs.numpy(), starts, infos
    )


def batch_of(
    rollouts: Sequence[PackedRollout], device: torch.device, statistics: Params, index_terminated: bool
) -> Rollout:
    """The rollouts of several actors as one batch, side by side. Observations are decoded straight into the batch.

    Args:
        rollouts: of equal lengths T, in the order of the batch.
        device: device of the batch.
        statistics: `Rollout.statistics`.
        index_terminated: see `RolloutBuilder`.
    """
    actions, rewards, terminated, truncated, log_probs = (
        np.concatenate([getattr(one, name) for one in rollouts], axis=1)
        for name in ("actions", "rewards", "terminated", "truncated", "behavior_log_probs")
    )
    observations, following = _side_by_side(rollouts, rewards.shape)
    index, slot = bootstrap_positions(truncated | terminated if index_terminated else truncated)
    return Rollout(
        _uploaded(observations, device),
        upload(actions, device),
        upload(rewards, device),
        upload(terminated, device),
        upload(truncated, device),
        _uploaded(following, device),
        upload(index, device),
        upload(slot, device),
        statistics,
        behavior_log_probs=upload(log_probs, device),
    )


def size_of(rollout: PackedRollout) -> int:
    """Bytes of its arrays."""
    arrays = [array for observed in rollout.observed.values() for array in observed]
    return sum(array.nbytes for array in (*arrays, *rollout[1:7]))


def _observed(now: Tensor, following: Tensor, space: gym.Space, ends: tuple[np.ndarray, np.ndarray]) -> Observed:
    after = following.numpy()
    observations, finals = np.concatenate([now.numpy(), after[-1:]]), after[ends]
    stacks = encode(observations, finals, ends) if may_stack_frames(space) else None
    return Arrays(observations, finals) if stacks is None else stacks


def _side_by_side(
    rollouts: Sequence[PackedRollout], shape: tuple[int, ...]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """o_t and o_{t+1} by name, each `[T, B, *obs]`, for a batch of this shape [T, B]."""
    some = rollouts[0].observed
    observations = {name: np.empty((*shape, *_shape(one)), _dtype(one)) for name, one in some.items()}
    following = {name: np.empty_like(array) for name, array in observations.items()}
    first = 0
    for rollout in rollouts:
        columns = slice(first, first + rollout.rewards.shape[1])
        ends = np.nonzero((rollout.terminated | rollout.truncated)[:-1])
        for name, observed in rollout.observed.items():
            finals = _write(observed, observations[name][:, columns], following[name][:, columns])
            following[name][:, columns][ends] = finals
        first = columns.stop
    return observations, following


def _write(observed: Observed, now: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Write o_t and o_{t+1}, `[T, B, *obs]` each; the final observations, which are not among them."""
    if isinstance(observed, Stacks):
        decode(observed, now, 0)
        decode(observed, following, 1)
        return decode_finals(observed)
    now[:], following[:] = observed.observations[:-1], observed.observations[1:]
    return observed.finals


def _shape(observed: Observed) -> tuple[int, ...]:
    """Shape of one observation."""
    if isinstance(observed, Stacks):
        return (observed.indices.shape[-1], *observed.frames.shape[1:])
    return observed.observations.shape[2:]


def _dtype(observed: Observed) -> np.dtype:
    return observed.frames.dtype if isinstance(observed, Stacks) else observed.observations.dtype


def _named(observations: Observations) -> dict[str, Tensor]:
    return observations if isinstance(observations, dict) else {"": observations}


def _spaces(space: gym.Space) -> dict[str, gym.Space]:
    return dict(space.spaces) if isinstance(space, gym.spaces.Dict) else {"": space}


def _uploaded(observations: dict[str, np.ndarray], device: torch.device) -> Observations:
    tensors = {name: upload(array, device) for name, array in observations.items()}
    return tensors.get("", tensors)
