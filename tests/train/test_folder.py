"""Metrics, evaluation episodes and the origin of a run, which resumed runs append to."""

from __future__ import annotations

import gzip
import io
import json
import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stable_baselines3.common.logger import Logger

from dgvf_agents.train import folder as folder_module
from dgvf_agents.train.folder import (
    STEPS,
    Origin,
    ProgressLog,
    RunFolder,
    add_evaluation,
    code_version,
    read_evaluations,
    read_origins,
    record_origin,
)
from tests.run_folders import rows_of

ROWS: list[dict[str, Any]] = [
    {STEPS: 10, "b": 0.1, "a": 1},
    {STEPS: 20, "b": 0.2, "a": 2, "eval": 'a "quoted", text'},
    {STEPS: 30, "b": float("nan"), "c": 3.5},
    {STEPS: 40, "b": 0.4},
]
EVALUATIONS = [
    (steps, np.random.default_rng(steps).normal(size=5) * 1e3, np.arange(5) + steps) for steps in (80, 160, 240)
]


def log_rows(path: Path, rows: list[dict[str, Any]], after: int = 0) -> None:
    logger = Logger(None, [ProgressLog(path, after)])
    for row in rows:
        for name, value in row.items():
            logger.record(name, value)
        logger.record("hidden", 2, exclude="csv")
        logger.record("nothing", None)
        logger.dump()
    logger.close()


def log_evaluations(path: Path, evaluations: list[tuple[int, np.ndarray, np.ndarray]]) -> None:
    for evaluation in evaluations:
        add_evaluation(path, *evaluation)


def test_columns_are_in_the_order_of_first_appearance(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    log_rows(path, ROWS)
    assert path.read_text().splitlines()[0] == f"{STEPS},a,b,eval,c"
    rows = rows_of(tmp_path)
    assert [row["b"] for row in rows] == ["0.1", "0.2", "nan", "0.4"]
    assert [row["eval"] for row in rows] == ["", 'a "quoted", text', "", ""]
    assert list(tmp_path.iterdir()) == [path]


def test_evaluations_are_exact_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv.gz"
    log_evaluations(path, EVALUATIONS)
    table = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())), engine="python")
    assert list(table.columns) == ["steps", "episode", "return", "length"]
    assert table["episode"].tolist() == [0, 1, 2, 3, 4] * 3
    pd.testing.assert_frame_equal(read_evaluations(path), table, check_exact=True)
    assert table["steps"].tolist() == np.repeat([80, 160, 240], 5).tolist()
    assert table["return"].tolist() == np.concatenate([returns for _, returns, _ in EVALUATIONS]).tolist()
    assert table["length"].tolist() == np.concatenate([lengths for _, _, lengths in EVALUATIONS]).tolist()


@pytest.mark.parametrize("done", [0, 10, 15, 30, 40])
def test_resumed_runs_leave_the_same_files(done: int, tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    log_rows(whole, ROWS)
    log_rows(resumed, ROWS)
    log_rows(resumed, [row for row in ROWS if row[STEPS] > done], after=done)
    assert resumed.read_bytes() == whole.read_bytes()
    log_evaluations(tmp_path / "a.csv.gz", EVALUATIONS)
    log_evaluations(tmp_path / "b.csv.gz", EVALUATIONS)
    log_evaluations(tmp_path / "b.csv.gz", [found for found in EVALUATIONS if found[0] > 6 * done])
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


# --- origin -----------------------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def repository(root: Path) -> Path:
    """A repository with both packages, nothing of which is committed."""
    for package in ("dgvf_agents", "dgvf_envs"):
        (root / package / "train").mkdir(parents=True)
        (root / package / "train" / "folder.py").write_text("x = 1\n")
    git(root, "init", "-q")
    return root


def test_the_commit_of_the_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = repository(tmp_path / "repository")
    (root / "notes.txt").write_text("not code")
    monkeypatch.setattr(folder_module, "__file__", str(root / "dgvf_agents" / "train" / "folder.py"))
    version = code_version.__wrapped__  # without the cache
    git(root, "add", "notes.txt")
    git(root, "commit", "-qm", "one")
    assert version() is None  # installed inside another repository
    git(root, "add", ".")
    git(root, "commit", "-qm", "two")
    commit = git(root, "rev-parse", "HEAD")
    (root / "notes.txt").write_text("not code either")
    assert version() == commit
    (root / "dgvf_envs" / "train" / "folder.py").write_text("x = 2\n")
    assert version() == f"{commit}+changes"
    monkeypatch.setenv("PATH", "")
    assert version() is None


def test_every_process_that_trained_a_run_is_recorded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_origins(folder) == []
    for steps in (0, 80, 160, 80):  # the last resumed an older checkpoint, the third one's work is lost
        record_origin(folder, "cpu", steps)
    assert [found.steps for found in read_origins(folder)] == [0, 80]
    assert read_origins(folder)[0] == Origin.here("cpu")
    assert read_origins(folder)[1].versions["python"] == platform.python_version()
    assert read_origins(folder)[0].hardware["processor"]


def test_code_installed_from_a_repository_has_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, site = repository(tmp_path / "source"), tmp_path / "site"
    git(source, "add", ".")
    git(source, "commit", "-qm", "one")
    commit = git(source, "rev-parse", "HEAD")
    shutil.copytree(source, site, ignore=shutil.ignore_patterns(".git"))
    monkeypatch.setattr(folder_module, "__file__", str(site / "dgvf_agents/train/folder.py"))
    url: dict[str, Any] = {"url": source.as_uri(), "dir_info": {}}
    files = SimpleNamespace(locate_file=lambda name: site / name, read_text=lambda name: json.dumps(url))
    monkeypatch.setattr(folder_module, "distribution", lambda name: files)
    assert code_version.__wrapped__() == commit
    (site / "dgvf_envs/train/folder.py").write_text("x = 2\n")
    assert code_version.__wrapped__() == f"{commit}+changes"
    url |= {"url": "https://example.org/dgvf.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert code_version.__wrapped__() == "abc"
    url |= {"url": (tmp_path / "dgvf.whl").as_uri(), "vcs_info": {}}
    assert code_version.__wrapped__() is None
