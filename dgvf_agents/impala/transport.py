"""Messages between actors and the learner, and the learner's batch made of them. All arrays are NumPy's.

Frame stacks travel as unique frames: consecutive observations share all frames but one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Observed(NamedTuple):
    """Observations whose parts are stored once: the frames of stacks, otherwise whole observations."""

    parts: np.ndarray
    """`[N, *part]`."""
    observations: np.ndarray
    """`[T + 1, B]` or, of stacks, `[T + 1, B, C]` integer in [0, N): the parts of o_0 … o_T."""
    finals: np.ndarray
    """`[E]` or `[E, C]`: likewise of final observations of episodes that ended before the last step."""


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

    @property
    def ends(self) -> tuple[np.ndarray, ...]:
        """Steps and environments `[E]` of episodes that end before the last step."""
        return np.nonzero((self.terminated | self.truncated)[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in (*(a for one in self.observed.values() for a in one), *self[1:7]))


_SAME = ("actions", "rewards", "terminated", "truncated", "behavior_log_probs")
"""Fields that are sent as they are."""


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
    arrays = {name: getattr(rollout, name).numpy() for name in _SAME}
    packed = PackedRollout({}, **arrays, starts=starts, infos=infos, version=version)
    spaces = dict(space.spaces) if isinstance(space, gym.spaces.Dict) else {"": space}
    for name, following in _named(rollout.next_observations).items():
        after, before = following.numpy(), _named(rollout.observations)[name].numpy()
        whole = np.concatenate([before, after[-1:]])
        packed.observed[name] = encode(whole, after[packed.ends], may_stack_frames(spaces[name]))
    return packed


def batch_of(
    rollouts: Sequence[PackedRollout], statistics: Params, device: torch.device, index_terminated: bool
) -> Rollout:
    """The rollouts of several actors as one batch, side by side. Observations are decoded straight into the batch.

    Args:
        rollouts: of equal lengths T, in the order of the batch.
        statistics: `Rollout.statistics`.
        device: device of the batch.
        index_terminated: see `RolloutBuilder`.
    """
    arrays = {name: np.concatenate([getattr(one, name) for one in rollouts], axis=1) for name in _SAME}
    shape, now = arrays["rewards"].shape, {}
    for name, (parts, positions, _) in rollouts[0].observed.items():
        now[name] = np.empty((*shape, *positions.shape[2:], *parts.shape[1:]), parts.dtype)
    following = {name: np.empty_like(array) for name, array in now.items()}
    first = 0
    for rollout in rollouts:
        columns = slice(first, first + rollout.rewards.shape[1])
        for name, (parts, positions, finals) in rollout.observed.items():
            decode(parts, positions[:-1], now[name][:, columns])
            decode(parts, positions[1:], following[name][:, columns])
            following[name][:, columns][rollout.ends] = parts[finals]
        first = columns.stop
    truncated = arrays["truncated"]
    index, slot = bootstrap_positions(truncated | arrays["terminated"] if index_terminated else truncated)
    uploaded = {name: upload(array, device) for name, array in arrays.items()}
    observed = [{name: upload(array, device) for name, array in each.items()} for each in (now, following)]
    return Rollout(
        observations=observed[0].get("", observed[0]),
        next_observations=observed[1].get("", observed[1]),
        bootstrap_index=upload(index, device),
        bootstrap_slot=upload(slot, device),
        statistics=statistics,
        **uploaded,
    )


def _named(observations: Observations) -> dict[str, Tensor]:
    return observations if isinstance(observations, dict) else {"": observations}


def may_stack_frames(space: gym.Space) -> bool:
    """Whether observations can be frame stacks: images `[C, H, W]` of several channels."""
    shape = space.shape or ()
    return isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and len(shape) == 3 and shape[0] > 1


def encode(observations: np.ndarray, finals: np.ndarray, stacks: bool) -> Observed:
    """Observations without loss, as unique frames if these are at most half of all frames.

    Args:
        observations: `[T + 1, B, *obs]`.
        finals: `[E, *obs]`: final observations of episodes that ended before the last step.
        stacks: whether they may be frame stacks `[C, H, W]`.
    """
    lead = 3 if stacks else 2
    part, (places, final_places) = observations.shape[lead:], (observations.shape[:lead], finals.shape[: lead - 1])
    parts = np.concatenate([observations.reshape(-1, *part), finals.reshape(-1, *part)])
    positions = np.arange(len(parts))
    if stacks:
        found: dict[bytes, int] = {}
        positions = np.array([found.setdefault(frame.tobytes(), len(found)) for frame in parts])
        if 2 * len(found) > len(parts):
            return encode(observations, finals, False)
        parts = np.frombuffer(b"".join(found), parts.dtype).reshape(-1, *part)
    here, there = np.split(positions.astype(np.int32), [len(positions) - math.prod(final_places)])
    return Observed(parts, here.reshape(places), there.reshape(final_places))


def decode(parts: np.ndarray, positions: np.ndarray, out: np.ndarray) -> None:
    """Write observations.

    Args:
        parts: `[N, *part]`.
        positions: `[T, B]` or `[T, B, C]`.
        out: `[T, B, *obs]`, each `out[t]` contiguous.
    """
    for t in range(len(out)):
        np.take(parts, positions[t], axis=0, out=out[t], mode="clip")  # others copy via a buffer
