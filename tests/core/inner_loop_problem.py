"""A small inner loop: regression with momentum, whose learning rate, decay and weights of examples are η."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

EXAMPLES, INPUTS = 4, 3


class Training(NamedTuple):
    theta: dict[str, Tensor]
    momentum: dict[str, Tensor]
    count: Tensor
    """An integer, which has no gradient."""


def start() -> Training:
    generator = torch.Generator().manual_seed(0)
    theta = {"weight": torch.randn(INPUTS, generator=generator), "bias": torch.tensor(0.3)}
    return Training(theta, {k: torch.full_like(v, 0.1) for k, v in theta.items()}, torch.tensor(0))


def initial_eta() -> dict[str, Any]:
    """A tree of more than one level, with a parameter that nothing reads."""
    weights = torch.tensor([0.3, -0.2, 0.5, 0.1])
    return {"rates": [torch.tensor(-1.0), torch.tensor(0.4)], "weights": weights, "unread": torch.ones(2)}


def batches(number: int, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Inputs `[4, 3]` and targets `[4]`."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(EXAMPLES, INPUTS, generator=generator), torch.randn(EXAMPLES, generator=generator))
        for _ in range(number)
    ]


def errors(theta: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return (torch.tanh(inputs @ theta["weight"] + theta["bias"]) - targets) ** 2


def training_loss(theta: dict[str, Tensor], eta: dict[str, Any], batch: tuple[Tensor, Tensor]) -> Tensor:
    return (torch.softmax(eta["weights"], 0) * errors(theta, batch)).sum()


def step(state: Training, eta: dict[str, Any], batch: tuple[Tensor, Tensor]) -> tuple[Training, dict[str, Tensor]]:
    log_rate, decay = eta["rates"]
    gradient, loss = torch.func.grad_and_value(training_loss)(state.theta, eta, batch)
    momentum = {k: torch.sigmoid(decay) * state.momentum[k] + gradient[k] for k in gradient}
    theta = {k: value - log_rate.exp() * momentum[k] for k, value in state.theta.items()}
    return Training(theta, momentum, state.count + 1), {"loss": loss}


def loss(state: Training, eta: dict[str, Any], batch: tuple[Tensor, Tensor]) -> Tensor:
    """Of parameters, momentum and η itself."""
    penalty = 0.1 * (eta["weights"] ** 2).sum() + 0.2 * state.momentum["bias"] ** 2
    return errors(state.theta, batch).mean() + penalty


def step_with_loss(
    state: Training, eta: dict[str, Any], batch: tuple[Tensor, Tensor]
) -> tuple[tuple[Training, Tensor], dict[str, Tensor]]:
    after, auxiliary = step(state, eta, batch)
    return (after, loss(state, eta, batch)), auxiliary
