"""Clipping of gradients, and the conversion of hyperparameters between losses that are sums and means."""

from __future__ import annotations

import pytest
import torch

from dgvf_agents.core.networks import MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import (
    RMSProp,
    clip_by_global_norm,
    clip_heads_separately,
    global_norm,
    norm_for_means,
    optimizer_for_means,
)
from dgvf_agents.core.question_networks import SharedQuestionNetwork
from dgvf_agents.core.types import Params
from tests.core.test_optimizers import random_params

pytestmark = pytest.mark.usefixtures("double_precision")


# --- one norm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 100.0])
def test_clipping_equals_that_of_torch(max_norm: float) -> None:
    gradients = random_params(0)
    leaves = {k: torch.zeros_like(g) for k, g in gradients.items()}
    for k, leaf in leaves.items():
        leaf.grad = gradients[k].clone()
    torch.nn.utils.clip_grad_norm_(leaves.values(), max_norm)  # divides by the norm + 1e-6
    clipped = clip_by_global_norm(gradients, max_norm)
    torch.testing.assert_close(clipped, {k: leaf.grad for k, leaf in leaves.items()}, rtol=1e-5, atol=0)
    norm = float(global_norm(gradients))
    assert float(global_norm(clipped)) == pytest.approx(min(norm, max_norm), rel=1e-14)


def test_norm_and_clipping_at_zero() -> None:
    zero = {"a": torch.zeros(3, requires_grad=True), "b": torch.zeros((), requires_grad=True)}
    norm = global_norm(zero)
    assert norm == 0
    of_norm = torch.autograd.grad(norm, zero.values())
    assert not any(gradient.any() for gradient in of_norm)
    clipped = clip_by_global_norm(zero, 1.0)
    assert not any(tensor.any() for tensor in clipped.values())
    of_clipped = torch.autograd.grad([tensor.sum() for tensor in clipped.values()], list(zero.values()))
    assert all((gradient == 1).all() for gradient in of_clipped)  # nothing is scaled down at zero


# --- a norm for each head of the question network ---------------------------------------------------------------------


def gradients(scale: float, of_discounts: float, learned: bool = True, shared: bool = False) -> Params:
    """Random gradients of a question network's parameters."""
    torch.manual_seed(0)
    network = SharedQuestionNetwork(5, 4, learned) if shared else QuestionNetwork(MLPEncoder(3, (5,)), 5, 4, learned)
    return {
        name: torch.randn_like(value) * (of_discounts if name.startswith("discounts.") else scale)
        for name, value in network.params().items()
    }


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("of_discounts", [1e-6, 3.0, 1e6])
def test_each_group_has_a_norm_of_its_own(scale: float, of_discounts: float, shared: bool) -> None:
    given = gradients(scale, of_discounts, shared=shared)
    heads = {name: value for name, value in given.items() if name.startswith("discounts.")}
    others = {name: value for name, value in given.items() if name not in heads}
    expected = {}
    for group, max_norm in ((others, 1.0), (heads, 10.0)):
        factor = min(1.0, max_norm / float(torch.nn.utils.get_total_norm(group.values())))
        expected |= {name: factor * value for name, value in group.items()}
    clipped = clip_heads_separately(given, 1.0, 10.0)
    assert list(clipped) == list(given)
    torch.testing.assert_close(clipped, {name: expected[name] for name in given}, rtol=1e-12, atol=0)


def test_without_learned_discounts_there_is_one_group() -> None:
    clipped = clip_heads_separately(gradients(5.0, 0.0, learned=False), 2.0, 10.0)
    assert float(global_norm(clipped)) == pytest.approx(2.0)


# --- sums and means ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 7, 640])
def test_steps_along_means_are_those_along_sums(samples: int) -> None:
    """Many steps, with gradients on either side of ε and of the norm that they are scaled down to."""
    torch.manual_seed(1)
    of_sums = RMSProp(epsilon=0.1)
    of_means = optimizer_for_means(of_sums, samples)
    states = [(params := {"w": torch.zeros(5)}, of_sums.init(params)), (params, of_means.init(params))]
    for k in range(50):
        mean = {"w": torch.randn(5) * 10.0 ** ((k % 5) - 4)}
        total = {"w": samples * mean["w"]}
        clipped = clip_by_global_norm(total, 40.0), clip_by_global_norm(mean, norm_for_means(40.0, samples))
        states = [
            optimizer.step(params, gradient, state, 6e-4)
            for optimizer, gradient, (params, state) in zip((of_sums, of_means), clipped, states, strict=True)
        ]
    assert states[0][0]["w"].abs().min() > 0
    torch.testing.assert_close(states[0][0], states[1][0], rtol=1e-10, atol=0)
