"""Divergence: losses, parameters and statistics that are not finite."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from dgvf_agents.core.inner_metrics import InnerMetrics

_ADVICE = (
    "a smaller learning_rate or auxiliary_coefficient, max_grad_norm, or smaller rewards usually help; "
    "continue from an earlier checkpoint"
)


class NotFiniteError(FloatingPointError):
    """Training has diverged: a loss or a parameter is infinite or NaN."""


def check_metrics(metrics: InnerMetrics, updates: int) -> None:
    """Check the losses of an inner update. Reading them waits for the device: call this where they are logged.

    Raises:
        NotFiniteError: one is not finite; the message names it.
    """
    for name in ("loss", "policy_loss", "value_loss", "answer_loss", "gradient_norm"):
        value = getattr(metrics, name).item()
        if not math.isfinite(value):
            raise NotFiniteError(f"{name} must be finite, got {value} in update {updates}: {_ADVICE}")


def check_finite(name: str, tree: Any, updates: int) -> None:
    """Check all tensors in nested dicts, lists and tuples.

    Raises:
        NotFiniteError: one is not finite; the message names it.
    """
    path = first_not_finite(tree)
    if path is not None:
        raise NotFiniteError(f"{name}{path} must be finite after {updates} updates: {_ADVICE}")


def first_not_finite(tree: Any) -> str | None:
    """The path of the first tensor that is not finite; `None` if all are."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor) and not bool(torch.isfinite(leaf).all()):
            return keystr(path)
    return None
