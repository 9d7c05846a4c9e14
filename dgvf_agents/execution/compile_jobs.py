"""Compilation in other processes, so that training goes on and never imports PyTorch's compiler."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import final

from dgvf_agents.execution.compile_cache import Parcel, Task, find, graph_of, pickled
from dgvf_agents.execution.library import load
from dgvf_agents.execution.passes import Passes

NO_COMPILER = 3
"""Exit status of a process that finds no C++ compiler."""

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)

_NO_COMPILER = (
    "InvalidCxxCompiler",
    "Failed to find C compiler",
    "No working C++ compiler",
    "TritonMissing",
    "GPUTooOldForTriton",
)


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
    """What to raise for an error of the compiler."""
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
        self._passes: Passes | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115
        self._message = ""
        self._graph = graph_of(self._key) if parcel and parcel.versioned else None
        if self._graph is not None and find(self._graph) is None:
            self._graph = None
        self._process = None if parcel is None or self._graph is not None else self._started(parcel)

    def _started(self, parcel: Parcel) -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as given:
            given.write(parcel.payload)
            given.seek(0)
            whose = "versioned" if parcel.versioned else "own"
            command = [sys.executable, "-m", "dgvf_agents.execution.compile_worker", self._key, whose]
            paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            environment = {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
            streams = {"stdin": given, "stdout": self._answer, "stderr": self._errors}
            return subprocess.Popen(command, env=environment, **streams)  # type: ignore[call-overload]

    @property
    def finished(self) -> bool:
        """Whether `passes` returns at once."""
        return self._process is None or self._process.poll() is not None

    def passes(self) -> Passes:
        """The compiled function; waits for it.

        Raises:
            NoCompilerError: no C++ compiler was found.
            CompilationError: the function cannot be compiled.
        """
        if self._passes is None:
            status = 0 if self._process is None else self._process.wait()
            self._read_message()
            if status == NO_COMPILER:
                raise NoCompilerError(self._message)
            if -status in _CRASHES:  # this process would crash too
                ended = f"the compiling process crashed: {signal.Signals(-status).name}"
                raise CompilationError(f"{ended}\n{self._message}".strip())
            folder = None if self._graph is None else find(self._graph)
            self._passes = self._compiled_here() if folder is None else load(folder)
            del self._task
        return self._passes

    def _compiled_here(self) -> Passes:
        """Compile in this process: the other one lacks something that the function closes over."""
        from dgvf_agents.execution.building import build, traced  # imports PyTorch's compiler

        _JOBS.pop(self._key, None)  # a parameter's value, which is not in the key, may be a constant of this one
        try:
            with tempfile.TemporaryDirectory() as folder:
                build(traced(self._task), Path(folder))
                return load(Path(folder))
        except Exception as error:
            raise failure(error, self._message) from error

    def _read_message(self) -> None:
        """What the other process had to say, after its end."""
        if not self._errors.closed:
            self._answer.seek(0)
            self._graph = self._graph or self._answer.read().decode() or None
            self._answer.close()
            self._errors.seek(0)
            self._message = self._errors.read().decode(errors="replace").strip()
            self._errors.close()

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
