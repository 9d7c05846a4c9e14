"""The folder of compiled functions: what is found there, and what is deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dgvf_agents.execution.cache import FOLDER, INTERFACE, UNUSED_DAYS, find, store

OLD, NEWER, NEW = "0" * 32, "1" * 32, "2" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "compiled"))
    return tmp_path / "compiled"


def fill(path: Path) -> None:
    (path / INTERFACE).write_bytes(b"")


def age(path: Path, days: float) -> None:
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))


def test_functions_are_deleted_that_nothing_has_used_for_long(folder: Path) -> None:
    for key, days in ((OLD, UNUSED_DAYS + 1), (NEWER, UNUSED_DAYS - 1)):
        age(store(key, fill), days)
    store(NEW, fill)
    assert sorted(path.name for path in folder.iterdir()) == [NEWER, NEW]


def test_a_function_that_is_found_counts_as_used(folder: Path) -> None:
    age(store(OLD, fill), UNUSED_DAYS + 1)
    assert find(OLD) == folder / OLD
    store(NEW, fill)
    assert find(OLD) == folder / OLD


def test_leftovers_of_killed_processes_are_deleted_and_other_files_kept(folder: Path) -> None:
    folder.mkdir()
    kept = [folder / name for name in ("notes.txt", "results", ".slot-0.lock")]
    leftovers = [folder / name for name in (".building-abc", f".{OLD}.lock")]
    for path in (*kept, *leftovers):
        path.mkdir() if path.suffix == "" and path.name != "notes.txt" else path.touch()
        age(path, UNUSED_DAYS + 1)
    (folder / ".building-now").mkdir()
    store(NEW, fill)
    assert set(folder.iterdir()) == {*kept, folder / ".building-now", folder / NEW}


def test_a_function_that_was_not_built_whole_is_not_found(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="no compiler"):
        store(OLD, lambda path: (_ for _ in ()).throw(RuntimeError("no compiler")))
    assert find(OLD) is None
    assert not list(folder.iterdir())
