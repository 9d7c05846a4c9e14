"""The meta-gradient of Algorithm 1, through an unroll of inner updates, whose meta-losses are L^RL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, final

from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice
from dgvf_agents.core.flat import flatten
from dgvf_agents.core.inner_loop import InnerLoop, LossGradient
from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.options import Horizon, Objective, Storage

Batch = Any
"""A `Rollout`, or a batch of every member of a population. An unroll passes it on to its functions."""

UpdateFunction = Callable[[InnerState, Params, Any, Any], tuple[InnerState, Any]]
MetaLossFunction = Callable[[Params, Any], tuple[Params, Tensor]]
UpdateWithMetaLossFunction = Callable[[InnerState, Params, Any, Any], tuple[tuple[InnerState, Tensor], Any]]


@final
class _MetaLoss:
    """L^RL as a loss of the inner state. It brings its own gradient, which is that in θ alone."""

    def __init__(self, function: MetaLossFunction) -> None:
        self._function = function

    def __call__(self, state: InnerState, eta: Params, rollout: Batch) -> Tensor:
        return self._function(state.theta, rollout)[1]

    def gradient(self, state: InnerState, eta: Params, rollout: Batch) -> LossGradient:
        gradients, loss = self._function(state.theta, rollout)
        of_theta = [gradients.get(name) for name in state.theta]
        return LossGradient(loss, [*of_theta, *(None for _ in flatten(state.optimizer))], [None] * len(eta))


@final
class Unroll:
    """One iteration of Algorithm 1: L times `update`, each followed by `add_meta_loss`, then `gradient`.

    The meta-loss is the sum of L^RL(θ_k) over the updates followed by `add_meta_loss`. With all of them it is the
    paper's summed meta-loss (area under the curve), with the last one alone its end meta-loss. `update_with_meta_loss`
    does the work of `add_meta_loss` and the next `update` with fewer passes through the encoder.
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
            update_with_meta_loss: `inner_update` of a rule with `scored`; needed for the method of that name.
            horizon: `"unrolled"`: through all updates; `"myopic"`: only the direct effect of η on each update (paper,
                appendix).
            storage: `"graph"` or `"recompute"`, see `InnerLoop`.
            length: L if it is known, see `InnerLoop`.

        Raises:
            ValueError: `horizon` or `storage` is not one of these.
        """
        self._update, self._meta_loss, self._update_with_meta_loss = update, _MetaLoss(meta_loss), update_with_meta_loss
        self._myopic = horizon == "myopic"
        self._loop = InnerLoop(state, eta, horizon=horizon, storage=storage, length=length)

    @property
    def state(self) -> InnerState:
        """θ_k and the optimizer's statistics after the updates so far, detached."""
        return self._loop.state

    @property
    def updates(self) -> int:
        """k, the number of updates so far."""
        return self._loop.steps

    @property
    def history(self) -> tuple[InnerState, list[tuple[Any, ...]]]:
        """θ_0 with the optimizer's statistics, and the batch and learning rate of every update."""
        return self._loop.history

    def set_state(self, state: InnerState) -> None:
        """Replace the state; it must equal the recorded one up to rounding."""
        self._loop.set_state(state)

    def update(self, rollout: Batch, learning_rate: Tensor) -> Any:
        """Update θ_{k-1} to θ_k on batch k."""
        return self._loop.step(self._update, rollout, learning_rate)

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
        if not self._myopic:
            scored: tuple[Any, Tensor]
            scored = self._loop.step(self._update_with_meta_loss, rollout, learning_rate, with_loss=True)
            return scored
        loss = self.add_meta_loss(rollout) if self.updates else self._meta_loss(self.state, {}, rollout)
        return self.update(rollout, learning_rate), loss

    def add_meta_loss(self, rollout: Batch) -> Tensor:
        """Add L^RL(θ_k) on batch k + 1, generated by θ_k, to the meta-loss; returns it.

        Raises:
            RuntimeError: there was no update yet.
        """
        if not self.updates:
            raise RuntimeError("add_meta_loss() was called before any update: call update() first")
        return self._loop.add_loss(self._meta_loss, rollout)

    def gradient(self) -> Params:
        """The meta-gradient, by name of η's parameters. It consumes the recorded updates.

        Raises:
            RuntimeError: the meta-loss has no terms.
        """
        if not self._loop.has_loss:
            raise RuntimeError("gradient() was called without any meta-loss: call update() and add_meta_loss() first")
        return self._loop.gradient()


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
        rollouts: batches 1 … L + 1; the meta-loss of θ_k uses batch k + 1.
        learning_rate: α′, a scalar.
        objective: `"sum"`: the meta-losses of θ_1 … θ_L; `"end"`: θ_L's alone.
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
