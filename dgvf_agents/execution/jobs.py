"""Compilation in other processes, so that training goes on and never imports PyTorch's compiler."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import torch
from filelock import FileLock, Timeout

from dgvf_agents.execution.cache import (
    CacheError,
    build,
    cache_folder,
    compiler_folder,
    find,
    graph_of,
    key_of,
    load,
    load_libraries,
    remember_graph,
    store,
    usable,
    use_compiler_folder,
)
from dgvf_agents.execution.task import Parcel, Task, origin, pickled
from dgvf_agents.execution.trace import Graphs, Passes, trace

NO_COMPILER, NO_CACHE = 3, 4
"""Exit status of a process that finds no C++ compiler, or cannot use the folder of compiled functions."""

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)

_NO_COMPILER = (
    "InvalidCxxCompiler",
    "Failed to find C compiler",
    "No working C++ compiler",
    "TritonMissing",
    "GPUTooOldForTriton",
)

_WORKER = "import sys; sys.path += sys.argv.pop(1).split('\\n'); from dgvf_agents.execution.jobs import main; main()"
"""The user's folders come last: what they hold must not stand in for a module of Python's."""


def lacks_compiler(message: str) -> bool:
    """Whether an error's name and message say that no compiler for the device was found."""
    return any(name in message for name in _NO_COMPILER)


@final
class NoCompilerError(RuntimeError):
    """No C++ compiler was found."""


@final
class CompilationError(RuntimeError):
    """A function could not be compiled."""


def failure(error: Exception, details: str = "") -> NoCompilerError | CompilationError:
    """The exception for an error of the compiler."""
    message = f"{type(error).__name__}: {error}"
    kind = NoCompilerError if lacks_compiler(message) else CompilationError
    return kind(f"{message}\n{details}".strip())


@final
class Job:
    """The compilation of one function: found in the cache, or running in another process."""

    def __init__(self, parcel: Parcel | None, task: Task) -> None:
        """
        Args:
            parcel: the pickled task; `None` if it cannot be pickled, and is compiled here.
            task: the task.
        """
        self._key, self._task = parcel.key if parcel else "", task
        self._process: subprocess.Popen[bytes] | None = None
        self._passes: Passes | None = None
        self._graph: str | None = None
        self._failure: Exception | None = None
        if parcel is not None:
            try:
                self._find_or_start(parcel)
            except CacheError as error:
                self._failure = error

    def _find_or_start(self, parcel: Parcel) -> None:
        known = graph_of(self._key) if parcel.versioned else None
        if known is not None and find(known) is not None:
            self._graph = known
            return
        compiler = compiler_folder()
        with usable(), tempfile.TemporaryFile() as given:
            given.write(parcel.payload)
            given.seek(0)
            self._answer, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
            streams = {"stdin": given, "stdout": self._answer, "stderr": self._errors}
            whose = "versioned" if parcel.versioned else "own"
            command = [sys.executable, "-P", "-c", _WORKER, "\n".join(filter(None, sys.path)), self._key, whose]
            paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "OMP_NUM_THREADS": "1",
                "TMPDIR": str(compiler),  # not the system's, which others may write
                "TORCHINDUCTOR_CACHE_DIR": str(compiler),
            }
            self._process = subprocess.Popen(command, env=environment, **streams)  # type: ignore[call-overload]

    @property
    def finished(self) -> bool:
        """Whether `passes` returns at once."""
        return self._process is None or self._process.poll() is not None

    def passes(self) -> Passes:
        """The compiled function; waits for it.

        Raises:
            NoCompilerError: no C++ compiler was found.
            CacheError: the folder of compiled functions cannot be used, or is not safe.
            CompilationError: the function cannot be compiled.
        """
        if self._passes is None:
            if self._failure is not None:
                raise self._failure
            message = ""
            if self._process is not None:
                try:
                    message = self._finish(self._process)
                except (NoCompilerError, CacheError, CompilationError) as error:
                    self._failure = error  # compiled here, it might crash this process too
                    raise
            self._passes = self._loaded() or self._compiled_here(message)
            del self._task
        return self._passes

    def _finish(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the other process, and return what it had to say."""
        status, self._process = process.wait(), None
        with self._answer, self._errors:
            self._answer.seek(0)
            self._errors.seek(0)
            answer = self._answer.read().decode(errors="replace")
            message = self._errors.read().decode(errors="replace").strip()
        if status == NO_COMPILER:
            raise NoCompilerError(answer)
        if status == NO_CACHE:
            raise CacheError(answer)
        if -status in _CRASHES:  # this process would crash too
            raise CompilationError(f"the compiling process crashed: {signal.Signals(-status).name}\n{message}".strip())
        if status:
            return f"{answer}\n{message}"
        self._graph = answer
        return message

    def _loaded(self) -> Passes | None:
        folder = None if self._graph is None else find(self._graph)
        return None if folder is None else load(folder, self._task.result())

    def _compiled_here(self, message: str) -> Passes:
        """Compile in this process: the other one lacks something that the function closes over."""
        _JOBS.pop(self._key, None)  # a parameter's value, which is not in the key, may be a constant of this one
        use_compiler_folder()
        try:
            with tempfile.TemporaryDirectory() as folder:
                graphs = traced(self._task)
                build(graphs, Path(folder))
                return load(Path(folder), graphs.result)
        except Exception as error:
            raise failure(error, message) from error

    def stop(self) -> None:
        """Stop the process, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


_JOBS: dict[str, Job] = {}
"""By key: models of one architecture share compiled functions."""


def job(task: Task) -> Job:
    """The job for a task; running already, if an equal task was given before."""
    try:
        parcel = pickled(task)
    except Exception:  # whatever a user's class raises
        return Job(None, task)
    if parcel.key not in _JOBS:
        _JOBS[parcel.key] = Job(parcel, task)
    return _JOBS[parcel.key]


@atexit.register
def _stop_all() -> None:
    for running in _JOBS.values():
        running.stop()


def traced(task: Task) -> Graphs:
    """The task's function as graphs."""
    return trace(task.function, task.arguments(), task.differentiable)


# --- the other process ------------------------------------------------------------------------------------------------


@contextmanager
def _slot() -> Iterator[None]:
    """Wait until fewer processes compile than the machine has cores."""
    locks = [FileLock(cache_folder() / f".slot-{i}") for i in range(os.cpu_count() or 1)]
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


def compile_into_cache(key: str, parcel: Parcel) -> str:
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
        graphs = traced(task)
        files = {name: getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before}
        own = sorted(name for name, file in files.items() if file and origin(name) == "own")
        if own:
            raise RuntimeError(f"a function to compile imports {own[0]!r}, whose source code may have changed")
        graph = key_of(graphs)

        def build_and_load(folder: Path) -> None:
            build(graphs, folder)
            load_libraries(folder)  # one that crashes where it is loaded ends this process, not the training

        with FileLock(cache_folder() / f".{graph}.lock"):
            if find(graph) is None:
                store(graph, build_and_load)
        if parcel.versioned:
            remember_graph(key, graph)
        return graph


def main() -> None:
    """Compile the task on standard input: `main KEY versioned|own`. The answer is the graph's key, or the error."""
    answer = os.dup(1)
    os.dup2(2, 1)  # compilers print
    try:
        with usable():
            graph = compile_into_cache(sys.argv[1], Parcel(sys.stdin.buffer.read(), sys.argv[2] == "versioned"))
        os.write(answer, graph.encode())
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        unusable = isinstance(error, CacheError)
        os.write(answer, (str(error) if unusable else message).encode())
        sys.exit(NO_COMPILER if lacks_compiler(message) else NO_CACHE if unusable else 1)
