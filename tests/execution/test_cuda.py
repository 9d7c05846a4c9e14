"""Functions compiled in this process, and as CUDA graphs: the results and gradients of the functions themselves."""

from __future__ import annotations

import gc
import weakref
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.flat import flatten
from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution import cuda
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.cuda import compiled_here
from dgvf_agents.execution.jobs import CompilationError
from dgvf_agents.execution.task import Task
from tests.devices import needs_cuda
from tests.execution.test_compiling import Scaled

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
    passes = compiled_here(Task.of(step, given(device), 2))
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


def test_functions_of_parameters_values_share_nothing() -> None:
    tasks = [Task.of(Scaled(weight).forward, (torch.ones(2),), 0) for weight in (2.0, 5.0)]
    kept = [compiled_here(task) for task in tasks]
    assert [passes([torch.ones(2)]).tolist() for passes in kept] == [[2.0, 2.0], [5.0, 5.0]]


def test_without_a_compiler_functions_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CUDA device without Triton."""
    monkeypatch.setattr(cuda, "compiled_here", Mock(side_effect=RuntimeError("TritonMissing: no Triton")))
    monkeypatch.setattr(Compilation, "_warned", False)
    compilation = Compilation(True, torch.device("cuda"))
    compiled, arguments = Compiled(step, compilation, differentiable=2), given("cpu")
    with pytest.warns(UserWarning, match="no compiler found"):
        found = compiled(*arguments)
    torch.testing.assert_close(found, step(*arguments))
    assert compilation.mode is False


def test_an_error_of_the_compiler_ends_true_and_not_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "compiled_here", Mock(side_effect=ValueError("a bug")))
    monkeypatch.setattr(Compilation, "_warned", False)
    for mode, told in ((True, pytest.raises(CompilationError, match="a bug")), ("auto", pytest.warns(match="a bug"))):
        compiled = Compiled(step, Compilation(mode, torch.device("cuda")), differentiable=2)
        with told:
            torch.testing.assert_close(compiled(*given("cpu")), step(*given("cpu")))


@needs_cuda
def test_what_cannot_be_captured_runs_compiled_and_the_next_is_captured() -> None:
    device = torch.device("cuda")
    x = torch.ones(3, device=device)
    compiled = Compiled(lambda x: x * x.cpu().sum().to(x.device), Compilation(True, device))
    with pytest.warns(UserWarning, match="cannot be captured"):
        assert compiled(x).tolist() == [3.0] * 3
    assert Compiled(lambda x: 2 * x, Compilation(True, device))(x).tolist() == [2.0] * 3


@needs_cuda
def test_constants_last_as_long_as_the_function() -> None:
    compiled = Compiled(step, Compilation(True, torch.device("cuda")), differentiable=2)
    expected = compiled(*given("cuda"))
    gc.collect()
    filled = [torch.full((size,), 7.0, device="cuda") for size in range(1, 2_000)]
    torch.testing.assert_close(compiled(*given("cuda")), expected, rtol=0, atol=0)
    assert filled


def test_equal_functions_share_a_compilation_while_one_is_used() -> None:
    tasks = [Task.of(lambda x: 3 * x, (torch.ones(size),), 0) for size in (2, 2, 3)]
    first, second, other = (compiled_here(task) for task in tasks)
    assert first is second
    assert first is not other
    assert first([torch.ones(2)]).tolist() == [3.0, 3.0]
    unused = weakref.ref(other)
    del other
    assert unused() is None
