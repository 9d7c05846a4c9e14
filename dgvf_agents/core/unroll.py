"""The meta-gradient of Algorithm 1: the backward pass from the meta-losses of θ_1 … θ_L through the updates to η."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice
from dgvf_agents.core.inner_update import InnerMetrics, InnerState
from dgvf_agents.core.types import Params, Rollout

Objective = Literal["sum", "end"]
Horizon = Literal["unrolled", "myopic"]
Storage = Literal["graph", "recompute"]

UpdateFunction = Callable[[InnerState, Params, Rollout, Tensor], tuple[InnerState, InnerMetrics]]
MetaLossFunction = Callable[[Params, Rollout], tuple[Params, Tensor]]
UpdateWithMetaLossFunction = Callable[
    [InnerState, Params, Rollout, Tensor], tuple[InnerState, InnerMetrics, Params, Tensor]
]


@dataclass
class _Step:
    """One inner update, recorded for the backward pass."""

    before: InnerState
    after: InnerState | None
    """With its graph under `"graph"` storage, else `None`."""
    rollout: Rollout
    learning_rate: Tensor
    meta_batch: Rollout | None = None
    """The batch of the meta-loss of θ_k; `None` if θ_k has none."""
    meta_gradient: Params | None = None
    """∂L^RL(θ_k)/∂θ_k on that batch under `"graph"` storage, else `None`."""


class _StateBuffer:
    """Copies of states in preallocated blocks.

    Separate copies would be allocated between the temporary tensors of the updates and fragment the memory: on
    CollectObjects-v0 the process grew by another third of their size.
    """

    def __init__(self, length: int) -> None:
        """
        Args:
            length: states per block.
        """
        self._length = length
        self._num_states = 0
        self._blocks: list[Tensor] = []

    def copy(self, state: InnerState) -> InnerState:
        """A copy of a state in the next row of the blocks."""
        row = self._num_states % self._length
        if row == 0:
            self._blocks = [value.new_empty((self._length, *value.shape)) for value in _tensors(state)]
        self._num_states += 1
        blocks = iter(self._blocks)
        return _map(lambda value: next(blocks)[row].copy_(value), state)


@final
class Unroll:
    """One iteration of Algorithm 1: L times `update`, each followed by `add_meta_loss`, then `gradient`.

    The meta-loss is the sum of L^RL(θ_k) over the updates followed by `add_meta_loss`. With all of them it is the
    paper's summed meta-loss (area under the curve), with the last one alone its end meta-loss.

    The backward pass applies the chain rule update by update. `"graph"` storage keeps the graph of every update.
    `"recompute"` storage keeps only θ_k, the optimizer's statistics and the batch, and runs each update again in the
    backward pass. The gradient is the same.
    """

    def __init__(
        self,
        update: UpdateFunction,
        meta_loss: MetaLossFunction,
        state: InnerState,
        eta: Params,
        *,
        update_with_meta_loss: UpdateWithMetaLossFunction | None = None,
        horizon: Horizon = "unrolled",
        storage: Storage = "graph",
        length: int = 1,
    ) -> None:
        """
        Args:
            update: `inner_update` of a rule, compiled or not.
            meta_loss: `meta_loss_gradient` of a rule, compiled or not.
            state: θ_0 and the optimizer's statistics.
            eta: η.
            update_with_meta_loss: that of a rule, compiled or not; needed for the method of that name.
            horizon: `"unrolled"`: through all updates; `"myopic"`: only the direct effect of η on each update (paper,
                appendix).
            storage: `"graph"` or `"recompute"`.
            length: L if it is known, the number of states that `"recompute"` storage allocates at once.

        Raises:
            ValueError: `horizon` or `storage` is not one of these.
        """
        check_choice("horizon", horizon, Horizon)
        check_choice("storage", storage, Storage)
        self._update, self._meta_loss, self._update_with_meta_loss = update, meta_loss, update_with_meta_loss
        self._unrolled, self._keep_graph = horizon == "unrolled", storage == "graph"
        self._eta = {name: value.detach().requires_grad_() for name, value in eta.items()}
        self._state = _leaves(state, requires_grad=False)
        self._steps: list[_Step] = []
        self._buffer = _StateBuffer(length)

    @property
    def state(self) -> InnerState:
        """θ_k and the optimizer's statistics after the updates so far, detached."""
        return self._state

    @property
    def updates(self) -> int:
        """k, the number of updates so far."""
        return len(self._steps)

    @property
    def history(self) -> tuple[InnerState, list[tuple[Rollout, Tensor]]]:
        """θ_0 with the optimizer's statistics, and the batch and learning rate of every update."""
        start = self._steps[0].before if self._steps else self._state
        return start, [(step.rollout, step.learning_rate) for step in self._steps]

    def set_state(self, state: InnerState) -> None:
        """Replace the state; it must equal the recorded one up to rounding."""
        self._state = _leaves(state, requires_grad=False)

    def update(self, rollout: Rollout, learning_rate: Float[Tensor, ""]) -> InnerMetrics:
        """Update θ_{k-1} to θ_k on batch k."""
        before = _leaves(self._state, requires_grad=self._keep_graph)
        with torch.set_grad_enabled(self._keep_graph):
            after, metrics = self._update(before, self._eta, rollout, learning_rate)
        self._add(before, after, rollout, learning_rate)
        return metrics

    def update_with_meta_loss(
        self, rollout: Rollout, learning_rate: Float[Tensor, ""]
    ) -> tuple[InnerMetrics, Float[Tensor, ""]]:
        """`add_meta_loss` of θ_{k-1} and `update` it to θ_k on the same batch, which is encoded only once.

        The meta-loss of θ_0 belongs to the previous iteration, so it does not count here.

        Returns:
            Metrics of the update, and L^RL(θ_{k-1}).

        Raises:
            RuntimeError: the unroll was created without `update_with_meta_loss`.
        """
        if self._update_with_meta_loss is None:
            raise RuntimeError("update_with_meta_loss() needs an unroll created with update_with_meta_loss=")
        before = _leaves(self._state, requires_grad=self._keep_graph)
        with torch.set_grad_enabled(self._keep_graph):
            after, metrics, gradients, loss = self._update_with_meta_loss(before, self._eta, rollout, learning_rate)
        if self._steps:
            self._record(rollout, gradients)
        self._add(before, after, rollout, learning_rate)
        return metrics, loss

    def _add(self, before: InnerState, after: InnerState, rollout: Rollout, learning_rate: Tensor) -> None:
        if self._keep_graph:
            self._steps.append(_Step(before, after, rollout, learning_rate))
        else:
            self._steps.append(_Step(self._buffer.copy(before), None, rollout, learning_rate))
        self._state = _leaves(after, requires_grad=False)

    def add_meta_loss(self, rollout: Rollout) -> Float[Tensor, ""]:
        """Add L^RL(θ_k) on batch k + 1, generated by θ_k, to the meta-loss; returns it.

        Raises:
            RuntimeError: there was no update yet.
        """
        if not self._steps:
            raise RuntimeError("add_meta_loss() was called before any update: call update() first")
        gradients, loss = self._meta_loss(self._state.theta, rollout)
        self._record(rollout, gradients)
        return loss

    def _record(self, rollout: Rollout, gradients: Params) -> None:
        """Record the meta-loss of θ_k. `"recompute"` storage drops its gradients, which are as large as θ."""
        self._steps[-1].meta_batch = rollout
        self._steps[-1].meta_gradient = gradients if self._keep_graph else None

    def gradient(self) -> Params:
        """The meta-gradient, by name of η's parameters. It consumes the recorded updates.

        Raises:
            RuntimeError: the meta-loss has no terms.
        """
        if all(step.meta_batch is None for step in self._steps):
            raise RuntimeError("gradient() was called without any meta-loss: call update() and add_meta_loss() first")
        total = {name: torch.zeros_like(value) for name, value in self._eta.items()}
        theta = self._state.theta
        adjoint: list[Tensor | None] = [None] * len(_tensors(self._state))
        while self._steps:
            step = self._steps.pop()  # frees its graph
            if step.meta_batch is not None:
                _add_gradient(adjoint, theta, step.meta_gradient or self._meta_loss(theta, step.meta_batch)[0])
            if any(a is not None for a in adjoint):
                of_eta, adjoint = self._backward(step, adjoint)
                for name, value in total.items():
                    value.add_(of_eta[name])
            if not self._unrolled:
                adjoint = [None] * len(adjoint)
            theta = step.before.theta
        return total

    def _backward(self, step: _Step, adjoint: list[Tensor | None]) -> tuple[Params, list[Tensor | None]]:
        """Map the adjoint of the state after an update to the gradient in η and the adjoint of the state before it."""
        before, after = step.before, step.after
        if after is None:
            before = _leaves(before, requires_grad=True)
            after, _ = self._update(before, self._eta, step.rollout, step.learning_rate)
        pairs = [
            (value, weight)
            for value, weight in zip(_tensors(after), adjoint, strict=True)
            if weight is not None and value.requires_grad
        ]
        inputs = [*self._eta.values(), *(_tensors(before) if self._unrolled else [])]
        if not inputs:  # no η, and the myopic gradient ends here
            return {}, adjoint
        outputs, weights = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        of_eta = {
            name: torch.zeros_like(value) if gradient is None else gradient
            for (name, value), gradient in zip(self._eta.items(), gradients, strict=False)
        }
        return of_eta, list(gradients[len(of_eta) :]) if self._unrolled else adjoint


def _add_gradient(adjoint: list[Tensor | None], theta: Params, meta_loss: Params) -> None:
    """Add ∂L^RL(θ_k)/∂θ_k to the adjoint of the state after update k, whose first entries are those of θ."""
    for index, name in enumerate(theta):
        if name in meta_loss:
            old = adjoint[index]
            adjoint[index] = meta_loss[name] if old is None else old + meta_loss[name]


def _leaves(state: InnerState, requires_grad: bool) -> InnerState:
    """The same values as leaves of a new graph."""
    return _map(lambda value: value.detach().requires_grad_(requires_grad), state)


def _tensors(state: InnerState) -> list[Tensor]:
    """The tensors of a state, those of θ first."""
    return [*state.theta.values(), *(value for values in state.optimizer.values() for value in values.values())]


def _map(function: Callable[[Tensor], Tensor], state: InnerState) -> InnerState:
    """Apply a function to every tensor of a state, in the order of `_tensors`."""
    # Not by PyTorch's tree_map: its overhead is a measurable part of the update of a small network.
    theta = {name: function(value) for name, value in state.theta.items()}
    return InnerState(theta, {key: {k: function(v) for k, v in part.items()} for key, part in state.optimizer.items()})


def meta_gradient(
    update: UpdateFunction,
    meta_loss: MetaLossFunction,
    state: InnerState,
    eta: Params,
    rollouts: Sequence[Rollout],
    learning_rate: Tensor,
    *,
    objective: Objective = "sum",
    horizon: Horizon = "unrolled",
    storage: Storage = "graph",
) -> Params:
    """The meta-gradient for given experience: one iteration of Algorithm 1 with L = len(rollouts) - 1.

    Args:
        update: `inner_update` of a rule.
        meta_loss: `meta_loss_gradient` of a rule.
        state: θ_0 and the optimizer's statistics.
        eta: η.
        rollouts: batches 1 … L + 1; the meta-loss of θ_k is that of batch k + 1.
        learning_rate: α′, a scalar.
        objective: `"sum"`: the meta-losses of θ_1 … θ_L; `"end"`: that of θ_L.
        horizon: see `Unroll`.
        storage: see `Unroll`.
    """
    check_choice("objective", objective, Objective)
    unroll = Unroll(update, meta_loss, state, eta, horizon=horizon, storage=storage)
    for k, (batch, next_batch) in enumerate(pairwise(rollouts)):
        unroll.update(batch, learning_rate)
        if objective == "sum" or k == len(rollouts) - 2:
            unroll.add_meta_loss(next_batch)
    return unroll.gradient()
