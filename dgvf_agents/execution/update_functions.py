"""The functions of a learner: an update rule on packed parameters, compiled or eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerMetrics, InnerState, UpdateRule
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.execution.packing import PackedFunctions


@final
@dataclass(frozen=True)
class UpdateFunctions:
    """The functions of an update rule."""

    rule: UpdateRule
    """The update rule."""
    packed: PackedFunctions
    """The eager functions on packed θ, η and optimizer statistics."""
    update: Compiled[tuple[InnerState, InnerMetrics]]
    """The inner update."""
    meta_loss: Compiled[tuple[Params, Tensor]]
    """∂L^RL(θ_k)/∂θ_k and L^RL(θ_k) on batch k + 1."""
    update_with_meta_loss: Compiled[tuple[InnerState, InnerMetrics, Params, Tensor]]
    """`update` and `meta_loss` on the same batch, which is encoded once."""

    @classmethod
    def of(cls, rule: UpdateRule, eta: Params, compile: bool, device: torch.device) -> UpdateFunctions:
        """
        Args:
            rule: the update rule.
            eta: η, for its names and shapes.
            compile: whether the functions are compiled.
            device: device of θ and of the rollouts.
        """
        packed = PackedFunctions(rule, eta)
        functions = (packed.update, packed.meta_loss_gradient, packed.update_with_meta_loss)
        return cls(rule, packed, *(Compiled(function, compile, device) for function in functions))  # type: ignore[arg-type]

    def inner_update(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor
    ) -> tuple[InnerState, InnerMetrics]:
        """`update` without an autograd graph."""
        with torch.no_grad():
            return self.update(state, eta, rollout, learning_rate)
