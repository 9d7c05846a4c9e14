"""The state of a learner, one field per quantity that learning changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.optimizers import OptimizerState
from dgvf_agents.core.types import Params, Rollout


class UnrollState(NamedTuple):
    """An unroll in progress: the inner updates that lead from its start to θ_k."""

    start: InnerState
    """θ_0 and the inner optimizer's statistics, by name."""
    rollouts: list[Rollout]
    """Batches 1 … k."""
    learning_rates: list[Tensor]
    """α′ of each update, scalars."""
    random_states: list[list[Tensor]]
    """States of the random number generators before each update, for dropout."""


class LearnerState(NamedTuple):
    """Everything that learning changes. Training that continues from it is bitwise the same."""

    theta: Params
    """θ by name."""
    statistics: OptimizerState | None
    """Statistics of the inner optimizer, by name; `None`: initial statistics."""
    eta: Params
    """η by name."""
    meta_optimizer: dict[str, Any] | None
    """State dict of Adam on η; `None`: initial state."""
    unroll: UnrollState | None
    """The unroll in progress; `None` between unrolls, and if no questions are discovered."""
    updates: int
    """Number of inner updates so far."""
    meta_updates: int
    """Number of meta-updates so far."""
    meta_skipped: int
    """Number of meta-gradients skipped so far."""
    metrics: InnerMetrics | None
    """Metrics of the last inner update."""
    meta_loss: Tensor | None
    """Last meta-loss."""
    meta_gradient_norm: Tensor | None
    """Norm of the last meta-gradient before clipping."""


def like(name: str, given: Any, own: Any) -> Any:
    """`given` on the device of `own` and in the order of its names. Both are nested dicts of tensors.

    Raises:
        ValueError: names, shapes or dtypes of `given` and `own` differ.
    """
    if isinstance(own, dict):
        if not isinstance(given, dict) or set(given) != set(own):
            found = sorted(map(str, given)) if isinstance(given, dict) else f"a {type(given).__name__}"
            raise ValueError(f"{name} must have the names {sorted(own)}, got {found}")
        return {key: like(f"{name}.{key}", given[key], value) for key, value in own.items()}
    if not isinstance(given, Tensor):
        raise ValueError(f"{name} must be a tensor, got a {type(given).__name__}")
    if (given.shape, given.dtype) != (own.shape, own.dtype):
        expected, found = (f"{tuple(t.shape)} of {t.dtype}" for t in (own, given))
        raise ValueError(f"{name} must be {expected}, got {found}")
    return given.to(own.device)


def ends_at(start: InnerState, end: InnerState, current: InnerState) -> bool:
    """Whether `end` equals `current` up to a tenth of the distance from `start`: other devices round differently."""
    norm = torch.linalg.vector_norm
    leaves = zip(*(tree_leaves(state) for state in (start, end, current)), strict=True)
    return all(bool(norm(c - e) <= 0.1 * norm(e - s)) for s, e, c in leaves)  # NaN compares false
