"""Averages over learners that train together, each with batches of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.flat import flatten, map_tensors
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.optimizers import global_norm, root
from dgvf_agents.core.types import Params, detach


class Averaging(ABC):
    """Averages over P learners of equal θ and η. All of them call it the same number of times, in the same order.

    An inner update with the averaged gradient is the update on the P batches side by side. Each learner's backward pass
    starts from its own meta-losses. The pull-back of an average is again an average, so the mean of the learners'
    meta-gradients is the meta-gradient of the mean meta-loss.
    """

    learners: int
    """P."""

    @abstractmethod
    def mean(self, vector: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The mean of the learners' vectors, bitwise the same in each of them.

        Its vector-Jacobian product is the mean of the learners' cotangents. Differentiable to any order.
        """

    def means(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean of each tensor over the learners. All have one dtype, and travel as one vector."""
        vector = self.mean(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        pieces = vector.split([tensor.numel() for tensor in tensors])
        return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


def over_learners(
    averaging: Averaging, gradient: Params, metrics: InnerMetrics, losses: Sequence[Float[Tensor, ""]]
) -> tuple[Params, InnerMetrics, list[Float[Tensor, ""]]]:
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
    return total, whole._replace(**roots, gradient_norm=global_norm(detach(total))), list(means)
