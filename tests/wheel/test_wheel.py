"""What tries the wheel: what it refuses, what it reports, and which Pythons it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

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
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_oldest_and_the_newest_supported_python_are_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={supported[0]}"
    tried = re.findall(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert tried == [f"python{supported[0]} python{supported[-1]}"]
