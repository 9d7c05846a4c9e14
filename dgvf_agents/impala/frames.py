"""Stacks of frames as unique frames: consecutive observations of a frame stack share all frames but one."""

from __future__ import annotations

from typing import NamedTuple, final

import gymnasium as gym
import numpy as np


class Stacks(NamedTuple):
    """Frame stacks, each frame stored once."""

    frames: np.ndarray
    """`[N, H, W]`: the unique frames."""
    indices: np.ndarray
    """`[T + 1, B, C]` integer in [0, N): the frames of each observation."""
    final_indices: np.ndarray
    """`[E, C]`: likewise of final observations."""


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
