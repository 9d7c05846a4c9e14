"""The functions that a learner is built from: those of an update rule on packed parameters, compiled or not."""

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
    """An update rule, ready to run."""

    rule: UpdateRule
    """The update rule."""
    packed: PackedFunctions
    """How θ, η and the optimizer's statistics are packed."""
    update: Compiled[tuple[InnerState, InnerMetrics]]
    """The inner update."""
    meta_loss: Compiled[tuple[Params, Tensor]]
    """∂L^RL(θ_k)/∂θ_k and L^RL(θ_k) on batch k + 1."""
    update_with_meta_loss: Compiled[tuple[InnerState, InnerMetrics, Params, Tensor]]
    """Both on one batch, which is encoded once."""

    @classmethod
    def of(cls, rule: UpdateRule, eta: Params, compile: bool, device: torch.device) -> UpdateFunctions:
        """
        Args:
            rule: the update rule.
            eta: η, for its names and shapes.
            compile: whether the functions are compiled.
            device: of θ and of the rollouts.
        """
        packed = PackedFunctions(rule, eta)
        functions = (packed.update, packed.meta_loss, packed.update_with_meta_loss)
        return cls(rule, packed, *(Compiled(function, compile, device) for function in functions))  # type: ignore[arg-type]

    def inner_update(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor
    ) -> tuple[InnerState, InnerMetrics]:
        """`update` without a graph."""
        with torch.no_grad():
            return self.update(state, eta, rollout, learning_rate)
