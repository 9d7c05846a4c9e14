"""The meta-gradient of Algorithm 1: the backward pass from the meta-losses of θ_1 … θ_L through the updates to η."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, final

import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice
from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.core.types import Params, Rollout, detach
from dgvf_agents.core.vjp import PullBack, vjp

Objective = Literal["sum", "end"]
Horizon = Literal["unrolled", "myopic"]
Storage = Literal["graph", "recompute"]

Batch = Any
"""A `Rollout`, or a batch of every member of a population. An unroll passes it on to its functions."""

UpdateFunction = Callable[[InnerState, Params, Any, Any], tuple[InnerState, Any]]
MetaLossFunction = Callable[[Params, Any], tuple[Params, Tensor]]
UpdateWithMetaLossFunction = Callable[[InnerState, Params, Any, Any], tuple[tuple[InnerState, Tensor], Any]]


@dataclass
class _Step:
    """One inner update, recorded for the backward pass."""

    before: InnerState
    rollout: Batch
    learning_rate: Tensor
    function: Callable[..., Any]
    """What was called: `update`, or `update_with_meta_loss`."""
    pull_back: PullBack | None
    """Under `"graph"` storage, else `None`."""
    weight: Tensor | None = None
    """1, the weight of the L^RL(θ_{k-1}) that the function returns; `None` if it returns none."""
    meta_batch: Batch | None = None
    """The batch of the meta-loss of θ_k, if `add_meta_loss` added one; else `None`."""
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
    paper's summed meta-loss (area under the curve), with the last one alone its end meta-loss. `update_with_meta_loss`
    does the work of `add_meta_loss` and the next `update` with fewer passes through the encoder.

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
        self._eta = detach(eta)
        self._state = _map(Tensor.detach, state)
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
    def history(self) -> tuple[InnerState, list[tuple[Any, Any]]]:
        """θ_0 with the optimizer's statistics, and the batch and learning rate of every update."""
        start = self._steps[0].before if self._steps else self._state
        return start, [(step.rollout, step.learning_rate) for step in self._steps]

    def set_state(self, state: InnerState) -> None:
        """Replace the state; it must equal the recorded one up to rounding."""
        self._state = _map(Tensor.detach, state)

    def update(self, rollout: Batch, learning_rate: Tensor) -> Any:
        """Update θ_{k-1} to θ_k on batch k."""
        (after, metrics), step = self._called(self._update, rollout, learning_rate)
        self._add(step, after)
        return metrics

    def _called(
        self, function: Callable[..., Any], rollout: Batch, learning_rate: Tensor
    ) -> tuple[tuple[Any, ...], _Step]:
        """A function's results at the current state, and the step, with a pull-back unless that is recomputed."""
        arguments = (self._state, self._eta, rollout, learning_rate)
        if self._keep_graph:
            results, pull_back = _vjp(function, arguments)
            return results, _Step(self._state, rollout, learning_rate, function, pull_back)
        with torch.no_grad():
            results = function(*arguments)
        return results, _Step(self._buffer.copy(self._state), rollout, learning_rate, function, None)

    def update_with_meta_loss(self, rollout: Batch, learning_rate: Tensor) -> tuple[Any, Tensor]:
        """`add_meta_loss` of θ_{k-1} and `update` it to θ_k on the same batch, which is encoded only once.

        The meta-loss of θ_0 belongs to the previous iteration and does not depend on η here. With a `"myopic"` horizon
        the batch is encoded twice: the backward pass needs the gradient of every meta-loss by itself.

        Returns:
            Metrics of the update, and L^RL(θ_{k-1}).

        Raises:
            RuntimeError: the unroll was created without `update_with_meta_loss`.
        """
        if self._update_with_meta_loss is None:
            raise RuntimeError("update_with_meta_loss() needs an unroll created with update_with_meta_loss=")
        if not self._unrolled:
            gradients, loss = self._meta_loss(self._state.theta, rollout)
            if self._steps:
                self._record(rollout, gradients)
            return self.update(rollout, learning_rate), loss
        ((after, loss), metrics), step = self._called(self._update_with_meta_loss, rollout, learning_rate)
        step.weight = torch.ones_like(loss)
        self._add(step, after)
        return metrics, loss

    def _add(self, step: _Step, after: InnerState) -> None:
        self._steps.append(step)
        self._state = after

    def add_meta_loss(self, rollout: Batch) -> Tensor:
        """Add L^RL(θ_k) on batch k + 1, generated by θ_k, to the meta-loss; returns it.

        Raises:
            RuntimeError: there was no update yet.
        """
        if not self._steps:
            raise RuntimeError("add_meta_loss() was called before any update: call update() first")
        gradients, loss = self._meta_loss(self._state.theta, rollout)
        self._record(rollout, gradients)
        return loss

    def _record(self, rollout: Batch, gradients: Params) -> None:
        """Record the meta-loss of θ_k. `"recompute"` storage drops its gradients, which are as large as θ."""
        self._steps[-1].meta_batch = rollout
        self._steps[-1].meta_gradient = gradients if self._keep_graph else None

    def gradient(self) -> Params:
        """The meta-gradient, by name of η's parameters. It consumes the recorded updates.

        Raises:
            RuntimeError: the meta-loss has no terms.
        """
        scored = [step.weight for step in self._steps[1:]]
        if all(part is None for part in (*scored, *(step.meta_batch for step in self._steps))):
            raise RuntimeError("gradient() was called without any meta-loss: call update() and add_meta_loss() first")
        total = [torch.zeros_like(value) for value in self._eta.values()]
        zeros = [torch.zeros_like(value) for value in _tensors(self._state)]
        adjoint = self._meta_loss_gradient(self._steps[-1], self._state.theta, zeros)
        while self._steps:
            step = self._steps.pop()  # frees its graph
            direct = zeros  # ∂L^RL(θ_{k-1})/∂θ_{k-1}, if `add_meta_loss` added it
            if self._steps:
                direct = self._meta_loss_gradient(self._steps[-1], step.before.theta, zeros)
            if adjoint is zeros and step.weight is None:  # no meta-loss so far
                adjoint = direct
                continue
            passed: list[Any] = direct if self._unrolled else [None] * len(direct)
            cotangents = adjoint if step.weight is None else [*adjoint, step.weight]
            products: list[Any] = self._pull_back(step)(cotangents, [*passed, *total])
            adjoint = products[: len(direct)] if self._unrolled else direct
            total = products[len(direct) :]
        return dict(zip(self._eta, total, strict=True))

    def _pull_back(self, step: _Step) -> PullBack:
        """The pull-back of an update, which `"recompute"` storage repeats for it."""
        return step.pull_back or _vjp(step.function, (step.before, self._eta, step.rollout, step.learning_rate))[1]

    def _meta_loss_gradient(self, step: _Step, theta: Params, zeros: list[Tensor]) -> list[Tensor]:
        """The gradient of the meta-loss after an update in the state there: θ, and statistics of no influence.

        Args:
            step: the update.
            theta: θ after it.
            zeros: like the tensors of the state; returned if there is no meta-loss.
        """
        if step.meta_batch is None:
            return zeros
        gradients = step.meta_gradient or self._meta_loss(theta, step.meta_batch)[0]
        return [gradients.get(name, zero) for name, zero in zip(theta, zeros, strict=False)] + zeros[len(theta) :]


def _vjp(update: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], PullBack]:
    """The update's results and its pull-back in the state and η: its own if it has one, that of autograd otherwise."""
    own = getattr(update, "vjp", None)
    return own(*arguments) if own is not None else vjp(update, arguments, 2)


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
