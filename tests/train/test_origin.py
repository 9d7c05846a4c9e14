"""What run folders say of the code, the versions and the machine."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgvf_agents.train import origin
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.origin import Origin, code_version, read_origins, record_origin


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", "-C", folder, *identity, *arguments], capture_output=True, check=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with code, which is that of this package."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    for package in ("dgvf_agents", "dgvf_envs"):
        (root / package / "runs").mkdir(parents=True)
        (root / package / "runs" / "origin.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q", str(root))
    monkeypatch.setattr(origin, "__file__", str(root / "dgvf_agents" / "runs" / "origin.py"))
    code_version.cache_clear()
    yield root
    code_version.cache_clear()


def test_the_commit_of_the_code_is_named(repository: Path) -> None:
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    assert code_version() == git(repository, "rev-parse", "HEAD").strip()


def test_changes_since_the_commit_are_named(repository: Path) -> None:
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    (repository / "notes.txt").write_text("not code")
    (repository / "dgvf_envs" / "runs" / "origin.py").write_text("x = 2\n")
    assert code_version() == git(repository, "rev-parse", "HEAD").strip() + "+changes"


def test_code_that_is_installed_inside_another_repository_has_no_commit(repository: Path) -> None:
    (repository / "other").write_text("something else\n")
    git(repository, "add", "other")
    git(repository, "commit", "-qm", "one")
    assert code_version() is None


def test_without_git_there_is_no_commit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    monkeypatch.setenv("PATH", "")
    assert code_version() is None


def test_every_process_that_trained_a_run_is_recorded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_origins(folder) == []
    for steps in (0, 80, 160, 80):  # the last resumed an older checkpoint, the third one's work is lost
        record_origin(folder, "cpu", steps)
    assert [found.steps for found in read_origins(folder)] == [0, 80]
    (last,) = {found.versions["python"] for found in read_origins(folder)}
    assert last == platform.python_version()
    assert read_origins(folder)[0] == Origin.here("cpu")
    assert read_origins(folder)[0].hardware["processor"]
