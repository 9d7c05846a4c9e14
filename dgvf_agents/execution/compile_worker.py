"""A process that compiles one function: `python -m dgvf_agents.execution.compile_worker KEY < TASK`."""

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

from dgvf_agents.execution.compile_cache import Task, cache_folder, find, key_of, store
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


def main(key: str, payload: bytes) -> None:
    """Compile a task into the cache, unless another process does.

    Raises:
        RuntimeError: the code is not the one that the task is from, as after an update while a training runs.
    """
    if key_of(payload) != key:
        raise RuntimeError("the source code has changed since the process began that wants a function compiled")
    with FileLock(cache_folder() / f".{key}.lock"), _slot():
        if find(key) is not None:
            return
        task: Task = pickle.loads(payload)
        torch.set_num_threads(task.threads)
        torch.set_default_dtype(task.dtype)
        from dgvf_agents.execution.building import build  # imports PyTorch's compiler

        def build_and_load(folder: Path) -> None:
            build(task, folder)
            load(folder)  # a library that crashes where it is loaded ends this process, not the training

        store(key, build_and_load)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.stdin.buffer.read())
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        print(message, file=sys.stderr)
        sys.exit(NO_COMPILER if lacks_compiler(message) else 1)
