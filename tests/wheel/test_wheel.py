"""What tries the wheel: what it refuses, what it reports, and which Pythons it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.wheel import check_wheel

ROOT = Path(__file__).resolve().parents[2]


def test_packages_of_the_source_tree_are_refused(tmp_path: Path) -> None:
    """The wheel must not pass because of what lies beside it."""
    command = [sys.executable, check_wheel.TRY, tmp_path / "report.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = json.loads((tmp_path / "report.json").read_text())
    assert f"dgvf_agents was imported from {ROOT / 'dgvf_agents'}" in found["failure"]
    assert found["seconds"] == {}
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def wheel_in(folder: Path, requirements: tuple[str, ...] = ()) -> Path:
    """A wheel with nothing but metadata."""
    folder.mkdir(exist_ok=True)
    path = folder / "dgvf-0.1.0-py3-none-any.whl"
    lines = ["Metadata-Version: 2.4", "Name: dgvf", *(f"Requires-Dist: {line}" for line in requirements), "", "Text"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dgvf-0.1.0.dist-info/METADATA", "\n".join(lines))
    return path


def test_requirements_are_those_of_the_wheel_without_extras(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path, ("numpy>=1.26", "ray>=2.40; extra == 'ray'", "torch>=2.8; python_version > '3'"))
    assert check_wheel.requirements(wheel) == ["numpy>=1.26", "torch>=2.8; python_version > '3'"]


def test_there_must_be_one_wheel(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="must hold one wheel, as after `make wheel`; found 0"):
        check_wheel.built_wheel(tmp_path)
    wheel = wheel_in(tmp_path)
    assert check_wheel.built_wheel(tmp_path) == wheel
    (tmp_path / "dgvf-0.0.9-py3-none-any.whl").touch()
    with pytest.raises(FileNotFoundError, match="found 2"):
        check_wheel.built_wheel(tmp_path)


def row(python: str, libraries: str, torch: str = "2.8.0") -> dict[str, Any]:
    return {"libraries": libraries, "versions": {"python": python, "torch": torch}, "seconds": {}, "failure": None}


def test_a_report_keeps_other_environments_of_the_same_wheel(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    first = [row("3.13.0", "oldest"), row("3.13.0", "newest")]
    earlier = check_wheel.report_on(wheel, None, first)
    second = [row("3.13.1", "newest", torch="2.9.0"), row("3.9.2", "oldest")]
    assert check_wheel.report_on(wheel, earlier, second)["rows"] == [second[1], first[0], second[0]]
    other = wheel_in(tmp_path, ("numpy",))
    assert check_wheel.report_on(other, earlier, second[:1])["rows"] == second[:1]
    elsewhere = {**earlier, "hardware": {"processor": "another", "cores": 1}}
    assert check_wheel.report_on(wheel, elsewhere, second[:1])["rows"] == second[:1]


def test_an_installation_that_fails_is_a_row_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Path:
        raise subprocess.CalledProcessError(1, "uv", stderr="No solution found")

    monkeypatch.setattr(check_wheel, "install", fail)
    found = check_wheel.check(wheel_in(tmp_path / "dist"), sys.executable, "oldest", tmp_path)
    assert found["failure"] == "installation: No solution found"
    assert found["versions"] == {"python": ".".join(map(str, sys.version_info[:3]))}


def test_the_oldest_and_the_newest_supported_python_are_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={supported[0]}"
    tried = re.findall(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert tried == [f"python{supported[0]} python{supported[-1]}"]


def test_the_committed_table_has_the_oldest_and_the_newest_libraries_of_both() -> None:
    report = json.loads((ROOT / "docs/results/wheel.json").read_text(encoding="utf-8"))
    assert [found["libraries"] for found in report["rows"]] == [*check_wheel.RESOLUTIONS] * 2
    assert len({found["versions"]["python"] for found in report["rows"]}) == 2
    assert [found["failure"] for found in report["rows"]] == [None] * 4
