from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, OptimizerState, RMSProp
from dgvf_agents.core.types import Params
from tests.core_oracles import Rule, Statistics, optimizer_step

pytestmark = pytest.mark.usefixtures("double_precision")

OPTIMIZERS: tuple[Optimizer, ...] = (
    SGD(),
    RMSProp(0.7, 1e-3),
    RMSProp(0.7, 1e-3, differentiable_moment=False),
    RMSProp(0.0, 1e-5),
    Adam(0.8, 0.7, 1e-2),
    Adam(0.0, 0.0, 1e-5),
    Adam(0.8, 0.7, 1e-2, weight_decay=0.3),
    RMSProp(0.7, 1e-3, epsilon_outside=False),
)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)


def random_params(seed: int, scale: float = 1.0) -> Params:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"weight": (3, 2), "bias": (3,), "scalar": ()}
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def run(optimizer: Optimizer, params: Params, gradients: list[Params], rate: Tensor | float) -> list[Params]:
    """Parameters after each step."""
    state, history = optimizer.init(params), []
    for gradient in gradients:
        params, state = optimizer.step(params, gradient, state, rate)
        history.append(params)
    return history


GRADIENT_SEEDS = range(1, 9)


@pytest.mark.parametrize(
    ("optimizer", "rule", "second"),
    [
        (RMSProp.tensorflow(1e-2, 0.7), Rule("rmsprop", 0.1, epsilon=1e-2, decay=0.7, outside=False), 1.0),
        (RMSProp.pytorch(1e-2, 0.7), Rule("rmsprop", 0.1, epsilon=1e-4, decay=0.7), 0.0),
        (RMSProp(), Rule("rmsprop", 0.1, epsilon=1e-10, decay=0.99), 0.0),
        (Adam(0.8, 0.7, 1e-2), Rule("adam", 0.1, epsilon=1e-2, beta1=0.8, beta2=0.7), 0.0),
    ],
)
def test_from_fresh_statistics_on_they_follow_their_formulas(optimizer: Optimizer, rule: Rule, second: float) -> None:
    params = expected = random_params(0)
    statistics = Statistics(
        0, tree_map(torch.zeros_like, params), tree_map(lambda p: torch.full_like(p, second), params)
    )
    gradients = [random_params(seed) for seed in GRADIENT_SEEDS]
    for gradient, actual in zip(gradients, run(optimizer, params, gradients, 0.1), strict=True):
        expected, statistics = optimizer_step(rule, expected, gradient, statistics)
        torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-14)


def flattened(optimizer: Optimizer, state: OptimizerState) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
    """Two steps as a function of tensors: parameters, both gradients, statistics, learning rate."""
    arguments = (random_params(0), random_params(1), random_params(2), state, torch.tensor(0.1))
    tensors, structure = tree_flatten(arguments)

    def two_steps(*tensors: Tensor) -> list[Tensor]:
        params, first, second, state, rate = tree_unflatten(list(tensors), structure)
        params, state = optimizer.step(params, first, state, rate)
        return tree_flatten(optimizer.step(params, second, state, rate))[0]

    return [tensor.detach().clone().requires_grad_() for tensor in tensors], two_steps


def after_training(optimizer: Optimizer) -> OptimizerState:
    state = optimizer.init(random_params(0))
    for seed in (3, 4):
        _, state = optimizer.step(random_params(0), random_params(seed), state, 0.1)
    return state


@every_optimizer
def test_finite_at_zero_gradients_and_zero_statistics(optimizer: Optimizer) -> None:
    tensors, two_steps = flattened(optimizer, tree_map(torch.zeros_like, after_training(optimizer)))
    with torch.no_grad():
        for tensor in tensors[3:9]:  # both gradients
            tensor.zero_()
    outputs = two_steps(*tensors)
    differentiable = [output for output in outputs if output.requires_grad]
    gradients = torch.autograd.grad([o.sum() for o in differentiable], tensors, allow_unused=True)
    assert all(output.isfinite().all() for output in outputs)
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


def test_a_constant_second_moment_blocks_only_its_part_of_the_gradient() -> None:
    """∂θ/∂g is -α / √(s + ε), and with the moment another α (1 - ρ) g² / (s + ε)^{3/2}; ∂θ/∂s_old alike."""
    rho, epsilon, rate = 0.7, 1e-2, 0.1
    g, old = (random_params(1)["weight"].requires_grad_(), (random_params(2)["weight"] ** 2).requires_grad_())
    s = (rho * old + (1 - rho) * g**2 + epsilon).detach()
    steps = {}
    for through in (True, False):
        optimizer = RMSProp(rho, epsilon, differentiable_moment=through, epsilon_outside=False)
        state = {"second_moment": {"weight": old}}
        steps[through], after = optimizer.step({"weight": torch.zeros(3, 2)}, {"weight": g}, state, rate)
        of_g, of_old = torch.autograd.grad(
            steps[through]["weight"].sum(), (g, old), allow_unused=True, materialize_grads=True
        )
        part = float(through)
        torch.testing.assert_close(of_g, -rate * s**-0.5 + part * rate * (1 - rho) * g**2 * s**-1.5)
        torch.testing.assert_close(of_old, part * rate * rho * g * s**-1.5 / 2)
        torch.testing.assert_close(after["second_moment"]["weight"], s - epsilon)
    torch.testing.assert_close(steps[True], steps[False], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(Adam(epsilon=1e-5), torch.optim.Adam), (RMSProp.pytorch(1e-5), torch.optim.RMSprop)],
)
def test_the_rules_are_pytorch_s_in_single_precision(ours: Optimizer, theirs: Callable[..., Any]) -> None:
    """1 - βⁿ from a rounded βⁿ would be wrong in the fifth digit; gradients of the size of ε tell where it stands."""
    generator = torch.Generator().manual_seed(0)
    gradients = [1e-4 * torch.rand(50, generator=generator, dtype=torch.float32) for _ in range(20)]
    parameter = torch.zeros(50, requires_grad=True, dtype=torch.float32)
    optimizer = theirs([parameter], 0.01, eps=1e-5)
    theta = {"w": parameter.detach().clone()}
    state = ours.init(theta)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        theta, state = ours.step(theta, {"w": gradient}, state, 0.01)
        torch.testing.assert_close(theta["w"], parameter.detach(), rtol=2e-6, atol=0.0)
