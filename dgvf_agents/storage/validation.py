"""Checks of values that a file holds, before any of them is used.

A file may fit its checksum and still be malformed. What does not fit the model is named where the file is loaded, and
does not fail in the middle of training. Every check raises a ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import is_integer
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.finite import first_not_finite
from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.learner_state import like


@final
@dataclass(frozen=True)
class Spaces:
    """What shapes and values in a rollout depend on."""

    observation: gym.Space
    """Of one environment."""
    action: gym.Space
    """Of one environment."""
    distribution: ActionDistribution
    """Of the actions."""
    statistics: Params
    """The encoder's running statistics."""
    off_policy: bool = False
    """Whether rollouts hold the behavior policy's log-probabilities."""


_ANNEALED = ("entropy_weight", "auxiliary_coefficient")
"""Fields of a rollout that it has only if schedules give them."""


def check_rollout(name: str, rollout: Any, spaces: Spaces) -> None:
    """Check that it is a rollout of T ≥ 1 steps from B ≥ 1 environments with these spaces."""
    check_type(name, rollout, Rollout)
    rewards, index = rollout.rewards, rollout.bootstrap_index
    for part, value, ndim in (("rewards", rewards, 2), ("bootstrap_index", index, 1)):
        if not isinstance(value, Tensor) or value.ndim != ndim or value.numel() == 0:
            raise ValueError(f"{name}.{part} must be a tensor with {ndim} axes, got {described(value)}")
    expected = _rollout_like(tuple(rewards.shape), len(index), spaces)
    given = rollout.given()
    like(name, given, {part: expected[part] for part in expected if part not in _ANNEALED or part in given})
    check_finite(name, given)
    check_below(f"{name}.bootstrap_index", index, rewards.numel())
    check_below(f"{name}.bootstrap_slot", rollout.bootstrap_slot, len(index))
    check_choices(f"{name}.actions", rollout.actions, spaces.action)
    check_choices(f"{name}.observations", rollout.observations, spaces.observation)
    check_choices(f"{name}.next_observations", rollout.next_observations, spaces.observation)


def _rollout_like(batch: tuple[int, ...], bootstraps: int, spaces: Spaces) -> dict[str, Any]:
    """The fields of a rollout, with shapes and dtypes but no memory."""
    observations, distribution = observations_like(spaces.observation, batch), spaces.distribution
    flags, indices = tensor_like(batch, np.bool_), tensor_like(batch, np.int64)
    return {
        "observations": observations,
        "actions": tensor_like((*batch, *distribution.action_shape), distribution.action_dtype),
        "rewards": tensor_like(batch, np.float32),
        "terminated": flags,
        "truncated": flags,
        "next_observations": observations,
        "bootstrap_index": tensor_like((bootstraps,), np.int64),
        "bootstrap_slot": indices,
        "statistics": spaces.statistics,
        **{part: tensor_like((), np.float32) for part in _ANNEALED},
        **({"behavior_log_probs": tensor_like(batch, np.float32)} if spaces.off_policy else {}),
    }


def tensor_like(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """A tensor of a shape and of NumPy's dtype, without memory."""
    return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device="meta")


def observations_like(space: gym.Space, batch: tuple[int, ...]) -> Observations:
    """Observations `[*batch, *obs]` without memory."""
    if isinstance(space, gym.spaces.Dict):
        parts = {name: observations_like(inner, batch) for name, inner in space.spaces.items()}
        return parts  # type: ignore[return-value]  # no Dict within a Dict
    return tensor_like((*batch, *(space.shape or ())), space.dtype)


def check_array(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Check that it is an array of this shape and dtype."""
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (shape, np.dtype(dtype)):
        raise ValueError(f"{name} must be an array {shape} of {np.dtype(dtype)}, got {described(value)}")


def check_choices(name: str, values: Any, space: gym.Space) -> None:
    """Check that `[..., *space]` are choices of the space, if it is one of choices."""
    if isinstance(space, gym.spaces.Dict):
        for part, inner in space.spaces.items():
            check_choices(f"{name}.{part}", values[part], inner)
    elif isinstance(space, gym.spaces.Discrete):
        check_below(name, values, int(space.n))
    elif isinstance(space, gym.spaces.MultiDiscrete):
        check_below(name, values, torch.as_tensor(space.nvec, device=values.device))


def check_below(name: str, values: Tensor, limit: Tensor | int) -> None:
    """Check that integers lie in [0, limit)."""
    if bool(((values < 0) | (values >= limit)).any()):
        raise ValueError(f"{name} must lie in [0, {limit}), got {values.min()} to {values.max()}")


def check_finite(name: str, tree: Any) -> None:
    """Check that tensors in nested dicts, lists and tuples are finite."""
    path = first_not_finite(tree)
    if path is not None:
        raise ValueError(f"{name}{path} must be finite")


def check_count(name: str, value: Any, most: float = float("inf")) -> None:
    """Check that it is an integer from 0 to `most`."""
    if not (is_integer(value) and 0 <= value <= most):
        raise ValueError(f"{name} must be an integer from 0 to {most}, got {described(value)}")


def check_type(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    """Check that it is of a type."""
    if not isinstance(value, kind):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"{name} must be a {names}, got {described(value)}")


def check_names(name: str, value: Any, names: Any) -> None:
    """Check that it is a dict with exactly these names."""
    check_type(name, value, dict)
    if set(value) != set(names):
        raise ValueError(f"{name} must have the names {sorted(names)}, got {sorted(map(str, value))}")


def described(value: Any) -> str:
    """A value for a message: the shape and dtype of one that is large."""
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} {tuple(value.shape)} of {value.dtype}"
    return f"{value!r:.80}"
