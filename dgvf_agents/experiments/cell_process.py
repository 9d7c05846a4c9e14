"""One cell in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

from filelock import FileLock

from dgvf_agents.experiments.cell_folder import CellState, FinishedMark, lock_file, read_config, state_of, write_mark
from dgvf_agents.experiments.provenance import hardware, versions
from dgvf_agents.experiments.reference_run import REFERENCE, train_reference
from dgvf_agents.experiments.run_metrics import RunMetrics
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.train import train

LOCK_SECONDS = 10.0
"""How long to wait for another process to leave a cell: enough for those of a killed sweep to notice its end."""


def log_file(folder: Path) -> Path:
    """What a cell's process prints goes here, beside the run's folder."""
    return folder.with_name(f"{folder.name}.log")


def cell_process(config: TrainConfig, folder: Path, command: str) -> None:
    """Train one cell and mark it as finished; the entry of a new process.

    Args:
        config: the cell's configuration.
        folder: the cell's folder. A finished run is left as it is, an unfinished one goes on from its checkpoint.
        command: of the sweep, for the record.
    """
    os.setsid()  # an interrupt from the keyboard is the sweep's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _redirect_output(log_file(folder))
    run_cell(config, folder, command)


def run_cell(config: TrainConfig, folder: Path, command: str, lock_seconds: float = LOCK_SECONDS) -> None:
    """Train one cell in this process and mark it as finished; see `cell_process`.

    Raises:
        TimeoutError: another process is still training it after `lock_seconds`.
        ValueError: the folder holds a run of another configuration.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock_file(folder), timeout=lock_seconds):
        state = state_of(folder, config)
        if state is CellState.FINISHED:
            return
        start = time.perf_counter()
        begun = state is CellState.UNFINISHED
        if config.task == REFERENCE:
            train_reference(config, folder)
        else:
            train(read_config(folder) if begun else config, folder, show_progress=False, resume=True)
        seconds = RunMetrics.read(folder).seconds if begun else time.perf_counter() - start
        write_mark(folder, FinishedMark(seconds, command, versions(), hardware()))


def _redirect_output(path: Path) -> None:
    """Of this process and its children, below Python's own objects."""
    with path.open("ab", buffering=0) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _die_with_parent() -> None:
    """A killed sweep must not leave processes that go on writing into folders which the next sweep uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
