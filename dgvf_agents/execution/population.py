"""The functions of a population: P members at once, by `torch.func.vmap` on packed parameters.

Members agree in structure. They differ in parameters, experience, learning rate, and numbers. Every tensor has a
leading axis of P members: θ `[P, n]`, the rewards of a batch `[P, T, B]`. Members do not depend on each other, so
`dgvf_agents.core.unroll.Unroll` takes these functions as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerState, Numbers
from dgvf_agents.core.types import Params, Rollout, SampledActions
from dgvf_agents.execution.fused import Act, Experience, FusedSteps
from dgvf_agents.execution.packing import PackedFunctions
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.functional.simulation import SimulatedRollout

Metrics = dict[str, Tensor]
"""The fields of `InnerMetrics` by name, each `[P]`."""


class MemberBatches(NamedTuple):
    """A batch of every member."""

    fields: dict[str, Any]
    """The fields of `Rollout` by name, each with a leading axis of members."""
    numbers: dict[str, Tensor]
    """The fields of `Numbers` by name, each `[P]`."""


@final
class PopulationFunctions:
    """The functions of `PackedFunctions` for P members."""

    def __init__(self, packed: PackedFunctions) -> None:
        """
        Args:
            packed: the functions of one member.
        """
        self._functions = packed

    def update(
        self, state: InnerState, eta: Params, batch: MemberBatches, learning_rate: Tensor
    ) -> tuple[InnerState, Metrics]:
        """`PackedFunctions.update` of every member; learning rates are `[P]`."""

        def member(state: InnerState, eta: Params, batch: MemberBatches, rate: Tensor) -> tuple[InnerState, Metrics]:
            after, metrics = self._functions.update(state, eta, Rollout(**batch.fields), rate, Numbers(**batch.numbers))
            return after, metrics._asdict()

        return torch.func.vmap(member)(state, eta, batch, learning_rate)

    def update_with_meta_loss(
        self, state: InnerState, eta: Params, batch: MemberBatches, learning_rate: Tensor
    ) -> tuple[tuple[InnerState, Tensor], Metrics]:
        """`PackedFunctions.update_with_meta_loss` of every member; learning rates are `[P]`."""

        def member(state: InnerState, eta: Params, batch: MemberBatches, rate: Tensor) -> Any:
            functions, rollout = self._functions, Rollout(**batch.fields)
            scored, metrics = functions.update_with_meta_loss(state, eta, rollout, rate, Numbers(**batch.numbers))
            return scored, metrics._asdict()

        return torch.func.vmap(member)(state, eta, batch, learning_rate)

    def meta_loss_gradient(self, theta: Params, batch: MemberBatches) -> tuple[Params, Tensor]:
        """`PackedFunctions.meta_loss_gradient` of every member."""

        def member(theta: Params, batch: MemberBatches) -> tuple[Params, Tensor]:
            return self._functions.meta_loss_gradient(theta, Rollout(**batch.fields), Numbers(**batch.numbers))

        return torch.func.vmap(member)(theta, batch)


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
