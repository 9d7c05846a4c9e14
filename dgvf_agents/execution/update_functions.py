"""The functions of a learner, or of a population's learners: an update rule on packed parameters, compiled or eager.

Vectors are packed and unpacked inside the compiled functions, so the core works on named tensors.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import (
    InnerState,
    MetaLossFunction,
    Numbers,
    UpdateFunction,
    UpdateRule,
    inner_update,
    meta_loss_gradient,
)
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.networks import sample_actions
from dgvf_agents.core.types import Observations, Params, Rollout, SampledActions
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.packing import KEY, Packing


@final
class PackedRule:
    """An update rule on packed θ, η and optimizer statistics."""

    def __init__(self, rule: UpdateRule, eta: Params) -> None:
        """
        Args:
            rule: the update rule; its numbers do not matter.
            eta: η, for its names and shapes.
        """
        theta = rule.network.params()
        self._rule = rule.structure
        self.theta = Packing(theta)
        self.optimizer = Packing(rule.optimizer.init(theta))
        self.eta = Packing(eta)

    def _at(self, numbers: Numbers) -> UpdateRule:
        return dataclasses.replace(self._rule, numbers=numbers)

    def update(
        self,
        state: InnerState,
        eta: Params,
        rollout: Rollout,
        learning_rate: Tensor,
        numbers: Numbers,
        scored: bool = False,
    ) -> tuple[Any, InnerMetrics]:
        """`inner_update`."""
        rule, named = self._at(numbers), self.named(state)
        after, metrics = inner_update(rule, named, self.eta.unpack(eta), rollout, learning_rate, scored)
        return (self.packed(after[0]), after[1]) if scored else self.packed(after), metrics

    def meta_loss_gradient(self, theta: Params, rollout: Rollout, numbers: Numbers) -> tuple[Params, Tensor]:
        """`meta_loss_gradient`, with zeros for parameters that the meta-loss does not depend on."""
        named = self.theta.unpack(theta)
        gradients, loss = meta_loss_gradient(self._at(numbers), named, rollout)
        return self.theta.pack({name: gradients.get(name, torch.zeros_like(v)) for name, v in named.items()}), loss

    def vector(self, state: InnerState) -> Tensor:
        """A packed state as one vector: θ, followed by the optimizer's statistics."""
        return torch.cat([state.theta[KEY], *state.optimizer[KEY].values()])

    def update_of_vector(
        self, eta: Params, rollout: Rollout, learning_rate: Tensor, numbers: Numbers
    ) -> Callable[[Tensor], Tensor]:
        """`update` as a function of `vector`, from θ_{k-1} to θ_k; of several learners, of one alone."""
        alone = copy.copy(self)
        alone._rule = dataclasses.replace(self._rule, averaging=None)

        def after(vector: Tensor) -> Tensor:
            theta, statistics = vector.split([self.theta.size, self.optimizer.size])
            state = InnerState({KEY: theta}, {KEY: {KEY: statistics} if self.optimizer.size else {}})
            return self.vector(alone.update(state, eta, rollout, learning_rate, numbers)[0])

        return after

    def act(self, theta: Params, observations: Observations, drawn: Tensor) -> SampledActions:
        """Sample actions from the policy, with their log-probabilities if the rule is off-policy.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`.
            drawn: noise `[B, ...]` of `ActionDistribution.draw_noise`, one step of it.
        """
        rule = self._rule
        named, log_probs = self.theta.unpack(theta), rule.targets.off_policy
        return sample_actions(rule.network, rule.distribution, named, observations, drawn, log_probs)

    def named(self, state: InnerState) -> InnerState:
        """A packed state, by name."""
        return InnerState(self.theta.unpack(state.theta), self.optimizer.unpack(state.optimizer[KEY]))

    def packed(self, state: InnerState) -> InnerState:
        """The state, packed."""
        return InnerState(self.theta.pack(state.theta), {KEY: self.optimizer.pack(state.optimizer)})


@final
class _OfMembers:
    """A function of `PackedRule` for P members at once, by `torch.func.vmap`.

    Members agree in structure, and do not depend on each other. Every tensor has a leading axis of members: θ `[P, n]`,
    the rewards of a batch `[P, T, B]`. Rollouts, numbers and metrics are dicts by field name, since their own classes
    have the shapes of one member.
    """

    def __init__(self, function: Callable[..., Any], parameters: int) -> None:
        """
        Args:
            function: of one member.
            parameters: number of its arguments before the rollout.
        """
        self._function, self._parameters = function, parameters

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        return torch.func.vmap(self._of_one)(*arguments)

    def _of_one(self, *arguments: Any) -> tuple[Any, Any]:
        parameters, (fields, *rate, numbers) = arguments[: self._parameters], arguments[self._parameters :]
        result, other = self._function(*parameters, Rollout(**fields), *rate, Numbers(**numbers))
        return result, other._asdict() if isinstance(other, InnerMetrics) else other


@final
class UpdateFunctions:
    """The functions of an update rule, for one learner or for every member of a population."""

    def __init__(
        self, rule: UpdateRule, eta: Params, compilation: Compilation, members: dict[str, Tensor] | None = None
    ) -> None:
        """
        Args:
            rule: the update rule.
            eta: η of one learner, for its names and shapes.
            compilation: which updates run compiled.
            members: the numbers of P members by name, each `[P]`; parameters, rollouts (as dicts), learning rates and
                metrics then have a leading axis of members. `None`: one learner.
        """
        self.rule, self.compilation = rule, compilation
        self.packed = packed = PackedRule(rule, eta)
        """The eager functions of one learner."""
        new = next(iter(rule.network.params().values())).new_full
        self.numbers: Any = members or Numbers(**{name: new((), v) for name, v in rule.numbers.given().items()})
        """The rule's numbers as tensors."""

        def made(function: Callable[..., Any], parameters: int, differentiable: int) -> Compiled[Any]:
            chosen = function if members is None else _OfMembers(function, parameters)
            return Compiled(chosen, compilation, differentiable=differentiable, last=(self.numbers,))

        self.update: Compiled[tuple[InnerState, Any]] = made(packed.update, 2, 2)
        """The inner update."""
        self.meta_loss: Compiled[tuple[Params, Tensor]] = made(packed.meta_loss_gradient, 1, 0)
        """∂L^RL(θ_k)/∂θ_k and L^RL(θ_k) on batch k + 1."""
        self.update_with_meta_loss: Compiled[tuple[tuple[InnerState, Tensor], Any]]
        self.update_with_meta_loss = made(partial(packed.update, scored=True), 2, 2)
        """`update`, and L^RL(θ_{k-1}) on the same batch, which is encoded once."""

    def at(self, update: int) -> tuple[UpdateFunction, MetaLossFunction, UpdateFunction]:
        """`update`, `meta_loss` and `update_with_meta_loss` as an update uses them, compiled or eager.

        Args:
            update: number of updates before it; of an unroll, before its first.
        """
        if self.compilation.active_at(update):
            return self.update, self.meta_loss, self.update_with_meta_loss
        return self.update.eager, self.meta_loss.eager, self.update_with_meta_loss.eager
