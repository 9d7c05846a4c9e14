"""The functions of an update rule for a population: P members at once, by `torch.func.vmap` on packed parameters.

Members agree in shapes and in the task. They differ in parameters, experience, learning rate, and any of
`MEMBER_SETTINGS`. Every tensor has a leading axis of P members: θ `[P, n]`, the rewards of a batch `[P, T, B]`. Members
do not depend on each other, so `dgvf_agents.core.unroll.Unroll` takes these functions as they are.
"""

from __future__ import annotations

import copy
from typing import Any, final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerState, UpdateRule
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.packing import PackedFunctions

MEMBER_SETTINGS: dict[str, tuple[str, ...]] = {
    "discount": (),
    "auxiliary_coefficient": (),
    "max_gradient_norm": (),
    "value": ("weights",),
    "epsilon": ("optimizer",),
}
"""Settings of an `UpdateRule` that may differ between members, and the attributes that lead to the owner of each."""

LEARNING_RATE = "learning_rate"

Rates = dict[str, Tensor]
"""`LEARNING_RATE` and any of `MEMBER_SETTINGS`, each `[P]`."""

Batch = dict[str, Any]
"""The fields of `Rollout` by name, each with a leading axis of members."""

Metrics = dict[str, Tensor]
"""The fields of `InnerMetrics` by name, each `[P]`."""


@final
class PopulationFunctions:
    """The functions of `PackedFunctions` for P members. `Rates` replace the learning rate."""

    def __init__(self, packed: PackedFunctions, rule: UpdateRule) -> None:
        """
        Args:
            packed: the functions of one member.
            rule: its rule, with the settings that all members share.
        """
        self._packed, self._rule = packed, rule

    def update(self, state: InnerState, eta: Params, batch: Batch, rates: Rates) -> tuple[InnerState, Metrics]:
        """`PackedFunctions.update` of every member."""

        def member(state: InnerState, eta: Params, batch: Batch, rates: Rates) -> tuple[InnerState, Metrics]:
            functions = self._member(rates)
            after, metrics = functions.update(state, eta, Rollout(**batch), rates[LEARNING_RATE])
            return after, metrics._asdict()

        return torch.func.vmap(member)(state, eta, batch, rates)

    def update_with_meta_loss(
        self, state: InnerState, eta: Params, batch: Batch, rates: Rates
    ) -> tuple[InnerState, Metrics, Params, Tensor]:
        """`PackedFunctions.update_with_meta_loss` of every member."""

        def member(state: InnerState, eta: Params, batch: Batch, rates: Rates) -> Any:
            functions = self._member(rates)
            after, metrics, *scored = functions.update_with_meta_loss(
                state, eta, Rollout(**batch), rates[LEARNING_RATE]
            )
            return after, metrics._asdict(), *scored

        return torch.func.vmap(member)(state, eta, batch, rates)

    def meta_loss_gradient(self, theta: Params, batch: Batch, rates: Rates) -> tuple[Params, Tensor]:
        """`PackedFunctions.meta_loss_gradient` of every member."""

        def member(theta: Params, batch: Batch, rates: Rates) -> tuple[Params, Tensor]:
            return self._member(rates).meta_loss_gradient(theta, Rollout(**batch))

        return torch.func.vmap(member)(theta, batch, rates)

    def _member(self, rates: Rates) -> PackedFunctions:
        """The functions of one member, inside of `vmap`."""
        settings = {name: value for name, value in rates.items() if name != LEARNING_RATE}
        return self._packed.of_rule(with_settings(self._rule, settings))


def with_settings(rule: UpdateRule, settings: dict[str, Tensor]) -> UpdateRule:
    """A copy of a rule with tensors for some of its numbers.

    Args:
        rule: the rule; not changed.
        settings: scalars by the names in `MEMBER_SETTINGS`. Their values are not checked.

    Raises:
        ValueError: a name is not in `MEMBER_SETTINGS`, or the rule has no such setting.
    """
    changed = copy.copy(rule)
    for name, value in settings.items():
        if name not in MEMBER_SETTINGS:
            raise ValueError(f"settings of members must be among {list(MEMBER_SETTINGS)}, got {name!r}")
        owner: Any = changed
        for attribute in MEMBER_SETTINGS[name]:
            inner = copy.copy(getattr(owner, attribute))
            object.__setattr__(owner, attribute, inner)
            owner = inner
        if getattr(owner, name, None) is None:
            raise ValueError(f"settings of members must be settings of the rule, got {name!r} for {owner!r}")
        object.__setattr__(owner, name, value)
    return changed
