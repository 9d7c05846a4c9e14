"""The functions of a learner: an update rule on packed parameters, compiled or eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerState, Numbers, UpdateRule
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.core.unroll import MetaLossFunction, UpdateFunction, UpdateWithMetaLossFunction
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.packing import PackedFunctions


@final
@dataclass(frozen=True)
class UpdateFunctions:
    """The functions of an update rule."""

    rule: UpdateRule
    """The update rule."""
    packed: PackedFunctions
    """The eager functions on packed θ, η and optimizer statistics."""
    numbers: Numbers
    """The rule's numbers as scalar tensors."""
    act: Act
    """Samples actions: `PackedFunctions.act`."""
    compilation: Compilation
    """Which updates run compiled."""
    update: Compiled[tuple[InnerState, InnerMetrics]]
    """The inner update."""
    meta_loss: Compiled[tuple[Params, Tensor]]
    """∂L^RL(θ_k)/∂θ_k and L^RL(θ_k) on batch k + 1."""
    update_with_meta_loss: Compiled[tuple[tuple[InnerState, Tensor], InnerMetrics]]
    """`update`, and L^RL(θ_{k-1}) on the same batch, which is encoded once."""

    @classmethod
    def of(cls, rule: UpdateRule, eta: Params, compilation: Compilation) -> UpdateFunctions:
        """
        Args:
            rule: the update rule.
            eta: η, for its names and shapes.
            compilation: which updates run compiled.
        """
        packed, new = PackedFunctions(rule, eta), next(iter(rule.network.params().values())).new_full
        numbers = Numbers(**{name: new((), value) for name, value in rule.numbers.given().items()})
        return cls(
            rule,
            packed,
            numbers,
            packed.act,
            compilation,
            Compiled(packed.update, compilation, differentiable=2, last=(numbers,)),
            Compiled(packed.meta_loss_gradient, compilation, last=(numbers,)),
            Compiled(packed.update_with_meta_loss, compilation, differentiable=2, last=(numbers,)),
        )

    def at(self, update: int) -> ChosenFunctions:
        """The functions that an update uses, compiled or eager.

        Args:
            update: number of updates before it; of an unroll, before its first.
        """
        functions = (self.update, self.meta_loss, self.update_with_meta_loss)
        if self.compilation.active_at(update):
            return ChosenFunctions(*functions)
        return ChosenFunctions(*(function.eager for function in functions))  # type: ignore[arg-type]

    def over_learners(self, gradient: Params) -> Params:
        """The mean of a packed meta-gradient over the learners that train together."""
        averaging = self.rule.averaging
        if averaging is None:
            return gradient
        return dict(zip(gradient, averaging.means(list(gradient.values())), strict=True))

    def inner_update(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor, update: int
    ) -> tuple[InnerState, InnerMetrics]:
        """`update` without an autograd graph."""
        with torch.no_grad():
            return self.at(update).update(state, eta, rollout, learning_rate)


class ChosenFunctions(NamedTuple):
    """The functions of `UpdateFunctions`, compiled or eager."""

    update: UpdateFunction
    meta_loss: MetaLossFunction
    update_with_meta_loss: UpdateWithMetaLossFunction
