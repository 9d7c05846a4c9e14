"""Compiled functions give the functions' own results and gradients, with eager execution as the fallback."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from dgvf_agents.core.flat import flatten
from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution import jobs
from dgvf_agents.execution.cache import FORWARD, cache_folder
from dgvf_agents.execution.compiling import LONG_ENOUGH, Compilation, Compiled
from dgvf_agents.execution.jobs import CompilationError
from dgvf_agents.execution.task import Task, pickled
from dgvf_agents.execution.trace import Graphs
from tests.helpers import run_python


class Pair(NamedTuple):
    first: Tensor
    others: dict[str, Tensor | None]


SCALE = torch.tensor([1.0, 2.0, 3.0])


def step(state: Pair, meta: dict[str, Tensor], batch: Tensor) -> tuple[Pair, Tensor]:
    """With what updates have: an inner gradient, constants, an unused argument and results of several kinds."""

    def loss(first: Tensor) -> Tensor:
        return ((batch * first * SCALE).tanh() * meta["eta"]).sum()

    gradient = torch.func.grad(loss)(state.first)
    moved = state.first - 0.1 * gradient * (1.0 + state.others["moment"])
    return Pair(moved, {"moment": 0.9 * state.others["moment"] + gradient.square(), "none": None}), loss(moved).detach()


def doubled(values: Tensor) -> Tensor:
    return 2.0 * values


def arguments(size: int = 4, seed: int = 0) -> tuple[Pair, dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first, moment, eta = (torch.randn(3, generator=generator, requires_grad=True) for _ in range(3))
    unused = torch.randn(2, generator=generator, requires_grad=True)
    return (
        Pair(first, {"moment": moment, "none": None}),
        {"eta": eta, "unused": unused},
        torch.randn(size, 3, generator=generator),
    )


COMPILED = Compiled(step, differentiable=2)


def test_results_and_gradients_are_those_of_the_function() -> None:
    given = state, meta, _ = arguments(seed=1)
    found = {}
    leaves = flatten((state, meta))
    cotangents, addends = [torch.ones(3), SCALE], [torch.full_like(leaf, 0.5) for leaf in leaves]
    for name, (results, pull_back) in {"eager": vjp(step, given, 2), "compiled": COMPILED.vjp(*given)}.items():
        after, loss = results
        assert after.others["none"] is None
        assert not any(value.requires_grad for value in flatten(results))
        found[name] = [after.first, after.others["moment"], loss, *pull_back(cotangents, addends)]
    torch.testing.assert_close(found["compiled"], found["eager"])
    assert len(found["eager"]) == 3 + len(leaves)


@pytest.mark.slow
def test_arguments_of_another_shape_type_or_layout_are_compiled_too_and_the_user_is_told_once() -> None:
    told: list[str] = []
    compilation = Compilation()
    compilation.tell = told.append
    compiled = Compiled(doubled, compilation)
    x = torch.arange(6.0).reshape(2, 3)
    for argument in (x, x[:1].double(), torch.arange(6.0).reshape(3, 2).T):
        torch.testing.assert_close(compiled(argument), doubled(argument))
    assert told == ["compiling in the background (a minute or two the first time)", "waiting for the compiler"]


@pytest.mark.slow
def test_calling_needs_no_compiler_of_pytorch(tmp_path: Path) -> None:
    """What another process has compiled is loaded: no tracing, no guards."""
    program = """
import sys, torch
from dgvf_agents.execution.compiling import Compiled
print(Compiled(torch.nn.ReLU().forward)(torch.tensor([-1.0, 2.0])).tolist(), "torch._inductor" in sys.modules)
"""
    environment = {**os.environ, "DGVF_COMPILE_CACHE": str(tmp_path)}
    for _ in range(2):  # the second time from the cache
        start = time.perf_counter()
        finished = run_python("-c", program, env=environment)
        assert finished.stdout == "[0.0, 2.0] False\n", finished.stderr
    assert time.perf_counter() - start < 30
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] != []


class Scaled(nn.Module):
    """With a parameter that is no argument."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.detach() * x


@pytest.mark.slow
def test_a_function_that_cannot_be_pickled_is_compiled_in_this_process() -> None:
    lock = threading.Lock()

    def doubled(x: Tensor) -> Tensor:
        return 2 * x if lock else x

    assert Compiled(doubled)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_keys_of_tasks_depend_on_constants_and_layouts_but_not_on_values_of_parameters() -> None:
    def key(function: object, x: Tensor) -> str:
        return pickled(Task.of(function, (x,), 0)).key  # type: ignore[arg-type]

    x = torch.ones(2)
    assert key(Scaled(3.0).forward, x) == key(Scaled(4.0).forward, torch.zeros(2))
    assert len({key(lambda x, factor=factor: factor * x, x) for factor in (2.0, 3.0)}) == 2
    assert len({key(doubled, argument) for argument in (x, torch.ones(3), x.double(), torch.ones(4)[::2])}) == 4


def test_a_process_of_other_code_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGVF_COMPILE_CACHE", str(tmp_path))
    parcel = pickled(Task.of(Scaled(3.0).forward, (torch.ones(2),), 0))
    with pytest.raises(RuntimeError, match="source code has changed"):
        jobs.compile_into_cache("0" * 32, parcel)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_of_the_compiling_process_does_not_reach_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trains = os.getpid()

    def crashing(x: Tensor) -> Tensor:
        if os.getpid() != trains:
            os.kill(os.getpid(), signal.SIGSEGV)
        return 11 * x

    with pytest.raises(CompilationError, match="crashed: SIGSEGV"):
        Compiled(crashing, Compilation(True))(torch.ones(2))
    compilation = Compilation("auto")
    compilation.last_update = LONG_ENOUGH
    monkeypatch.setattr(Compilation, "_warned", False)
    with pytest.warns(UserWarning, match="run slower: the compiling process crashed: SIGSEGV"):
        assert Compiled(crashing, compilation)(torch.ones(2)).tolist() == [11.0, 11.0]


def test_a_library_that_cannot_be_loaded_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGVF_COMPILE_CACHE", str(tmp_path))

    def build(graphs: Graphs, folder: Path) -> None:
        (folder / FORWARD).write_bytes(b"no library")

    monkeypatch.setattr(jobs, "build", build)
    parcel = pickled(Task.of(doubled, (torch.ones(2),), 0))
    with pytest.raises(RuntimeError):
        jobs.compile_into_cache(parcel.key, parcel)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


WITHOUT_A_COMPILER = """
import warnings
import torch
from dgvf_agents.execution.jobs import NoCompilerError
from dgvf_agents.execution.compiling import Compiled, Compilation

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    doubled, another = Compiled(lambda x: 2 * x), Compilation()
    assert doubled(torch.ones(2)).tolist() == [2.0, 2.0] == doubled(torch.ones(2)).tolist()
    another.give_up(NoCompilerError("that of another model, which would take as long"))
    assert another.mode is False
print(*(w.message for w in caught if "no compiler found" in str(w.message)), sep="\\n")
"""


def test_without_a_compiler_functions_run_eagerly_after_one_warning(tmp_path: Path) -> None:
    folders = {"DGVF_COMPILE_CACHE": str(tmp_path / "a"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "b")}
    environment = {**os.environ, "CXX": str(tmp_path / "none"), **folders}
    finished = run_python("-c", WITHOUT_A_COMPILER, env=environment)
    assert finished.returncode == 0, finished.stderr
    warnings = finished.stdout.strip().splitlines()
    assert len(warnings) == 1
    assert str(tmp_path / "none") in warnings[0]


def test_an_environment_variable_disables_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    before = set(cache_folder().glob("*"))
    assert Compiled(lambda x: 5 * x, Compilation(True))(torch.ones(2)).tolist() == [5.0, 5.0]
    assert set(cache_folder().glob("*")) == before
