"""Metrics of an inner update."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.core.flat import flatten, map_tensors
from dgvf_agents.core.optimizers import global_norm, root
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


def over_learners(
    averaging: Averaging, gradient: Params, metrics: InnerMetrics, losses: tuple[Float[Tensor, ""], ...]
) -> tuple[Params, InnerMetrics, tuple[Float[Tensor, ""], ...]]:
    """The inner gradient, metrics before the step and differentiable losses of the batches of all learners together.

    The explained variance is the mean of the learners' explained variances. All else belongs to one batch.
    """
    norms = {name: getattr(metrics, name) for name in ("main_gradient", "auxiliary_gradient")}
    squares = metrics._replace(**{name: norm * norm for name, norm in norms.items()})
    means = iter(averaging.means([*gradient.values(), *flatten(squares), *losses]))
    total = {name: next(means) for name in gradient}
    whole = map_tensors(lambda _: next(means).detach(), squares)
    # The gradient of the mean over P batches is 1/P of a batch's own.
    roots = {name: root(getattr(whole, name) / averaging.learners) for name in norms}
    return total, whole._replace(**roots, gradient_norm=global_norm(detach(total))), tuple(means)


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
