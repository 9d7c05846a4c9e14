"""Numbers of an update rule that compiled functions take as arguments, so that one compilation serves all their values.

The functions of an update rule are those of a rule that has NaN for these numbers; each call replaces them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

from dgvf_agents.core.acting import Act
from dgvf_agents.core.inner_metrics import InnerMetrics
from dgvf_agents.core.inner_update import InnerState, UpdateRule
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.packing import PackedFunctions

RULE_SETTINGS: dict[str, tuple[str, ...]] = {
    "discount": (),
    "auxiliary_coefficient": (),
    "max_gradient_norm": (),
    "value": ("weights",),
    "epsilon": ("optimizer",),
}
"""Names of these numbers, and the attributes of an `UpdateRule` that lead to the owner of each."""

Settings = dict[str, Tensor]
"""Values by any of these names: scalars, or `[P]` for the members of a population."""


def setting_of(rule: UpdateRule, name: str) -> float | None:
    """A setting of a rule by its name in `RULE_SETTINGS`; `None` if the rule has none."""
    return getattr(_owner(rule, name), name, None)


def settings_of(rule: UpdateRule, like: Tensor) -> Settings:
    """All settings that a rule has, as scalars of the type and on the device of a tensor."""
    found = {name: setting_of(rule, name) for name in RULE_SETTINGS}
    return {name: like.new_full((), value) for name, value in found.items() if value is not None}


def with_settings(rule: UpdateRule, settings: Mapping[str, Tensor | float]) -> UpdateRule:
    """A copy of a rule with other values of some settings.

    Args:
        rule: the rule; not changed.
        settings: scalars by the names in `RULE_SETTINGS`. Their values are not checked.

    Raises:
        ValueError: a name is not in `RULE_SETTINGS`, or the rule has no such setting.
    """
    changed = copy.copy(rule)
    for name, value in settings.items():
        owner = _owner(changed, name, copied=True)
        if getattr(owner, name, None) is None:
            raise ValueError(f"settings must be settings of the rule, got {name!r} for {owner!r}")
        object.__setattr__(owner, name, value)
    return changed


def without_settings(rule: UpdateRule) -> UpdateRule:
    """A copy of a rule that has NaN for its settings: equal for rules that differ in nothing else."""
    return with_settings(rule, {name: math.nan for name in RULE_SETTINGS if setting_of(rule, name) is not None})


def _owner(rule: UpdateRule, name: str, copied: bool = False) -> Any:
    """The part of a rule that has a setting; if `copied`, a copy of it, put in its place."""
    if name not in RULE_SETTINGS:
        raise ValueError(f"settings must be among {list(RULE_SETTINGS)}, got {name!r}")
    owner: Any = rule
    for attribute in RULE_SETTINGS[name]:
        inner = getattr(owner, attribute)
        if copied:
            inner = copy.copy(inner)
            object.__setattr__(owner, attribute, inner)
        owner = inner
    return owner


@final
class FunctionsOfSettings:
    """The functions of `PackedFunctions` with the settings of the rule as their last argument."""

    def __init__(self, packed: PackedFunctions, rule: UpdateRule) -> None:
        """
        Args:
            packed: the functions of the rule.
            rule: the rule; its settings do not matter.
        """
        self._rule = without_settings(rule)
        self._packed = packed.of_rule(self._rule)

    def update(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor, settings: Settings
    ) -> tuple[InnerState, InnerMetrics]:
        """`PackedFunctions.update`."""
        return self.at(settings).update(state, eta, rollout, learning_rate)

    def update_with_meta_loss(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor, settings: Settings
    ) -> tuple[tuple[InnerState, Tensor], InnerMetrics]:
        """`PackedFunctions.update_with_meta_loss`."""
        return self.at(settings).update_with_meta_loss(state, eta, rollout, learning_rate)

    def meta_loss_gradient(self, theta: Params, rollout: Rollout, settings: Settings) -> tuple[Params, Tensor]:
        """`PackedFunctions.meta_loss_gradient`."""
        return self.at(settings).meta_loss_gradient(theta, rollout)

    @property
    def act(self) -> Act:
        """`PackedFunctions.act`, which depends on no settings."""
        return self._packed.act

    def at(self, settings: Settings) -> PackedFunctions:
        """The functions at these settings, which must be all that the rule has."""
        return self._packed.of_rule(with_settings(self._rule, settings))
