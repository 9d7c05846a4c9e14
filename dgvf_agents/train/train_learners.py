"""`dgvf train --learners N`: a run with several learners, each in a process of its own on this machine.

Learner 0 trains as `dgvf train` does, and alone writes the run folder. The others bring their batches. This process
starts them, and ends them all if one fails.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
import torch.distributed as dist

from dgvf_agents.execution.devices import device_named
from dgvf_agents.execution.learner_group import LearnerGroup
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.interrupts import StopRequest, TrainingInterruptedError, stop_requests
from dgvf_agents.train.train import NEVER, build, open_run, set_up_actors

TIMEOUT = timedelta(hours=1)
"""Time that learners wait for one of them, as while learner 0 evaluates, before training ends with an error."""

_GRACE = 5.0
"""Seconds for other learners to tell their errors, too: the first error may be a consequence."""

_LOOPBACK = ("lo", "lo0")
"""Names of the loopback interface."""


@final
class LearnerDiedError(ChildProcessError):
    """The process of a learner died."""

    def __init__(self, learner: int, status: int | None) -> None:
        """
        Args:
            learner: which one.
            status: exit status of its process, negative if a signal has killed it.
        """
        killed = status is not None and status < 0
        self.signal = signal.Signals(-status) if killed else None  # type: ignore[operator]
        """The signal that has killed it, if one has."""
        how = f"killed by signal {self.signal} ({self.signal.name})" if self.signal else f"exit status {status}"
        super().__init__(f"learner {learner} died: {how}")


class LearnerError(RuntimeError):
    """The traceback of an error in a learner's process."""


def train_learners(config: TrainConfig, path: Path, show_progress: bool = True, resume: bool = False) -> None:
    """Train with `config.learners` processes; see `dgvf_agents.train.train.train`.

    A resumed run continues from the checkpoint of learner 0. The other learners start new episodes.

    Args:
        config: the configuration.
        path: the run folder.
        show_progress: whether to show a progress bar.
        resume: whether to continue the run at `path`.

    Raises:
        LearnerDiedError: a learner's process died; the others were ended.
        TrainingInterruptedError: Ctrl-C stopped training; a checkpoint was written.
        ValueError: `config.device` does not suit so many learners.
        Exception: what a learner raised, as `train` does.
    """
    _check_device(config)
    with stop_requests() as stop, tempfile.TemporaryDirectory(prefix="dgvf-") as folder:
        job = _Job(config, path, show_progress, resume, f"file://{folder}/store")
        workers: list[_Worker] = []
        try:
            workers += [_Worker.start(job, learner) for learner in range(config.learners)]
            _watch(workers, stop, path)
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()


class _Job(NamedTuple):
    """What every learner gets."""

    config: TrainConfig
    path: Path
    show_progress: bool
    resume: bool
    store: str
    """Where `torch.distributed` lets the processes find each other."""


class _Failure(NamedTuple):
    """How a learner failed."""

    error: BaseException
    details: str
    """The learner, and the traceback in its process."""
    is_consequence: bool
    """Whether it failed because another learner did not answer."""


@final
@dataclass
class _Worker:
    """A learner's process, as seen from the one that started it."""

    learner: int
    process: BaseProcess
    connection: Connection
    ended: bool = False
    """Whether it finished or failed."""

    @classmethod
    def start(cls, job: _Job, learner: int) -> _Worker:
        context = multiprocessing.get_context("spawn")
        own, others = context.Pipe()
        process = context.Process(target=_run, args=(job, learner, others), name=f"dgvf-learner-{learner}")
        process.start()
        others.close()
        return cls(learner, process, own)

    def failure(self) -> _Failure | None:
        """How it failed since the last call; `None` if it did not."""
        if self.ended or not self.connection.poll():
            return None
        self.ended = True
        try:
            outcome: _Failure | None = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            error = LearnerDiedError(self.learner, self.process.exitcode)
            return _Failure(error, f"in learner {self.learner}", False)
        return outcome


def _watch(workers: Sequence[_Worker], stop: StopRequest, path: Path) -> None:
    """Wait until all learners have finished.

    Raises:
        Exception: see `train_learners`.
    """
    told = False
    while not all(worker.ended for worker in workers):
        if stop.asked and not told:
            told = True
            with suppress(BrokenPipeError):  # learner 0 has finished
                workers[0].connection.send(_STOP)
        wait([worker.connection for worker in workers if not worker.ended], timeout=0.2)
        failures = _failures(workers)
        if failures:
            failure = _cause(failures, workers)
            if isinstance(failure.error, KeyboardInterrupt):
                raise TrainingInterruptedError(path)
            raise failure.error from LearnerError(failure.details)


_STOP = "stop"


def _failures(workers: Sequence[_Worker]) -> list[_Failure]:
    return [failure for worker in workers if (failure := worker.failure()) is not None]


def _cause(failures: list[_Failure], workers: Sequence[_Worker]) -> _Failure:
    """The failure that the others follow from."""
    until = time.monotonic() + _GRACE
    while all(failure.is_consequence for failure in failures) and time.monotonic() < until:
        time.sleep(0.1)
        failures = [*failures, *_failures(workers)]
    return min(failures, key=lambda failure: failure.is_consequence)


def _check_device(config: TrainConfig) -> None:
    device = device_named(config.device)
    if device.type == "cuda" and device.index is not None:
        raise ValueError(f"device must be 'cuda', 'auto' or 'cpu' for several learners, got {config.device!r}")
    if device.type == "cuda" and torch.cuda.device_count() < config.learners:
        raise ValueError(
            f"learners must be <= {torch.cuda.device_count()}, the number of CUDA devices, got {config.learners}"
        )


# --- in a learner's process -------------------------------------------------------------------------------------------


def _run(job: _Job, learner: int, connection: Connection) -> None:
    """Train as one of the learners, and tell how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process is told, and tells learner 0
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _train(job, learner, connection)
    except BaseException as error:
        connection.send(_failure(error, learner))
    else:
        connection.send(None)


def _train(job: _Job, learner: int, connection: Connection) -> None:
    config = job.config
    device = device_named(config.device)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        _bind_to_loopback(name)
    if device.type == "cuda":
        torch.cuda.set_device(learner)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, job.store, TIMEOUT, config.learners, learner)
    group = LearnerGroup(config.learners, device)
    if learner == 0:
        _lead(job, group, _stop_request(connection))
    else:
        _follow(job, group)
    dist.destroy_process_group()


def _lead(job: _Job, group: LearnerGroup, stop: StopRequest) -> None:
    """Train and write the run folder."""
    with open_run(job.config, job.path, job.show_progress, stop, job.resume) as run:
        if group.from_first(None if run.is_finished else run.plan) is not None:
            run.finish()


def _follow(job: _Job, group: LearnerGroup) -> None:
    """Train with learner 0."""
    torch.set_num_threads(job.config.threads)
    model = build(job.config)
    set_up_actors(model, job.config, job.path)
    plan: Any = group.from_first(None)
    if plan is not None:
        steps, reset = plan
        model.learn(steps, log_interval=NEVER, reset_num_timesteps=reset)


def _failure(error: BaseException, learner: int) -> _Failure:
    """The error as something that can be sent."""
    details = f"in learner {learner}:\n{traceback.format_exc()}"
    is_consequence = type(error).__module__ == "torch.distributed" or "gloo/" in str(error)
    try:
        travels = isinstance(pickle.loads(pickle.dumps(error)), type(error))
    except Exception:
        travels = False
    return _Failure(error if travels else LearnerError(details), details, is_consequence)


def _stop_request(connection: Connection) -> StopRequest:
    """What becomes asked when the parent process says so."""
    stop = StopRequest()

    def listen() -> None:
        with suppress(EOFError, OSError):  # the parent process ended
            stop.asked = connection.recv() == _STOP

    threading.Thread(target=listen, daemon=True).start()
    return stop


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _bind_to_loopback(variable: str) -> None:
    """Let a backend communicate over the loopback interface, unless the environment variable says otherwise."""
    found = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    if found:
        os.environ.setdefault(variable, found[0])
