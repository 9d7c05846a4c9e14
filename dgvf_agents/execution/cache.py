"""Compiled functions on disk, by what is compiled, so that one compilation serves all models of an architecture.

The folder holds code that is loaded into the training process. Nothing is read from a folder that another user of the
machine can write, and nothing is loaded whose checksum is wrong, as in a file that was cut or belongs to another
function.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.fx import GraphModule

from dgvf_agents.execution.devices import keep_freed_memory
from dgvf_agents.execution.task import machine
from dgvf_agents.execution.torch_private import build_library, compiler_options, load_library
from dgvf_agents.execution.trace import Graphs, Interface, Passes, example_inputs

FOLDER = "DGVF_COMPILE_CACHE"
"""Environment variable for the folder of compiled functions."""
UNUSED_DAYS = 30
"""Compiled functions that no process has asked for in so many days are deleted."""
FORWARD, BACKWARD, INTERFACE, CHECKSUM = "forward.so", "backward.so", "interface.json", "checksum"
COMPILER = ".compiler"

_KEY = re.compile("[0-9a-f]{32}")
_OURS = re.compile(r"[0-9a-f]{32}(\.graph)?|\.building-\w+|\.[0-9a-f]{32}\.lock")
"""Names in the folder, which may hold other files."""


@final
class CacheError(RuntimeError):
    """The folder of compiled functions cannot be used, or is not safe."""


def cache_folder() -> Path:
    """The folder of compiled functions: `$DGVF_COMPILE_CACHE`, or `dgvf` in the user's cache folder. It exists.

    Raises:
        CacheError: it cannot be made, or other users of the machine can write it.
    """
    with usable():
        if own := os.environ.get(FOLDER):
            return _own_folder(Path(own))
        usual = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative paths are to be ignored (XDG Base Directory)
        return _own_folder((usual if usual.is_absolute() else Path.home() / ".cache") / "dgvf" / "compiled")


def compiler_folder() -> Path:
    """The folder of PyTorch's compiler, whose own default is in the system's folder of temporary files, where another
    user can make it first.

    Raises:
        CacheError: see `cache_folder`.
    """
    with usable():
        return _own_folder(cache_folder() / COMPILER)


def _own_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owner(folder)
    for parent in folder.resolve().parents if os.name == "posix" else ():
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:  # others could put a folder of theirs in this one's place
            raise CacheError(f"the folder of compiled functions must not lie in {parent}, which others can write")
    return folder


def use_compiler_folder() -> None:
    """Let PyTorch's compiler use `compiler_folder` in this process, unless it has a folder already."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        try:
            folder = compiler_folder()
        except CacheError:
            folder = Path(tempfile.mkdtemp())
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def check_owner(folder: Path) -> None:
    """
    Raises:
        CacheError: the folder, or the file, belongs to another user than this one or root, or others can write it.
    """
    if os.name != "posix":
        return
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise CacheError(f"the folder of compiled functions must be your own, got {folder}: set {FOLDER} to another")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"only you may write the folder of compiled functions, {folder}: see `chmod go-w`")


@contextmanager
def usable() -> Iterator[None]:
    """Raise a `CacheError` for errors of files: no home, a folder that is read only, a full disk."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        raise CacheError(f"the folder of compiled functions cannot be used: {error}") from error
    except RuntimeError as error:  # of pathlib, or of the compiler, which quotes what was printed
        full = "No space left on device"
        if full in str(error):
            raise CacheError(f"the folder of compiled functions cannot be used: {full}: {cache_folder()}") from error
        if "home" not in str(error):
            raise
        raise CacheError(f"there is no folder for compiled functions, set {FOLDER}: {error}") from error


def key_of(graphs: Graphs) -> str:
    """The name of traced functions: a digest of whatever compiled code depends on."""
    digest = hashlib.sha256(f"{machine()} {torch.get_num_threads()} {compiler_options()}".encode())
    digest.update(json.dumps(graphs.interface).encode())
    for graph in (graphs.forward, graphs.backward):
        _add_graph(digest, graph)
    return digest.hexdigest()[:32]


def _add_graph(digest: Any, graph: GraphModule | None) -> None:
    if graph is None:
        digest.update(b"none")
        return
    digest.update(graph.code.encode())
    for node in graph.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, Tensor):
            digest.update(_layout(value))
        elif node.op == "get_attr":
            digest.update(str(node.target).encode())
            _add_constant(digest, attrgetter(str(node.target))(graph))


def _add_constant(digest: Any, value: Any) -> None:
    if isinstance(value, GraphModule):
        _add_graph(digest, value)
    elif isinstance(value, Tensor):
        digest.update(_layout(value))
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    else:
        raise TypeError(f"constants of compiled functions must be tensors, got a {type(value).__name__}")


def _layout(tensor: Tensor) -> bytes:
    return f"{tuple(tensor.shape)} {tensor.stride()} {tensor.dtype} {tensor.device}".encode()


def build(graphs: Graphs, folder: Path) -> None:
    """Compile a function for the CPU.

    Args:
        graphs: the function. Tensors that it closes over become constants of the compiled function.
        folder: where to; must exist.
    """
    for graph, name in ((graphs.forward, FORWARD), (graphs.backward, BACKWARD)):
        if graph is not None:
            with tempfile.TemporaryDirectory(dir=folder) as sources:
                shutil.copyfile(build_library(graph, example_inputs(graph), Path(sources)), folder / name)
    (folder / INTERFACE).write_text(json.dumps(graphs.interface))


def load(folder: Path, result: Any) -> Passes:
    """Load a compiled function, without PyTorch's compiler.

    Args:
        folder: as `build` fills it.
        result: template of the function's results.
    """
    interface = Interface(*json.loads((folder / INTERFACE).read_text()))
    return Passes(*load_libraries(folder), interface, result)


def load_libraries(folder: Path) -> tuple[Any, Any]:
    """The forward and the backward pass, `None` without one."""
    keep_freed_memory()
    backward = load_library(folder / BACKWARD) if (folder / BACKWARD).exists() else None
    return load_library(folder / FORWARD), backward


def find(key: str) -> Path | None:
    """The folder of a compiled function; `None` if there is none, or a damaged one."""
    folder = cache_folder() / key
    try:
        check_owner(folder)  # planted while others could write the folder that holds it
        whole = (folder / CHECKSUM).read_text() == _checksum(key, folder)
    except (OSError, UnicodeDecodeError, CacheError):
        return None
    with suppress(OSError):  # a folder that others may only read
        os.utime(folder)
    return folder if whole else None


def _checksum(key: str, folder: Path) -> str:
    """Of a function's files, and of its key: another function's files are none of this one's."""
    digest = hashlib.sha256(key.encode())
    for name in (FORWARD, BACKWARD, INTERFACE):
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        digest.update(f" {name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def store(key: str, build: Callable[[Path], None]) -> Path:
    """Let a function fill the folder of a compiled function, which appears whole or not at all.

    A damaged one is replaced. The caller sees to it that nobody else stores this function meanwhile.
    """
    final = cache_folder() / key
    _delete_unused(final.parent)
    temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=".building-"))
    try:
        build(temporary)
        (temporary / CHECKSUM).write_text(_checksum(key, temporary))
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        _sync(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def graph_of(task: str) -> str | None:
    """The key of the graph that a task is traced to; `None` if no process has traced it.

    Args:
        task: the key of the task.
    """
    path = cache_folder() / f"{task}.graph"
    try:
        check_owner(path)
        graph, check = path.read_text().split()
    except (OSError, ValueError, CacheError):
        return None
    with suppress(OSError):  # a folder that others may only read
        os.utime(path)
    return graph if _KEY.fullmatch(graph) and check == _check_of_names(task, graph) else None


def _check_of_names(task: str, graph: str) -> str:
    return hashlib.sha256(f"{task} {graph}".encode()).hexdigest()


def remember_graph(task: str, graph: str) -> None:
    """Let `graph_of` find the key of a task's graph."""
    descriptor, temporary = tempfile.mkstemp(dir=cache_folder(), prefix=".building-")
    with open(descriptor, "w") as file:
        file.write(f"{graph} {_check_of_names(task, graph)}")
    os.replace(temporary, cache_folder() / f"{task}.graph")


def _delete_unused(folder: Path) -> None:
    """Functions of earlier versions are never found again, and killed processes leave half-built ones."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for path in folder.iterdir():
        with suppress(OSError):  # another process was faster
            if _OURS.fullmatch(path.name) and path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
