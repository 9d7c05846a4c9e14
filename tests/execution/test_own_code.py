"""An edit of the user's own code is never answered with the compiled code of an earlier version."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from dgvf_agents.execution import jobs, task
from dgvf_agents.execution.cache import FOLDER, graph_of, key_of
from dgvf_agents.execution.jobs import compile_into_cache, traced
from dgvf_agents.execution.task import Parcel, Task, pickled

OWN = """
import torch
import own_helper
from own_helper import Base, bent
FACTOR = 1.0
class Own(Base):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        "A docstring."
        return bent(self.scaled(torch.tanh(x))) * FACTOR * own_helper.FACTOR
"""
HELPER = """
import torch, own
FACTOR = 1.0
def bent(x):
    return shifted(x).abs()
def shifted(x):
    return x + 1.0
class Base(torch.nn.Module):
    def scaled(self, x):
        return 2.0 * x
"""
EDITS = {
    "constant": ("own.py", "FACTOR = 1.0", "FACTOR = 3.0"),
    "body": ("own.py", "torch.tanh", "torch.sin"),
    "constant of a helper": ("own_helper.py", "FACTOR = 1.0", "FACTOR = 3.0"),
    "helper of a helper": ("own_helper.py", "x + 1.0", "x + 2.0"),
    "base class": ("own_helper.py", "2.0 * x", "4.0 * x"),
}
Own = Callable[[], ModuleType]
Key = Callable[[Callable[..., Any]], str]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """Imports the user's modules as a new process would."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, source in (("own.py", OWN), ("own_helper.py", HELPER)):
        (tmp_path / name).write_text(source)

    def imported() -> ModuleType:
        for name in ("own", "own_helper"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("own")

    return imported


def parcel(function: Callable[..., Any]) -> Parcel:
    return pickled(Task.of(function, (torch.ones(2),), 0))


WORKER = """
import pickle, sys
from dgvf_agents.execution.cache import key_of
from dgvf_agents.execution.jobs import traced
for size in iter(sys.stdin.buffer.readline, b""):
    print(key_of(traced(pickle.loads(sys.stdin.buffer.read(int(size))))), flush=True)
"""


@pytest.fixture(scope="module")
def graph() -> Iterator[Key]:
    """The key of a function's graph in another process, which does not find the user's modules."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WORKER], **pipes) as worker:  # type: ignore[call-overload]

        def key(function: Callable[..., Any]) -> str:
            sent = parcel(function)
            assert not sent.versioned
            worker.stdin.write(b"%d\n%s" % (len(sent.payload), sent.payload))
            worker.stdin.flush()
            return worker.stdout.readline().decode()

        yield key
        worker.stdin.close()


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_an_edit_of_own_code_gives_another_function(
    tmp_path: Path, fresh: Own, graph: Key, change: tuple[str, str, str]
) -> None:
    before = graph(fresh().Own().forward)
    assert graph(fresh().Own().forward) == before
    edit(tmp_path, *change)
    assert graph(fresh().Own().forward) != before


def test_what_was_imported_counts_not_what_the_file_says_now(tmp_path: Path, fresh: Own, graph: Key) -> None:
    own = fresh()
    before = graph(own.Own().forward)
    edit(tmp_path, *EDITS["constant"])
    assert graph(own.Own().forward) == before
    own.own_helper.FACTOR = 5.0  # type: ignore[attr-defined]
    assert graph(own.Own().forward) != before


def test_a_script_is_own_code(graph: Key) -> None:
    def script(factor: float) -> Any:
        names = {"__name__": "__main__"}
        exec(f"class Own:\n  def __call__(self, x):\n    return FACTOR * x\nFACTOR = {factor}", names)
        return names["Own"]()

    assert graph(script(1.0)) == graph(script(1.0)) != graph(script(3.0))


def test_a_subclass_defined_by_the_user_is_own_code_and_what_packages_define_is_not() -> None:
    class Own(nn.Linear):
        pass

    assert parcel(nn.Linear(2, 2).forward).versioned
    assert not parcel(Own(2, 2).forward).versioned
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, arguments, out: 2 * out)
    assert not parcel(layer.__call__).versioned


def test_a_method_replaced_by_the_user_is_not_sent_to_a_process_that_has_the_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: 2 * x)
    with pytest.raises(pickle.PicklingError, match="Tanh"):
        parcel(nn.Tanh().forward)


def test_constants_values_types_and_layouts_are_in_the_key() -> None:
    def key(constant: torch.Tensor, x: torch.Tensor) -> str:
        return key_of(traced(Task.of(lambda x: x * constant, (x,), 0)))

    x, constant = torch.ones(2, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    keys = [
        key(constant, x),
        key(constant + 1, x),
        key(constant.double(), x),
        key(constant, x.double()),
        key(constant, torch.ones(3, 2, 2)),
        key(constant, x.T),
        key(constant[:, :1], x),
    ]
    assert len(set(keys)) == len(keys)
    assert key(constant.clone(), x + 1) == keys[0]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where a compiler would have been called."""
    called: list[Path] = []
    monkeypatch.setattr(jobs, "build", lambda graphs, folder: called.append(folder))
    monkeypatch.setattr(jobs, "load_libraries", lambda folder: None)
    return called


def test_a_graph_is_compiled_once(
    tmp_path: Path, fresh: Own, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of own code and of packages, whatever else has changed in the sources."""
    for function in (fresh().Own().forward, nn.Tanh().forward):
        sent, keys, found = parcel(function), set(), set()
        for sources in (b"a docstring", b"another docstring"):
            monkeypatch.setattr(task, "surroundings", lambda sources=sources: sources)
            keys.add(sent.key)
            found.add(compile_into_cache(sent.key, sent))
            assert (graph_of(sent.key) in found) == sent.versioned
        assert (len(keys), len(found)) == (2, 1)
    assert len(builds) == 2


def test_a_function_that_imports_own_code_when_it_is_called_is_not_compiled_elsewhere(
    fresh: Own, builds: list[Path]
) -> None:
    def late(x: torch.Tensor) -> torch.Tensor:
        import own_helper  # type: ignore[import-not-found]

        return own_helper.FACTOR * x

    sys.modules.pop("own_helper", None)
    sent = parcel(late)
    with pytest.raises(RuntimeError, match="imports 'own_helper'"):
        compile_into_cache(sent.key, sent)
    assert builds == []
