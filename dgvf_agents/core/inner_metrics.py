"""Metrics of an inner update."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
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


def over_learners(
    averaging: Averaging, gradient: Params, metrics: InnerMetrics, losses: tuple[Float[Tensor, ""], ...]
) -> tuple[Params, InnerMetrics, tuple[Float[Tensor, ""], ...]]:
    """The inner gradient, the metrics and differentiable losses of the batches of all learners together.

    The explained variance is the mean of the learners' explained variances. All else is that of one batch.
    """
    norms = {name: getattr(metrics, name) for name in ("main_gradient", "auxiliary_gradient")}
    squares = metrics._replace(**{name: norm * norm for name, norm in norms.items()})
    means = iter(averaging.means([*gradient.values(), *squares, *losses]))
    total = {name: next(means) for name in gradient}
    whole = InnerMetrics(*(next(means).detach() for _ in metrics))
    # The gradient of the mean over P batches is 1/P of a batch's own.
    roots = {name: root(getattr(whole, name) / averaging.learners) for name in norms}
    return total, whole._replace(**roots, gradient_norm=global_norm(detach(total))), tuple(means)
