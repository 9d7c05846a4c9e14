"""The meta-gradient of an inner loop over given batches, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice
from dgvf_agents.core.inner_loop import Eta, InnerLoop, State
from dgvf_agents.options import Horizon, Objective, Storage


@final
@dataclass(frozen=True)
class MetaGradient(Generic[State, Eta]):
    """The result of an inner loop: its meta-gradient, last state and losses."""

    gradient: Eta
    """∇_η of the sum of the losses, a tree like η."""
    state: State
    """s_L, detached."""
    losses: Float[Tensor, " n"]
    """`[n]`: the losses, detached; n is L for the objective `"sum"`, 1 for `"end"`."""


def meta_gradient(
    step: Callable[..., Any],
    loss: Callable[..., Any],
    state: State,
    eta: Eta,
    batches: Sequence[Any],
    loss_batches: Sequence[Any],
    *,
    objective: Objective = "sum",
    horizon: Horizon = "unrolled",
    storage: Storage = "graph",
) -> MetaGradient[State, Eta]:
    """The meta-gradient of an inner loop over given batches.

    Args:
        step: `(state, η, batch)` to the new state, or to a pair of the new state and an auxiliary result.
        loss: `(state, η, batch)` to a scalar.
        state: s_0.
        eta: η.
        batches: the L ≥ 1 batches of the steps.
        loss_batches: the batches of the losses: of s_1 … s_L for the objective `"sum"`, of s_L for `"end"`.
        objective: whether the meta-loss is the sum of the losses of all states, or the loss of the last one.
        horizon: see `InnerLoop`.
        storage: see `InnerLoop`.

    Raises:
        ValueError: an argument is out of its range, or numbers of batches do not fit; what `InnerLoop` raises.
    """
    check_choice("objective", objective, Objective)
    if not batches:
        raise ValueError("batches must have an entry for each step, got none")
    needed = len(batches) if objective == "sum" else 1
    if len(loss_batches) != needed:
        raise ValueError(
            f"loss_batches must have {needed} entries for objective {objective!r}, got {len(loss_batches)}"
        )
    loop = InnerLoop(state, eta, horizon=horizon, storage=storage, length=len(batches))
    losses: list[Tensor] = []
    unscored = len(batches) - needed
    for k, batch in enumerate(batches):
        loop.step(step, batch)
        if k >= unscored:
            losses.append(loop.add_loss(loss, loss_batches[k - unscored]))
    return MetaGradient(loop.gradient(), loop.state, torch.stack(losses))
