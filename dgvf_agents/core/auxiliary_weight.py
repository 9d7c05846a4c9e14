"""The weight of L^ans that makes its gradient at the features c times as large as L^RL's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.core.optimizers import root

GRADIENT_FLOOR = 1e-8
"""δ of `auxiliary_weight`: gradients of L^ans far below it are noise, so they are not scaled up."""

Gradients = tuple[Tensor, Tensor]
"""∂L^RL/∂x and ∂L^ans/∂x."""


def auxiliary_weight(
    coefficient: float | Float[Tensor, ""], main: Float[Tensor, "*shape"], auxiliary: Float[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """W = c · ‖∂L^RL/∂x‖ / √(‖∂L^ans/∂x‖² + δ²), so that the weighted gradient of L^ans has c times the norm of L^RL's.

    The ratio of norms does not depend on the scale of rewards and cumulants or on the number of questions, so c has the
    same meaning on every task. w is differentiable in both gradients, also at zero.

    Args:
        coefficient: c ≥ 0.
        main: ∂L^RL/∂x, of any shape.
        auxiliary: ∂L^ans/∂x, of the same shape.
    """
    return _weight(coefficient, (main * main).sum(), (auxiliary * auxiliary).sum())


def auxiliary_weights(
    coefficient: float | Float[Tensor, ""], gradients: Sequence[Gradients], averaging: Averaging | None
) -> list[Float[Tensor, ""]]:
    """The `auxiliary_weight` of each pair of gradients.

    Args:
        coefficient: c ≥ 0.
        gradients: ∂L^RL/∂x and ∂L^ans/∂x, for several x.
        averaging: if given, losses are means over the batches of all learners, and so norms are over these batches.
    """
    if averaging is None:
        return [auxiliary_weight(coefficient, *pair) for pair in gradients]
    squares = torch.stack([(gradient * gradient).sum() for pair in gradients for gradient in pair])
    # The gradient of the mean over P batches is 1/P of a batch's own.
    whole = averaging.mean(squares) / averaging.learners
    return [_weight(coefficient, main, auxiliary) for main, auxiliary in whole.reshape(-1, 2).unbind()]


def _weight(
    coefficient: float | Float[Tensor, ""], main: Float[Tensor, ""], auxiliary: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """The weight for the squares of both norms."""
    return coefficient * root(main) * torch.rsqrt(auxiliary + GRADIENT_FLOOR**2)
