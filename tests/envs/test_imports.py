"""The modules of the package import each other without circles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import dgvf_envs

ROOT = Path(dgvf_envs.__file__).parent
MODULES = {
    ".".join(("dgvf_envs", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported(path: Path) -> set[str]:
    """The modules of this package that one imports anywhere, also for type checkers only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found.update(name for name in names if name in MODULES)
    return found


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: imported(path) for name, path in MODULES.items()}
    assert graph["dgvf_envs.puddle_world.env"] >= {"dgvf_envs.puddle_world.view", "dgvf_envs.functional.env"}
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


def test_the_environments_know_nothing_of_the_agents() -> None:
    assert not [name for name, path in MODULES.items() if "dgvf_agents" in path.read_text(encoding="utf-8")]
