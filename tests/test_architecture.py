"""Imports go one way, modules stay small: what `docs/architecture.md` says of both packages."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.helpers import run_python

ROOT = Path(__file__).resolve().parents[1]
LEVELS = {
    "dgvf_agents.options": 0,
    "dgvf_agents.hyperparameters": 0,
    "dgvf_agents.core": 0,
    "dgvf_agents.execution": 1,
    "dgvf_agents.learner": 2,
    "dgvf_agents.agents": 3,
    "dgvf_agents.storage": 2,
    "dgvf_agents.agents.algorithm": 4,
    "dgvf_agents.agents.a2c": 4,
    "dgvf_agents.impala": 4,
    "dgvf_agents.population": 5,
    "dgvf_agents.train": 6,
    "dgvf_agents.experiments": 7,
    "dgvf_agents.atlas": 7,
    "dgvf_agents.bench": 7,
    "dgvf_agents.zoo": 7,
    "dgvf_agents.export": 7,
    "dgvf_agents.cli": 8,
}
"""A module imports from its own level and from those below."""
PUBLIC = ("engine", "losses", "policies", "tasks", "types")
"""Public paths that pass on what a room holds."""
MAX_LINES = 600


def _modules() -> dict[str, Path]:
    found = {}
    for package in ("dgvf_agents", "dgvf_envs"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _imports(path: Path) -> set[str]:
    """Modules of ours that a module imports anywhere, in functions and under `TYPE_CHECKING` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(MODULES)


@cache
def imports() -> dict[str, set[str]]:
    """By module. Only the process that runs these tests reads all modules, not every one that collects them."""
    return {name: _imports(path) for name, path in MODULES.items()}


def _level(module: str) -> int:
    return next(level for room, level in LEVELS.items() if module == room or module.startswith(f"{room}."))


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 100
    assert "dgvf_agents.core.inner_loop" in imports()["dgvf_agents.learner"]
    assert imports()["dgvf_envs.puddle_world.env"] >= {"dgvf_envs.puddle_world.view", "dgvf_envs.functional.env"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("dgvf_agents.")])
def test_imports_go_one_way(module: str) -> None:
    if module.removeprefix("dgvf_agents.") in PUBLIC:
        return
    for imported in imports()[module]:
        if imported.startswith("dgvf_agents."):
            assert _level(imported) <= _level(module), imported


@pytest.mark.parametrize(
    ("room", "unknown"),
    [
        ("dgvf_envs", "dgvf_agents"),
        *((f"dgvf_agents.{room}", "(import|from) stable_baselines3") for room in ("core", "execution", "learner")),
    ],
)
def test_environments_know_nothing_of_agents_nor_the_learner_of_stable_baselines3(room: str, unknown: str) -> None:
    for name, path in MODULES.items():
        if f"{name}.".startswith(f"{room}."):
            assert not re.search(unknown, path.read_text(encoding="utf-8")), name


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_short(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_one_module_uses_what_is_private_to_pytorch() -> None:
    """But `torch.utils._pytree` and `torch.utils._python_dispatch`, which much code out there relies on."""
    for name, path in MODULES.items():
        if name != "dgvf_agents.execution.torch_private":
            found = re.findall(
                r"\btorch(?:\.(?!utils\.)\w+)*\._\w+|from torch import .*\b_\w+", path.read_text("utf-8")
            )
            assert set(found) <= {"torch.__version__"}, name


def test_training_imports_no_ray_and_checks_no_shapes() -> None:
    program = "import sys, dgvf_agents.train.train; from dgvf_agents import DGVFImpala, losses; "
    program += "print({'ray', 'beartype'} & {*sys.modules}, hasattr(losses.regression_loss, '__wrapped__'))"
    finished = run_python("-c", program, check=True)
    assert finished.stdout.split() == ["set()", "False"]
