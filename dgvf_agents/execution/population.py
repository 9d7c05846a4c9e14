"""The functions of a population: P members at once, by `torch.func.vmap` on packed parameters.

Members agree in shapes and in the task. They differ in parameters, experience, learning rate, and any of
`MEMBER_SETTINGS`. Every tensor has a leading axis of P members: θ `[P, n]`, the rewards of a batch `[P, T, B]`. Members
do not depend on each other, so `dgvf_agents.core.unroll.Unroll` takes these functions as they are.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerState, UpdateRule
from dgvf_agents.core.types import Params, Rollout, SampledActions
from dgvf_agents.execution.fused import Act, Experience, FusedSteps
from dgvf_agents.execution.packing import PackedFunctions
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.functional.simulation import SimulatedRollout

MEMBER_SETTINGS: dict[str, tuple[str, ...]] = {
    "discount": (),
    "auxiliary_coefficient": (),
    "max_gradient_norm": (),
    "value": ("weights",),
    "epsilon": ("optimizer",),
}
"""Settings of an `UpdateRule` that may differ between members, and the attributes that lead to the owner of each."""

Settings = dict[str, Tensor]
"""Any of `MEMBER_SETTINGS`, each `[P]`."""

Metrics = dict[str, Tensor]
"""The fields of `InnerMetrics` by name, each `[P]`."""


class MemberBatches(NamedTuple):
    """A batch of every member."""

    fields: dict[str, Any]
    """The fields of `Rollout` by name, each with a leading axis of members."""
    settings: Settings
    """Settings in place of the rule's."""


@final
class PopulationFunctions:
    """The functions of `PackedFunctions` for P members."""

    def __init__(self, packed: PackedFunctions, rule: UpdateRule) -> None:
        """
        Args:
            packed: the functions of one member.
            rule: its rule, with the settings that all members share.
        """
        self._packed, self._rule = packed, rule

    def update(
        self, state: InnerState, eta: Params, batch: MemberBatches, learning_rate: Tensor
    ) -> tuple[InnerState, Metrics]:
        """`PackedFunctions.update` of every member; learning rates are `[P]`."""

        def member(state: InnerState, eta: Params, batch: MemberBatches, rate: Tensor) -> tuple[InnerState, Metrics]:
            after, metrics = self._member(batch).update(state, eta, Rollout(**batch.fields), rate)
            return after, metrics._asdict()

        return torch.func.vmap(member)(state, eta, batch, learning_rate)

    def update_with_meta_loss(
        self, state: InnerState, eta: Params, batch: MemberBatches, learning_rate: Tensor
    ) -> tuple[tuple[InnerState, Tensor], Metrics]:
        """`PackedFunctions.update_with_meta_loss` of every member; learning rates are `[P]`."""

        def member(state: InnerState, eta: Params, batch: MemberBatches, rate: Tensor) -> Any:
            functions, rollout = self._member(batch), Rollout(**batch.fields)
            scored, metrics = functions.update_with_meta_loss(state, eta, rollout, rate)
            return scored, metrics._asdict()

        return torch.func.vmap(member)(state, eta, batch, learning_rate)

    def meta_loss_gradient(self, theta: Params, batch: MemberBatches) -> tuple[Params, Tensor]:
        """`PackedFunctions.meta_loss_gradient` of every member."""

        def member(theta: Params, batch: MemberBatches) -> tuple[Params, Tensor]:
            return self._member(batch).meta_loss_gradient(theta, Rollout(**batch.fields))

        return torch.func.vmap(member)(theta, batch)

    def _member(self, batch: MemberBatches) -> PackedFunctions:
        """The functions of one member, inside of `vmap`."""
        return self._packed.of_rule(with_settings(self._rule, batch.settings))


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
        owner = _owner(changed, name, copied=True)
        if getattr(owner, name, None) is None:
            raise ValueError(f"settings of members must be settings of the rule, got {name!r} for {owner!r}")
        object.__setattr__(owner, name, value)
    return changed


def setting_of(rule: UpdateRule, name: str) -> float | None:
    """A setting of a rule by its name in `MEMBER_SETTINGS`; `None` if the rule has none."""
    return getattr(_owner(rule, name), name, None)


def _owner(rule: UpdateRule, name: str, copied: bool = False) -> Any:
    """The part of a rule that has a setting; if `copied`, a copy of it, put in its place."""
    if name not in MEMBER_SETTINGS:
        raise ValueError(f"settings of members must be among {list(MEMBER_SETTINGS)}, got {name!r}")
    owner: Any = rule
    for attribute in MEMBER_SETTINGS[name]:
        inner = getattr(owner, attribute)
        if copied:
            inner = copy.copy(inner)
            object.__setattr__(owner, attribute, inner)
        owner = inner
    return owner


@final
class PopulationSteps:
    """`FusedSteps` of P members, whose P · B environments follow each other."""

    def __init__(
        self, act: Act, world: Dynamics[Any], max_episode_steps: int | None, device: torch.device, members: int
    ) -> None:
        """
        Args:
            act: samples the actions of one member.
            world: the dynamics, in NumPy.
            max_episode_steps: the time limit; `None` for no limit.
            device: device of all tensors.
            members: P.
        """
        self._member, self._members = act, members
        self._fused = FusedSteps(self._act, world, max_episode_steps, device)

    def __call__(self, theta: Params, noise: Tensor, *environment: Any) -> tuple[SimulatedRollout, Experience, Tensor]:
        """`FusedSteps` with θ `[P, n]` and noise `[T, P·B, ...]`; experience is `[P, T, B, ...]`."""
        simulated, experience, finite = self._fused(theta, noise, *environment)
        fields = [None if values is None else self._by_member(values) for values in experience]
        return simulated, Experience(*fields), finite  # type: ignore[arg-type]

    def _act(self, theta: Params, observations: Tensor, noise: Tensor) -> SampledActions:
        own, drawn = (part.unflatten(0, (self._members, -1)) for part in (observations, noise))

        def act(theta: Params, observations: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
            return tuple(value for value in self._member(theta, observations, noise) if value is not None)

        return SampledActions(*(value.flatten(0, 1) for value in torch.func.vmap(act)(theta, own, drawn)))

    def _by_member(self, values: Tensor) -> Tensor:
        return values.unflatten(1, (self._members, -1)).movedim(1, 0).contiguous()
