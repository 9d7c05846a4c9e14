"""Algorithm 1 for a population: `DiscoveryLearner.step` of every member at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.packing import KEY, clip_meta_gradient
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.learner import Learner, LearnerState, SingleLearner, UnrollState

Tree = TypeVar("Tree")


def stacked(trees: Sequence[Tree]) -> Tree:
    """Equal trees as one; every tensor has a leading axis of members."""
    leaves = [torch.stack(parts) for parts in zip(*map(flatten, trees), strict=True)]
    result: Tree = builder(template(trees[0]))(leaves)
    return result


def member_of(tree: Tree, member: int) -> Tree:
    """The tree of one member, in new tensors."""
    result: Tree = builder(template(tree))([leaf[member].clone() for leaf in flatten(tree)])
    return result


def stacked_rollouts(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The fields of the members' rollouts, stacked; `bootstrap_index` is filled up to the longest one."""
    indices = equally_long([rollout.bootstrap_index for rollout in rollouts])
    filled = [rollout._replace(bootstrap_index=index) for rollout, index in zip(rollouts, indices, strict=True)]
    return stacked([rollout.given() for rollout in filled])


def equally_long(indices: Sequence[Tensor]) -> list[Tensor]:
    """Each `Rollout.bootstrap_index` `[K]` with the longest K: unused entries repeat the first one."""
    longest = max(map(len, indices))
    return [torch.cat([index, index[:1].expand(longest - len(index))]) for index in indices]


_BETAS = (0.9, 0.999)
"""β₁ and β₂: PyTorch's defaults, which `DiscoveryLearner` uses."""


@final
class MemberAdam:
    """`torch.optim.Adam` for P vectors at once. A member whose step is skipped does not change."""

    def __init__(self, states: Sequence[dict[str, Any]], size: int, epsilon: Float[Tensor, " P"]) -> None:
        """
        Args:
            states: state dicts of `torch.optim.Adam` on one vector, one for each member.
            size: length of the vectors.
            epsilon: ε.
        """
        self._templates, self._epsilon = list(states), epsilon[:, None]
        self._moments = stacked([_moments(state, size, epsilon.device) for state in states])
        self._rates = torch.tensor([state["param_groups"][0]["lr"] for state in states], dtype=torch.float64)

    def step(
        self,
        values: Float[Tensor, "P n"],
        gradient: Float[Tensor, "P n"],
        learning_rates: Float[Tensor, " P"],
        taken: Bool[Tensor, " P"],
    ) -> Float[Tensor, "P n"]:
        """The vectors after a step along the gradient, for members that take it."""
        moments, (first, second) = self._moments, _BETAS
        after = {
            "step": moments["step"] + 1,
            "exp_avg": moments["exp_avg"].lerp(gradient, 1 - first),
            "exp_avg_sq": (moments["exp_avg_sq"] * second).addcmul_(gradient, gradient, value=1 - second),
        }
        corrections = [1 - beta ** after["step"][:, None] for beta in _BETAS]
        scale = after["exp_avg_sq"].sqrt().div_(corrections[1].sqrt()).add_(self._epsilon)
        moved = values.addcdiv(after["exp_avg"] * (learning_rates[:, None] / corrections[0]), scale, value=-1)
        on_host = taken.cpu()
        self._rates = torch.where(on_host, learning_rates.cpu().double(), self._rates)
        if bool(on_host.all()):
            self._moments = after
            return moved
        self._moments = {name: _where(taken, value, moments[name]) for name, value in after.items()}
        return _where(taken, moved, values)

    def state_dict(self, member: int) -> dict[str, Any]:
        """The state of one member as a state dict of `torch.optim.Adam`."""
        moments = {name: value[member].clone() for name, value in self._moments.items()}
        moments["step"] = moments["step"].float().cpu()  # where PyTorch's fused Adam keeps it on the CPU
        groups = [{**self._templates[member]["param_groups"][0], "lr": float(self._rates[member])}]
        return {"state": {0: moments} if float(moments["step"]) else {}, "param_groups": groups}


def _moments(state: dict[str, Any], size: int, device: torch.device) -> dict[str, Tensor]:
    """Step count and moments; zeros before the first step."""
    found = state["state"].get(0)
    if found is None:
        zeros = torch.zeros(size, device=device)
        return {"step": torch.zeros((), device=device), "exp_avg": zeros, "exp_avg_sq": zeros}
    return {name: found[name].to(device) for name in ("step", "exp_avg", "exp_avg_sq")}


def _where(taken: Tensor, after: Tensor, before: Tensor) -> Tensor:
    return torch.where(taken if after.ndim == 1 else taken[:, None], after, before)


@final
class PopulationLearner(Learner):
    """The learners of P members as one. Every tensor of its state has a leading axis of members."""

    def __init__(self, learners: Sequence[SingleLearner], compilation: Compilation) -> None:
        """
        Args:
            learners: of the members. They agree in shapes, in the number of updates, and in all settings but
                numbers, learning rates and maximum norms. They are not changed.
            compilation: which updates run compiled.
        """
        first = learners[0]
        self._packed = first.functions.packed
        functions = UpdateFunctions(first.functions.rule, first.eta, compilation, _numbers_of(learners))
        state = stacked([learner.packed_state for learner in learners])
        super().__init__(functions, state, first.discovers, first.settings, first.updates)
        states = [learner.get_state() for learner in learners]
        self._eta = stacked([learner.packed_eta for learner in learners])
        self._meta_updates = torch.tensor([state.meta_updates for state in states])
        self._meta_skipped = torch.tensor([state.meta_skipped for state in states])
        limits = [learner.settings for learner in learners]
        self._max_norms = self._on_device([own.meta_max_grad_norm for own in limits])
        self._skip_norms = self._on_device([own.meta_skip_norm for own in limits])
        discounts = [own.meta_max_discount_grad_norm for own in limits]
        self._max_discount_norms = None if discounts[0] is None else self._on_device(discounts)  # type: ignore[arg-type]
        epsilon = self._on_device([learner.meta_epsilon for learner in learners])
        moments = [state.meta_optimizer or {} for state in states]
        self._adam = MemberAdam(moments, self._eta[KEY].shape[1], epsilon) if self._eta else None
        metrics = [None if state.metrics is None else state.metrics._asdict() for state in states]
        self.metrics: dict[str, Tensor] | None = _stacked_or_none(metrics)
        self.meta_loss = _stacked_or_none([state.meta_loss for state in states])
        self.meta_gradient_norm = _stacked_or_none([state.meta_gradient_norm for state in states])
        if first.discovers and states[0].unroll is not None:
            self._stored_unroll = self._stacked([state.unroll for state in states if state.unroll is not None])
            self._rebuild_unroll()

    @property
    def packed_eta(self) -> Params:
        return self._eta

    @property
    def theta(self) -> Params:
        """Packed θ `[P, n]`."""
        return self._state.theta

    def _stacked(self, unrolls: Sequence[UnrollState]) -> UnrollState:
        """The members' unrolls in progress as one."""
        rates = [torch.stack(own) for own in zip(*(unroll.learning_rates for unroll in unrolls), strict=True)]
        batches: Any = [stacked_rollouts(own) for own in zip(*(unroll.rollouts for unroll in unrolls), strict=True)]
        start = stacked([self._packed.packed(unroll.start) for unroll in unrolls])
        return UnrollState(start, batches, rates, unrolls[0].random_states)

    def _meta_update(self, gradient: Params, learning_rate: Sequence[float]) -> None:
        assert self._adam is not None
        rates = self._on_device(learning_rate)
        norms = self.meta_gradient_norm = torch.linalg.vector_norm(gradient[KEY], dim=1)
        taken = (norms <= self._skip_norms) & norms.isfinite()
        self._eta = {KEY: self._adam.step(self._eta[KEY], self._clipped(gradient, norms), rates, taken)}
        counted = taken.cpu()
        self._meta_updates += counted
        self._meta_skipped += ~counted

    def _clipped(self, gradient: Params, norms: Tensor) -> Tensor:
        """Meta-gradients `[P, n]`, scaled down to the members' maximum norms; `norms` are their norms."""
        if self._max_discount_norms is None:
            return gradient[KEY] * (self._max_norms / norms).clamp(max=1.0)[:, None]
        maxima = (self._max_norms, self._max_discount_norms)
        clip = torch.func.vmap(clip_meta_gradient, in_dims=(0, None, 0, 0))
        clipped: Params = clip(gradient, self._packed.eta, *maxima)
        return clipped[KEY]

    def state_of(self, member: int) -> LearnerState:
        """The state of one member's `DiscoveryLearner`, as if it had learned alone."""
        packed, state, eta = self._packed, self._named(self._state, member), member_of(self._eta, member)
        return LearnerState(
            theta=state.theta,
            statistics=state.optimizer,
            eta=packed.eta.unpack(eta),
            meta_optimizer={} if self._adam is None else self._adam.state_dict(member),
            unroll=self._unroll_of(member),
            updates=self.updates,
            meta_updates=int(self._meta_updates[member]),
            meta_skipped=int(self._meta_skipped[member]),
            metrics=None if self.metrics is None else InnerMetrics(**member_of(self.metrics, member)),
            meta_loss=None if self.meta_loss is None else self.meta_loss[member].clone(),
            meta_gradient_norm=None if self.meta_gradient_norm is None else self.meta_gradient_norm[member].clone(),
        )

    def _unroll_of(self, member: int) -> UnrollState | None:
        if self._unroll is None:
            return None
        start, batches = self._unroll.history
        rollouts = [Rollout(**member_of(batch, member)) for batch, _ in batches]
        rates = [rate[member].clone() for _, rate in batches]
        return UnrollState(self._named(start, member), rollouts, rates, list(self._random_states))

    def _named(self, state: InnerState, member: int) -> InnerState:
        own = member_of(state, member)
        return InnerState(self._packed.theta.unpack(own.theta), self._packed.optimizer.unpack(own.optimizer[KEY]))


def _numbers_of(learners: Sequence[SingleLearner]) -> dict[str, Tensor]:
    """The members' numbers by name, each `[P]`; `None` for all members or for none."""
    given = [learner.functions.rule.numbers.given() for learner in learners]
    new = learners[0].packed_state.theta[KEY].new_tensor
    return {name: new([own[name] for own in given]) for name in given[0]}


def _stacked_or_none(trees: Sequence[Tree | None]) -> Tree | None:
    found = [tree for tree in trees if tree is not None]
    return stacked(found) if len(found) == len(trees) else None
