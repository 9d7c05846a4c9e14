"""Metrics of an inner update, and divergence: losses, parameters and statistics that are not finite."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from dgvf_agents.core.optimizers import global_norm
from dgvf_agents.core.types import Params, detach


class InnerMetrics(NamedTuple):
    """Metrics of an inner update, detached scalars."""

    loss: Float[Tensor, ""]
    """L^RL + w · L^ans."""
    policy_loss: Float[Tensor, ""]
    value_loss: Float[Tensor, ""]
    entropy: Float[Tensor, ""]
    answer_loss: Float[Tensor, ""]
    gradient_norm: Float[Tensor, ""]
    """Euclidean norm of the inner gradient before clipping."""
    explained_variance: Float[Tensor, ""]
    """1 - Var(G - v) / Var(G)."""
    main_gradient: Float[Tensor, ""]
    """‖∂L^RL/∂x‖ at the features x, whether or not it trains the encoder."""
    auxiliary_gradient: Float[Tensor, ""]
    """‖w · ∂L^ans/∂x‖ at the features x."""
    encoder_step: Float[Tensor, ""] | None = None
    """`relative_step` of the encoder's parameters; `None` before the step, and in files of earlier versions."""


def relative_step(before: Params, after: Params) -> Float[Tensor, ""]:
    """‖θ_k - θ_{k-1}‖ / ‖θ_{k-1}‖, detached; 0 without parameters.

    Args:
        before: some of θ_{k-1} by name.
        after: θ_k, with at least these names.
    """
    if not before:
        return next(iter(after.values())).new_zeros(())
    step = {name: (after[name] - value).detach() for name, value in before.items()}
    length = global_norm(detach(before))
    return global_norm(step) / length.clamp(min=torch.finfo(length.dtype).tiny)


_ADVICE = (
    "a smaller learning_rate or auxiliary_coefficient, max_grad_norm, or smaller rewards usually help; "
    "continue from an earlier checkpoint"
)


class NotFiniteError(FloatingPointError, ValueError):
    """Training has diverged: a loss or a parameter is infinite or NaN.

    Searches, as RL Baselines3 Zoo's, prune trials that raise `ValueError`.
    """


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
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor) and not bool(torch.isfinite(leaf).all()):
            raise NotFiniteError(f"{name}{keystr(path)} must be finite after {updates} updates: {_ADVICE}")
