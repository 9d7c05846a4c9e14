"""The folder of compiled functions: what is found there, what is refused, and what is deleted."""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents.execution import cache
from dgvf_agents.execution.cache import (
    BACKWARD,
    COMPILER,
    FOLDER,
    FORWARD,
    INTERFACE,
    UNUSED_DAYS,
    CacheError,
    build,
    cache_folder,
    find,
    graph_of,
    load,
    remember_graph,
    store,
    usable,
)
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.jobs import CompilationError
from dgvf_agents.execution.trace import Interface

OLD, NEWER, NEW = "0" * 32, "1" * 32, "2" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "compiled"))
    return tmp_path / "compiled"


def fill(path: Path) -> None:
    for name in (FORWARD, BACKWARD, INTERFACE):
        (path / name).write_text(name)


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
    remember_graph(NEWER, OLD)
    age(folder / f"{NEWER}.graph", UNUSED_DAYS + 1)
    assert graph_of(NEWER) == OLD
    assert find(OLD) == folder / OLD
    store(NEW, fill)
    assert graph_of(NEWER) == OLD
    assert find(OLD) == folder / OLD


def test_leftovers_of_killed_processes_are_deleted_and_other_files_kept(folder: Path) -> None:
    assert cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = [folder / name for name in ("notes.txt", "results", ".slot-0.lock", COMPILER)]
    leftovers = [folder / name for name in (".building-abc", f".{OLD}.lock")]
    for path in (*kept, *leftovers):
        path.mkdir() if path.suffix == "" else path.touch()
        age(path, UNUSED_DAYS + 1)
    (folder / ".building-now").mkdir()
    store(NEW, fill)
    assert set(folder.iterdir()) == {*kept, folder / ".building-now", folder / NEW}


def test_a_function_that_was_not_built_whole_is_not_found(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="no compiler"):
        store(OLD, lambda path: (_ for _ in ()).throw(RuntimeError("no compiler")))
    assert find(OLD) is None
    assert not list(folder.iterdir())


def cut(path: Path) -> None:
    os.truncate(path, 3)


@pytest.mark.parametrize("name", [FORWARD, BACKWARD, INTERFACE])
@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_text("x" * len(path.read_text()))])
def test_a_damaged_function_is_not_found_and_replaced(folder: Path, name: str, damage: Callable[[Path], Any]) -> None:
    damage(store(OLD, fill) / name)
    assert find(OLD) is None
    assert find(store(OLD, fill).name) == folder / OLD


def test_files_of_another_function_are_not_taken_for_this_ones(folder: Path) -> None:
    store(OLD, fill).rename(folder / NEW)
    assert find(NEW) is None
    remember_graph(OLD, NEW)
    (folder / f"{OLD}.graph").rename(folder / f"{NEWER}.graph")
    assert graph_of(NEWER) is None


@pytest.mark.skipif(os.name != "posix", reason="needs owners and permissions")
@pytest.mark.parametrize(("owner", "mode", "safe"), [
    ("me", 0o700, True), ("me", 0o755, True), ("root", 0o755, True),
    ("me", 0o775, False), ("me", 0o702, False), ("root", 0o777, False), ("other", 0o700, False),
])  # fmt: skip
def test_a_folder_that_others_can_write_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: str, mode: int, safe: bool
) -> None:
    store(OLD, fill)
    found = SimpleNamespace(st_uid={"me": 1000, "root": 0, "other": 1001}[owner], st_mode=0o040000 | mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", lambda path, **options: found)
    if safe:
        cache.check_owner(folder)
    else:
        with pytest.raises(CacheError, match=str(folder)):
            find(OLD)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path, folder: Path, mode: int, safe: bool) -> None:
    tmp_path.chmod(mode)
    if safe:
        assert cache_folder() == folder
    else:
        with pytest.raises(CacheError, match=f"must not lie in {tmp_path}, which others can write"):
            cache_folder()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("C++ compile error\nNo space left on device")],
    ids=["file", "compiler"],
)
def test_a_full_disk_is_named_in_one_line(folder: Path, error: Exception) -> None:
    with pytest.raises(CacheError, match=r"^the folder of compiled .* No space left on device.*$") as raised, usable():
        raise error
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_what_others_can_write_in_a_safe_folder_is_not_found(folder: Path) -> None:
    store(OLD, fill)
    remember_graph(NEWER, OLD)
    assert (find(OLD), graph_of(NEWER)) == (folder / OLD, OLD)
    for path in (folder / OLD, folder / f"{NEWER}.graph"):
        path.chmod(0o777)
    assert (find(OLD), graph_of(NEWER)) == (None, None)


@pytest.mark.parametrize("folders", [{FOLDER: ""}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_the_folder_is_never_the_current_one(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (FOLDER, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path / "home"), **folders}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / "home" / ".cache" / "dgvf" / "compiled"


@pytest.mark.parametrize("hindrance", ["no home", "no folder", "open to all"])
def test_without_a_folder_updates_run_eagerly_after_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindrance: str
) -> None:
    (tmp_path / "file").touch()
    tmp_path.chmod(0o777)
    monkeypatch.setenv(FOLDER, str(tmp_path if hindrance == "open to all" else tmp_path / "file" / "compiled"))
    if hindrance == "no home":
        for name in (FOLDER, "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(Compilation, "_warned", False)
    compiled = Compiled(lambda x: 13 * x, Compilation(True))
    compiled.prepare(torch.ones(2))
    with pytest.warns(UserWarning, match="folder"):
        assert compiled(torch.ones(2)).tolist() == [13.0, 13.0]


def test_nothing_of_the_current_folder_is_imported_where_functions_are_compiled(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue.py", "json.py", "dgvf_agents.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def broken(x: Tensor) -> Tensor:
        raise ValueError("called")

    with pytest.raises(CompilationError, match="called"):
        Compiled(broken)(torch.ones(2))
    assert not (tmp_path / "imported").exists()
    assert (folder / COMPILER).stat().st_mode & 0o777 == 0o700


def test_what_is_loaded_beside_libraries_is_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: Any = SimpleNamespace(forward=None, backward=None, interface=Interface([("input", 1), ("output", 0)], 2))
    monkeypatch.setattr(cache, "load_libraries", lambda folder: (None, None))
    monkeypatch.setattr(cache, "Passes", lambda forward, backward, interface, result: (interface, result))
    monkeypatch.setattr(pickle, "loads", None)
    build(graphs, tmp_path)
    assert load(tmp_path, "result") == (([["input", 1], ["output", 0]], 2), "result")
