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
ScoreFunction = Callable[[Params, Rollout], tuple[Params, Tensor]]
ScoredUpdateFunction = Callable[[InnerState, Params, Rollout, Tensor], tuple[InnerState, InnerMetrics, Params, Tensor]]


@dataclass
class _Step:
    """One inner update, recorded for the backward pass."""

    before: InnerState
    after: InnerState | None
    """With its graph under `"graph"` storage, else `None`."""
    rollout: Rollout
    learning_rate: Tensor
    scored_on: Rollout | None = None
    """The batch of the meta-loss of θ_k; `None` if θ_k has none."""
    score: Params | None = None
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
    """One iteration of Algorithm 1: L times `update`, each followed by `score`, then `gradient`.

    The meta-loss is the sum of L^RL(θ_k) over the updates followed by `score`. With all of them it is the paper's
    summed meta-loss (area under the curve), with the last one alone its end meta-loss.

    The backward pass applies the chain rule update by update. `"graph"` storage keeps the graph of every update.
    `"recompute"` storage keeps only θ_k, the optimizer's statistics and the batch, and runs each update again in the
    backward pass. The gradient is the same.
    """

    def __init__(
        self,
        update: UpdateFunction,
        score: ScoreFunction,
        state: InnerState,
        eta: Params,
        *,
        scored_update: ScoredUpdateFunction | None = None,
        horizon: Horizon = "unrolled",
        storage: Storage = "graph",
        length: int = 1,
    ) -> None:
        """
        Args:
            update: `inner_update` of a rule, compiled or not.
            score: `meta_loss_gradient` of a rule, compiled or not.
            state: θ_0 and the optimizer's statistics.
            eta: η.
            scored_update: `scored_update` of a rule, compiled or not; needed for `score_and_update`.
            horizon: `"unrolled"`: through all updates; `"myopic"`: only the direct effect of η on each update (paper,
                appendix).
            storage: `"graph"` or `"recompute"`.
            length: L if it is known, the number of states that `"recompute"` storage allocates at once.

        Raises:
            ValueError: `horizon` or `storage` is not one of these.
        """
        check_choice("horizon", horizon, Horizon)
        check_choice("storage", storage, Storage)
        self._update, self._score, self._scored_update = update, score, scored_update
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

    def score_and_update(
        self, rollout: Rollout, learning_rate: Float[Tensor, ""]
    ) -> tuple[InnerMetrics, Float[Tensor, ""]]:
        """`score` θ_{k-1} and `update` it to θ_k on the same batch, which is encoded only once.

        The meta-loss of θ_0 belongs to the previous iteration, so it does not count here.

        Returns:
            Metrics of the update, and L^RL(θ_{k-1}).

        Raises:
            RuntimeError: the unroll was created without `scored_update`.
        """
        if self._scored_update is None:
            raise RuntimeError("score_and_update() needs an unroll created with scored_update=")
        before = _leaves(self._state, requires_grad=self._keep_graph)
        with torch.set_grad_enabled(self._keep_graph):
            after, metrics, gradients, loss = self._scored_update(before, self._eta, rollout, learning_rate)
        if self._steps:
            self._scored(rollout, gradients)
        self._add(before, after, rollout, learning_rate)
        return metrics, loss

    def _add(self, before: InnerState, after: InnerState, rollout: Rollout, learning_rate: Tensor) -> None:
        if self._keep_graph:
            self._steps.append(_Step(before, after, rollout, learning_rate))
        else:
            self._steps.append(_Step(self._buffer.copy(before), None, rollout, learning_rate))
        self._state = _leaves(after, requires_grad=False)

    def score(self, rollout: Rollout) -> Float[Tensor, ""]:
        """Add L^RL(θ_k) on batch k + 1, generated by θ_k, to the meta-loss; returns it.

        Raises:
            RuntimeError: there was no update yet.
        """
        if not self._steps:
            raise RuntimeError("score() was called before any update: call update() first")
        gradients, loss = self._score(self._state.theta, rollout)
        self._scored(rollout, gradients)
        return loss

    def _scored(self, rollout: Rollout, gradients: Params) -> None:
        """Record the meta-loss of θ_k. `"recompute"` storage drops its gradients, which are as large as θ."""
        self._steps[-1].scored_on = rollout
        self._steps[-1].score = gradients if self._keep_graph else None

    def gradient(self) -> Params:
        """The meta-gradient, by name of η's parameters. It consumes the recorded updates.

        Raises:
            RuntimeError: the meta-loss has no terms.
        """
        if all(step.scored_on is None for step in self._steps):
            raise RuntimeError("gradient() was called without any scored update: call update() and score() first")
        total = {name: torch.zeros_like(value) for name, value in self._eta.items()}
        theta = self._state.theta
        adjoint: list[Tensor | None] = [None] * len(_tensors(self._state))
        while self._steps:
            step = self._steps.pop()  # frees its graph
            if step.scored_on is not None:
                _add_score(adjoint, theta, step.score or self._score(theta, step.scored_on)[0])
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


def _add_score(adjoint: list[Tensor | None], theta: Params, score: Params) -> None:
    """Add ∂L^RL(θ_k)/∂θ_k to the adjoint of the state after update k, whose first entries are those of θ."""
    for index, name in enumerate(theta):
        if name in score:
            old = adjoint[index]
            adjoint[index] = score[name] if old is None else old + score[name]


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
    score: ScoreFunction,
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
        score: `meta_loss_gradient` of a rule.
        state: θ_0 and the optimizer's statistics.
        eta: η.
        rollouts: batches 1 … L + 1; the meta-loss of θ_k is that of batch k + 1.
        learning_rate: α′, a scalar.
        objective: `"sum"`: the meta-losses of θ_1 … θ_L; `"end"`: that of θ_L.
        horizon: see `Unroll`.
        storage: see `Unroll`.
    """
    check_choice("objective", objective, Objective)
    unroll = Unroll(update, score, state, eta, horizon=horizon, storage=storage)
    for k, (batch, next_batch) in enumerate(pairwise(rollouts)):
        unroll.update(batch, learning_rate)
        if objective == "sum" or k == len(rollouts) - 2:
            unroll.score(next_batch)
    return unroll.gradient()
