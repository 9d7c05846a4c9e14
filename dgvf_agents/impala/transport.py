"""Messages between actors and the learner, and the learner's batch made of them. All arrays are NumPy's.

Frame stacks travel as unique frames: consecutive observations of a stack share all frames but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.agents.rollout import bootstrap_positions
from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.devices import upload


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


class Stacks(NamedTuple):
    """Frame stacks, each frame stored once."""

    frames: np.ndarray
    """`[N, H, W]`: the unique frames."""
    indices: np.ndarray
    """`[T + 1, B, C]` integer in [0, N): the frames of each observation."""
    final_indices: np.ndarray
    """`[E, C]`: likewise of final observations."""


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
    version: int
    """Version of the parameters that the actor acted with."""


def pack(
    rollout: Rollout, space: gym.Space, version: int, starts: np.ndarray, infos: list[dict[str, Any]]
) -> PackedRollout:
    """A rollout as arrays, its frame stacks as unique frames.

    Args:
        rollout: on the CPU, with `behavior_log_probs`.
        space: observation space.
        version: of the parameters that acted.
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
        observed, actions.numpy(), rewards.numpy(), terminated, truncated, log_probs.numpy(), starts, infos, version
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


# --- frame stacks -----------------------------------------------------------------------------------------------------


def may_stack_frames(space: gym.Space) -> bool:
    """Whether observations can be frame stacks: images `[C, H, W]` of several channels."""
    shape = space.shape or ()
    return isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and len(shape) == 3 and shape[0] > 1


def encode(observations: np.ndarray, finals: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> Stacks | None:
    """Frame stacks as unique frames, without loss.

    An observation follows another if its frames but the newest are the other's but the oldest. The first observation of
    an episode follows none, and all its frames are stored.

    Args:
        observations: `[T + 1, B, C, H, W]`: consecutive observations, oldest frame first.
        finals: `[E, C, H, W]`: final observations of episodes that ended before the last step.
        ends: steps `[E]` and environments `[E]` of these; finals[e] comes after observations[ends[0][e], ends[1][e]].

    Returns:
        the unique frames, or `None` if most observations do not follow the one before, so that these are no stacks.
    """
    steps, num_envs, channels = observations.shape[:3]
    follows = np.stack([_follows(observations[t], observations[t + 1]) for t in range(steps - 1)])
    if follows.mean() < 0.5:
        return None
    pool = _Pool()
    index = np.empty((steps, num_envs, channels), np.int32)
    index[0] = pool.add(observations[0])
    for t in range(1, steps):
        index[t] = _add(pool, index[t - 1], observations[t], follows[t - 1])
    final_follows = _follows(observations[ends], finals)
    final_index = _add(pool, index[ends], finals, final_follows)
    return Stacks(pool.frames(), index, final_index)


def decode(stacks: Stacks, out: np.ndarray, start: int) -> None:
    """Write observations `start` … `start` + T - 1 to `out`.

    Args:
        stacks: what `encode` returned.
        out: `[T, B, C, H, W]`, each `out[t]` contiguous.
        start: index of the first observation.
    """
    for t in range(len(out)):
        np.take(stacks.frames, stacks.indices[start + t], axis=0, out=out[t], mode="clip")  # others copy via a buffer


def decode_finals(stacks: Stacks) -> np.ndarray:
    """The final observations `[E, C, H, W]`."""
    return stacks.frames[stacks.final_indices]


def _follows(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """`[B]`: whether the stacks `after` `[B, C, H, W]` are those `before`, shifted by one frame."""
    return (before[:, 1:] == after[:, :-1]).all(axis=(1, 2, 3))


def _add(pool: _Pool, before: np.ndarray, stacks: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """Indices `[B, C]` of stacks `[B, C, H, W]`, whose predecessors have the indices `before`."""
    index = np.concatenate([before[:, 1:], pool.add(stacks[:, -1:])], axis=1)
    if not follows.all():
        index[~follows, :-1] = pool.add(stacks[~follows, :-1])
    return index


@final
class _Pool:
    """Frames in the order in which they were added."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._size = 0

    def add(self, stacks: np.ndarray) -> np.ndarray:
        """Add frames `[B, C, H, W]`; their indices `[B, C]`."""
        start, (count, channels) = self._size, stacks.shape[:2]
        self._parts.append(stacks.reshape(count * channels, *stacks.shape[2:]))
        self._size += count * channels
        return np.arange(start, self._size, dtype=np.int32).reshape(count, channels)

    def frames(self) -> np.ndarray:
        """All frames `[N, H, W]`."""
        return np.concatenate(self._parts)
