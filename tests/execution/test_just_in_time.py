"""Functions compiled in this process, and as CUDA graphs: the results and gradients of the functions themselves."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.flat import flatten
from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution.compile_cache import Task
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.just_in_time import compiled_here

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
SCALE = torch.tensor([1.0, 2.0, 3.0])


def step(weights: Tensor, eta: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """With an inner gradient, a transposed tensor for the backward pass, and constants from the CPU."""

    def loss(weights: Tensor) -> Tensor:
        return ((batch @ weights.T).tanh() * eta * SCALE.to(batch.device)).sum()

    moved = weights - 0.1 * torch.func.grad(loss)(weights)
    return moved, loss(moved).detach() + torch.tensor(2.0)


def given(device: str, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(device) for shape in ((3, 5), (3,), (16, 5)))


@pytest.mark.parametrize("device", DEVICES)
def test_results_and_gradients_are_those_of_the_function(device: str) -> None:
    passes = compiled_here(Task.of(step, given(device), 2), torch.device(device))
    for seed in (1, 2):
        arguments = given(device, seed)
        (expected, pull_back), (found, compiled_pull_back) = vjp(step, arguments, 2), passes.vjp(flatten(arguments))
        cotangents, addends = [torch.ones_like(expected[0])], [torch.ones_like(value) for value in arguments[:2]]
        gradients = [pull(cotangents, addends) for pull in (pull_back, compiled_pull_back)]
        torch.testing.assert_close([*found, *gradients[1]], [*expected, *gradients[0]], rtol=1e-5, atol=1e-5)


@needs_cuda
def test_calls_leave_earlier_results_and_arguments_as_they_are() -> None:
    compiled = Compiled(step, Compilation(True, torch.device("cuda")), differentiable=2)
    first, second = given("cuda", 1), given("cuda", 2)
    kept = [value.clone() for value in first]
    results = compiled(*first)
    copies = [value.clone() for value in results]
    (after, _), pull_back = compiled.vjp(*first)
    compiled.vjp(*second)[1]([torch.ones_like(after)], list(second[:2]))
    compiled(*second)
    torch.testing.assert_close([*results, *first], [*copies, *kept], rtol=0, atol=0)
    addends = [torch.zeros_like(value) for value in first[:2]]
    expected = vjp(step, first, 2)[1]([torch.ones_like(after)], addends)
    torch.testing.assert_close(pull_back([torch.ones_like(after)], addends), expected, rtol=1e-5, atol=1e-5)


def test_equal_functions_share_a_compilation_while_one_is_used() -> None:
    tasks = [Task.of(lambda x: 3 * x, (torch.ones(size),), 0) for size in (2, 2, 3)]
    first, second, other = (compiled_here(task, torch.device("cpu")) for task in tasks)
    assert first is second
    assert first is not other
    assert first([torch.ones(2)]).tolist() == [3.0, 3.0]
    unused = weakref.ref(other)
    del other
    assert unused() is None
