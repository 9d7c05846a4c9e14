"""A process that compiles one function: `python -m dgvf_agents.execution.compile_worker KEY versioned|own < TASK`."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from dgvf_agents.execution.compile_cache import (
    Parcel,
    Task,
    cache_folder,
    find,
    graph_of,
    origin,
    remember_graph,
    store,
)
from dgvf_agents.execution.compile_jobs import NO_COMPILER, lacks_compiler
from dgvf_agents.execution.library import load


@contextmanager
def _slot() -> Iterator[None]:
    """Wait until fewer processes compile than the machine has cores."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    locks = [FileLock(folder / f".slot-{i}") for i in range(os.cpu_count() or 1)]
    while True:
        for lock in locks:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                yield
            finally:
                lock.release()
            return
        time.sleep(0.1)


def main(key: str, parcel: Parcel) -> str:
    """Compile a task into the cache, unless another process does.

    Returns:
        the key of its graph.

    Raises:
        RuntimeError: the code is not the one that the task is from, as after an update while a training runs; or it may
            be another, since the task's function imports a module of the user's when it is called.
    """
    if parcel.key != key:
        raise RuntimeError("the source code has changed since the process began that wants a function compiled")
    with FileLock(cache_folder() / f".{key}.lock"), _slot():
        known = graph_of(key) if parcel.versioned else None
        if known is not None and find(known) is not None:
            return known
        before = set(sys.modules)
        task: Task = pickle.loads(parcel.payload)
        torch.set_num_threads(task.threads)
        torch.set_default_dtype(task.dtype)
        from dgvf_agents.execution.building import build, key_of, traced  # imports PyTorch's compiler

        graphs = traced(task)
        own = sorted(name for name in set(sys.modules) - before if origin(name) == "own")
        if own:
            raise RuntimeError(f"a function to compile imports {own[0]!r}, whose source code may have changed")
        graph = key_of(graphs)

        def build_and_load(folder: Path) -> None:
            build(graphs, folder)
            load(folder)  # a library that crashes where it is loaded ends this process, not the training

        with FileLock(cache_folder() / f".{graph}.lock"):
            if find(graph) is None:
                store(graph, build_and_load)
        if parcel.versioned:
            remember_graph(key, graph)
        return graph


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # compilers print
    try:
        found = main(sys.argv[1], Parcel(sys.stdin.buffer.read(), sys.argv[2] == "versioned"))
        os.write(answer, found.encode())
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        print(message, file=sys.stderr)
        sys.exit(NO_COMPILER if lacks_compiler(message) else 1)
