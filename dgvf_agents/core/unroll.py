"""Meta-gradient: from the meta-losses of θ_1 … θ_L back through the inner updates to η (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import torch
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
    """What one inner update leaves for the way back."""

    before: InnerState
    after: InnerState | None
    """With its graph, where that is kept."""
    rollout: Rollout
    learning_rate: Tensor
    scored_on: Rollout | None = None
    """The batch that θ_k was scored on, if it was."""
    score: Params | None = None
    """∂L^RL(θ_k)/∂θ_k on it, where it is kept."""


class _StateBuffer:
    """States side by side in a few blocks.

    One by one they would come to lie between the temporary tensors of the updates, and what a process takes would grow
    by the gaps too: by a third of the copies on CollectObjects-v0.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._count = 0
        self._blocks: list[Tensor] = []

    def add(self, state: InnerState) -> InnerState:
        """A copy of a state."""
        row = self._count % self._length
        if row == 0:
            self._blocks = [value.new_empty((self._length, *value.shape)) for value in _tensors(state)]
        self._count += 1
        blocks = iter(self._blocks)
        return _mapped(lambda value: next(blocks)[row].copy_(value), state)


@final
class Unroll:
    """One iteration of Algorithm 1: L times `update`, each followed by `score`, then `gradient`.

    The meta-loss is the sum over the updates that were scored: scoring all of them is the paper's area under the curve,
    scoring the last one only its end meta-loss.

    The way back is the chain rule through the updates, last to first. `"graph"` storage keeps each update's graph;
    `"recompute"` keeps θ_k, the optimizer's statistics and the batch, and runs each update again on the way back: same
    gradient, and memory that grows with L by those copies only.
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
            update: `inner_update` of a learner, compiled or not.
            score: `meta_loss_gradient` of a learner, compiled or not.
            state: θ_0 and the optimizer's statistics.
            eta: η.
            scored_update: `scored_update` of a learner, compiled or not; for `score_and_update`.
            horizon: `"unrolled"` through all updates, or `"myopic"`, each update's own effect only (paper, appendix).
            storage: `"graph"` or `"recompute"`.
            length: L where it is known; recomputing storage makes room for so many copies at a time.

        Raises:
            ValueError: `horizon` or `storage` is none of these.
        """
        check_choice("horizon", horizon, Horizon)
        check_choice("storage", storage, Storage)
        self._update, self._score, self._scored_update = update, score, scored_update
        self._unrolled, self._keep_graph = horizon == "unrolled", storage == "graph"
        self._eta = {name: value.detach().requires_grad_() for name, value in eta.items()}
        self._state = _leaves(state, requires_grad=False)
        self._steps: list[_Step] = []
        self._copies = _StateBuffer(length)

    @property
    def state(self) -> InnerState:
        """θ_k and the optimizer's statistics after the updates so far, detached."""
        return self._state

    @property
    def updates(self) -> int:
        """k, the updates so far."""
        return len(self._steps)

    @property
    def history(self) -> tuple[InnerState, list[tuple[Rollout, Tensor]]]:
        """θ_0 with the optimizer's statistics, and the batches and learning rates of the updates since."""
        start = self._steps[0].before if self._steps else self._state
        return start, [(step.rollout, step.learning_rate) for step in self._steps]

    def set_state(self, state: InnerState) -> None:
        """Take this for θ_k and the optimizer's statistics, which the updates so far led to up to rounding."""
        self._state = _leaves(state, requires_grad=False)

    def update(self, rollout: Rollout, learning_rate: Tensor) -> InnerMetrics:
        """θ_{k-1} → θ_k on batch k."""
        before = _leaves(self._state, requires_grad=self._keep_graph)
        with torch.set_grad_enabled(self._keep_graph):
            after, metrics = self._update(before, self._eta, rollout, learning_rate)
        self._add(before, after, rollout, learning_rate)
        return metrics

    def score_and_update(self, rollout: Rollout, learning_rate: Tensor) -> tuple[InnerMetrics, Tensor]:
        """`score` of θ_{k-1} and `update` to θ_k on the same batch, for one encoding of it; before any update it
        scores nothing.

        Raises:
            RuntimeError: the unroll was made without `scored_update`.
        """
        if self._scored_update is None:
            raise RuntimeError("score_and_update() needs an unroll made with scored_update=")
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
            self._steps.append(_Step(self._copies.add(before), None, rollout, learning_rate))
        self._state = _leaves(after, requires_grad=False)

    def score(self, rollout: Rollout) -> Tensor:
        """L^RL(θ_k) on batch k + 1, which θ_k generated.

        Raises:
            RuntimeError: there was no update yet.
        """
        if not self._steps:
            raise RuntimeError("score() was called before any update: call update() first")
        gradients, loss = self._score(self._state.theta, rollout)
        self._scored(rollout, gradients)
        return loss

    def _scored(self, rollout: Rollout, gradients: Params) -> None:
        """The last update was scored. Recomputing storage drops the gradients: they are as large as θ."""
        self._steps[-1].scored_on = rollout
        self._steps[-1].score = gradients if self._keep_graph else None

    def gradient(self) -> Params:
        """The meta-gradient, by name of η's parameters. It uses the unroll up.

        Raises:
            RuntimeError: no update was scored.
        """
        if all(step.scored_on is None for step in self._steps):
            raise RuntimeError("gradient() was called without any scored update: call update() and score() first")
        total = {name: torch.zeros_like(value) for name, value in self._eta.items()}
        theta = self._state.theta
        adjoint: list[Tensor | None] = [None] * len(_tensors(self._state))
        while self._steps:
            step = self._steps.pop()  # and with it goes its graph
            if step.scored_on is not None:
                _add_score(adjoint, theta, step.score or self._score(theta, step.scored_on)[0])
            if any(a is not None for a in adjoint):
                of_eta, adjoint = self._back(step, adjoint)
                for name, value in total.items():
                    value.add_(of_eta[name])
            if not self._unrolled:
                adjoint = [None] * len(adjoint)
            theta = step.before.theta
        return total

    def _back(self, step: _Step, adjoint: list[Tensor | None]) -> tuple[Params, list[Tensor | None]]:
        """Pull the adjoint of the state after an update back: to η, and to the state before it."""
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
        if not inputs:  # no η, and nothing earlier to go back to
            return {}, adjoint
        outputs, weights = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        of_eta = {
            name: torch.zeros_like(value) if gradient is None else gradient
            for (name, value), gradient in zip(self._eta.items(), gradients, strict=False)
        }
        return of_eta, list(gradients[len(of_eta) :]) if self._unrolled else adjoint


def _add_score(adjoint: list[Tensor | None], theta: Params, score: Params) -> None:
    """Add ∂L^RL(θ_k)/∂θ_k to the adjoint of the state after step k, whose first entries are θ's."""
    for place, name in enumerate(theta):
        if name in score:
            old = adjoint[place]
            adjoint[place] = score[name] if old is None else old + score[name]


def _leaves(state: InnerState, requires_grad: bool) -> InnerState:
    """The same values as the start of a new piece of graph."""
    return _mapped(lambda value: value.detach().requires_grad_(requires_grad), state)


def _tensors(state: InnerState) -> list[Tensor]:
    """A state's tensors, θ's first."""
    return [*state.theta.values(), *(value for values in state.optimizer.values() for value in values.values())]


def _mapped(function: Callable[[Tensor], Tensor], state: InnerState) -> InnerState:
    """The function of each of a state's tensors, in the order of `_tensors`.

    By hand: PyTorch's trees, made for any nesting, take a measurable part of the time of a small network's update.
    """
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
    """The meta-gradient for given experience: Algorithm 1 with L = len(rollouts) - 1.

    Args:
        update: `inner_update` of a learner.
        score: `meta_loss_gradient` of a learner.
        state: θ_0 and the optimizer's statistics.
        eta: η.
        rollouts: batch 1 … L + 1; θ_k is scored on batch k + 1.
        learning_rate: α′, a scalar.
        objective: `"sum"` of the meta-losses of θ_1 … θ_L, or the one of θ_L, `"end"`.
        horizon: see `Unroll`.
        storage: see `Unroll`.
    """
    check_choice("objective", objective, Objective)
    unroll = Unroll(update, score, state, eta, horizon=horizon, storage=storage)
    for k, (batch, following) in enumerate(pairwise(rollouts)):
        unroll.update(batch, learning_rate)
        if objective == "sum" or k == len(rollouts) - 2:
            unroll.score(following)
    return unroll.gradient()
