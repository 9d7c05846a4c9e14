"""`dgvf train --learners N` and `--restarts R`: a run that is trained by other processes on this machine.

Learner 0 trains as `dgvf train` does, and alone writes the run folder. The others bring their batches. PyTorch starts
the processes, and ends them all if one fails.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, final

import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException, start_processes

from dgvf_agents.execution.devices import device_named
from dgvf_agents.execution.learner_group import LearnerGroup
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.recorder import StopRequest, stop_requests
from dgvf_agents.train.train import NEVER, build, open_run, set_up_actors

log = logging.getLogger("dgvf_agents.train")

TIMEOUT = timedelta(hours=1)
"""Time that learners wait for one of them, as while learner 0 evaluates, before training ends with an error."""

_GRACE = 5.0
"""Seconds before a learner fails because of another one, whose error ends training first."""


@final
class LearnerDiedError(ChildProcessError):
    """The process of a learner died."""

    def __init__(self, learner: int, status: int) -> None:
        """
        Args:
            learner: which one.
            status: exit status of its process, negative if a signal has killed it.
        """
        self.signal = signal.Signals(-status) if status < 0 else None
        """The signal that has killed it, if one has."""
        how = f"killed by signal {self.signal} ({self.signal.name})" if self.signal else f"exit status {status}"
        super().__init__(f"learner {learner} died: {how}")


class LearnerError(RuntimeError):
    """The traceback of an error in a learner's process."""


def train_in_processes(
    config: TrainConfig, path: Path, show_progress: bool = True, resume: bool = False, restarts: int = 0
) -> None:
    """Train with `config.learners` processes; see `dgvf_agents.train.train.train`.

    A resumed run continues from the checkpoint of learner 0. The other learners start new episodes.

    Args:
        config: the configuration.
        path: the run folder.
        show_progress: whether to show a progress bar.
        resume: whether to continue the run at `path`.
        restarts: how often training is resumed after a signal has killed a process, as the out-of-memory killer does.
            Exceptions would be raised again.

    Raises:
        LearnerDiedError: a learner's process died; the others were ended.
        TrainingInterruptedError: Ctrl-C stopped training; a checkpoint was written.
        ValueError: `restarts` < 0, or `config.device` does not suit so many learners.
        Exception: what a learner raised, as `train` does.
    """
    if restarts < 0:
        raise ValueError(f"restarts must be >= 0, got {restarts!r}")
    _check_device(config)
    starts_ray = bool(config.actors) and config.address is None and "RAY_ADDRESS" not in os.environ
    with _lasting_cluster(config) if restarts and starts_ray else nullcontext():
        for restart in range(restarts + 1):
            try:
                _train_once(config, path, show_progress, resume or restart > 0)
                return
            except LearnerDiedError as killed:
                if killed.signal is None or restart == restarts:
                    raise
                log.warning("%s; resumed, %d of %d", killed, restart + 1, restarts)


def _train_once(config: TrainConfig, path: Path, show_progress: bool, resume: bool) -> None:
    event = multiprocessing.get_context("spawn").Event()
    with tempfile.TemporaryDirectory(prefix="dgvf-") as folder, stop_requests(event) as stop:
        given = (Path(folder), config, path, show_progress, stop, resume)
        context = start_processes(_learner, given, config.learners, join=False)
        try:
            while not context.join():
                pass
        except ProcessExitedException as error:
            file = _error_file(Path(folder), error.error_index)
            if file.exists():
                raised, details = pickle.loads(file.read_bytes())
                raise raised from LearnerError(details)
            raise LearnerDiedError(error.error_index, error.exit_code) from error
        finally:
            for process in context.processes:
                process.kill()
                process.join()


def _check_device(config: TrainConfig) -> None:
    device = device_named(config.device)
    share = config.learners > 1 and device.type == "cuda"
    if share and device.index is not None:
        raise ValueError(f"device must be 'cuda', 'auto' or 'cpu' for several learners, got {config.device!r}")
    if share and torch.cuda.device_count() < config.learners:
        raise ValueError(
            f"learners must be <= {torch.cuda.device_count()}, the number of CUDA devices, got {config.learners}"
        )


@contextmanager
def _lasting_cluster(config: TrainConfig) -> Iterator[None]:
    """A Ray on this machine that outlives learners, and their actors with it."""
    from dgvf_agents.impala.cluster import connect

    ray = connect(None, config.actors * config.learners)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()


# --- in a learner's process -------------------------------------------------------------------------------------------


def _learner(learner: int, folder: Path, *given: Any) -> None:
    """Train as one of the learners; leave a file with the error if training fails.

    Args:
        learner: which one.
        folder: a temporary one, where the processes find each other and leave their errors.
        given: arguments of `open_run`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process passes it on
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _train(learner, folder, *given)
    except BaseException as error:
        if _is_consequence(error):
            time.sleep(_GRACE)  # until the parent process ends this one
        _error_file(folder, learner).write_bytes(_pickled(error, f"in learner {learner}:\n{traceback.format_exc()}"))
        sys.exit(1)


def _train(
    learner: int, folder: Path, config: TrainConfig, path: Path, show_progress: bool, stop: StopRequest, resume: bool
) -> None:
    group = _group(learner, folder, config) if config.learners > 1 else None
    if learner == 0:
        with open_run(config, path, show_progress, stop, resume) as run:
            plan = None if run.is_finished else run.plan
            if (plan if group is None else group.from_first(plan)) is not None:
                run.finish()
    elif group is not None:
        torch.set_num_threads(config.threads)
        model = build(config)
        set_up_actors(model, config, path)
        following: Any = group.from_first(None)
        if following is not None:
            steps, reset = following
            model.learn(steps, log_interval=NEVER, reset_num_timesteps=reset)
    if group is not None:
        dist.destroy_process_group()


def _group(learner: int, folder: Path, config: TrainConfig) -> LearnerGroup:
    """The group of learners, which communicate over the loopback interface unless the environment says otherwise."""
    device = device_named(config.device)
    for _, interface in socket.if_nameindex():
        if interface in ("lo", "lo0"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if device.type == "cuda":
        torch.cuda.set_device(learner)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, f"file://{folder}/store", TIMEOUT, config.learners, learner)
    return LearnerGroup(config.learners, device)


def _is_consequence(error: BaseException) -> bool:
    """Whether an error says that another learner does not answer."""
    return type(error).__module__ == "torch.distributed" or "gloo/" in str(error)


def _error_file(folder: Path, learner: int) -> Path:
    return folder / f"error-{learner}"


def _pickled(error: BaseException, details: str) -> bytes:
    """The error and the details; a `LearnerError` in place of one that cannot be unpickled."""
    try:
        whole = pickle.dumps((error, details))
        pickle.loads(whole)
    except Exception:
        return pickle.dumps((LearnerError(details), details))
    return whole


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
