"""The runs behind an experiment: their folders, how far they are, and how one is trained.

A sweep marks a finished run with `finished.json`, written last and atomically. A folder that plain `dgvf train`
finished has no mark, but metrics and a checkpoint of the last step.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from filelock import FileLock, Timeout
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger

from dgvf_agents.experiments.metrics import RunMetrics
from dgvf_agents.experiments.settings import Scale, Setting
from dgvf_agents.storage.atomic import replacing
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.folder import Origin, ProgressLog, RunFolder, read_origins, record_origin
from dgvf_agents.train.train import train
from dgvf_agents.train.train_population import train_population

RECORDING_FIELDS = (
    "device",
    "threads",
    "actors",
    "address",
    "checkpoint_every",
    "checkpoints_kept",
    "log_every",
    "evaluate_every",
    "evaluation_episodes",
)
"""Fields on where a run is made and how it is recorded. Of these, the number of actors affects what is learned, through
the policy lag, but may change when a run is resumed."""

REFERENCE = "sb3-a2c"
"""`TrainConfig.task` of Stable-Baselines3's A2C."""

LOCK_SECONDS = 10.0
"""How long to wait for another process to leave a cell: enough for those of a killed sweep to notice its end."""


@final
@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    setting: Setting
    """What is run."""
    seed: int
    """Seed of everything random."""
    config: TrainConfig = field(hash=False)
    """The run's configuration."""
    folder: Path
    """The run's folder."""

    @property
    def name(self) -> str:
        """World, method and changes, and seed."""
        return f"{self.setting.folder_name} seed {self.seed}"

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return state_of(self.folder, self.config) is CellState.FINISHED


def cells_of(
    settings: Sequence[Setting], scale: Scale, seeds: int, out: Path, first_seed: int = 0, **changes: Any
) -> list[Cell]:
    """Every setting with seeds from `first_seed` on, the first seed of all settings first.

    Args:
        settings: what is run.
        scale: steps and evaluations.
        seeds: number of seeds.
        out: folder of the runs' folders.
        first_seed: the lowest seed.
        changes: of `RECORDING_FIELDS` of every run.
    """
    return [
        Cell(
            setting,
            seed,
            dataclasses.replace(setting.config(scale, seed), **changes),
            out / setting.folder_name / f"seed-{seed}",
        )
        for seed in range(first_seed, first_seed + seeds)
        for setting in settings
    ]


class CellState(enum.Enum):
    """How far a run is."""

    MISSING = enum.auto()
    UNFINISHED = enum.auto()
    FINISHED = enum.auto()


@final
@dataclass(frozen=True)
class FinishedMark:
    """How a finished run was made; of an adopted run, what its folder says."""

    wall_seconds: float
    """Training time."""
    command: str | None = None
    """Of the sweep."""
    versions: dict[str, str] | None = None
    """Of Python and packages."""
    hardware: dict[str, Any] | None = None
    """Processor, cores and accelerator."""
    code: str | None = None
    """Commit of the code; see `dgvf_agents.train.folder.Origin`."""
    members: int = 1
    """Number of runs trained at once by the process, which `wall_seconds` is a part of."""
    core_seconds: float | None = None
    """Processor time, with compilation; of resumed runs, of all processes that ended by themselves."""


def lock_file(folder: Path) -> Path:
    """Held while a cell is trained or adopted; beside the folder, which may not exist."""
    return folder.with_name(f"{folder.name}.lock")


def log_file(folder: Path) -> Path:
    """Output of a cell's process, beside the run's folder."""
    return folder.with_name(f"{folder.name}.log")


def mark_file(folder: Path) -> Path:
    """The mark of a finished run."""
    return folder / "finished.json"


def write_mark(folder: Path, mark: FinishedMark) -> None:
    """Mark a run as finished, atomically."""
    with replacing(mark_file(folder)) as unfinished:
        unfinished.write_text(json.dumps(dataclasses.asdict(mark), indent=1) + "\n")


def read_mark(folder: Path) -> FinishedMark:
    """The mark of a finished run; from its metrics and its last origin if it has none."""
    if mark_file(folder).is_file():
        return FinishedMark(**json.loads(mark_file(folder).read_text()))
    seconds, origins = RunMetrics.read(folder).seconds, read_origins(RunFolder(folder))
    return FinishedMark(seconds) if not origins else _mark(seconds, None, origins[-1])


def _mark(
    seconds: float, command: str | None, origin: Origin, members: int = 1, core_seconds: float | None = None
) -> FinishedMark:
    return FinishedMark(seconds, command, origin.versions, origin.hardware, origin.code, members, core_seconds)


def _spent_file(folder: Path) -> Path:
    """Processor seconds of earlier processes that trained an unfinished run."""
    return folder.with_name(f"{folder.name}.spent")


@contextmanager
def _counting(folders: Sequence[Path]) -> Iterator[Callable[[], float]]:
    """Count the processor time of a process; its share of each run is kept for the one that resumes it."""
    start = _processor_seconds()
    earlier = [float(file.read_text()) if (file := _spent_file(f)).is_file() else 0.0 for f in folders]

    def share() -> float:
        return (_processor_seconds() - start + sum(earlier)) / len(folders)

    try:
        yield share
    finally:
        for folder in folders:
            with replacing(_spent_file(folder)) as unfinished:
                unfinished.write_text(f"{share():.1f}\n")


def _processor_seconds() -> float:
    """Of this process and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def state_of(folder: Path, wanted: TrainConfig) -> CellState:
    """How far the run in a folder is.

    Args:
        folder: the folder; need not exist.
        wanted: the configuration that the run must have.

    Raises:
        ValueError: the folder holds a run of another configuration.
    """
    if not RunFolder(folder).config_file.is_file():
        return CellState.MISSING
    if differences := differing_fields(read_config(folder), wanted):
        raise ValueError(
            f"the run in {folder} must have the configuration of its cell, got another {', '.join(differences)}; "
            "choose another --out or remove the folder"
        )
    return CellState.FINISHED if mark_file(folder).is_file() or is_complete(folder) else CellState.UNFINISHED


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run.

    Raises:
        ValueError: it does not have the fields of this version.
    """
    try:
        return RunFolder(folder).read_config()
    except ValueError as error:
        raise ValueError(f"the run in {folder} must have a configuration of this version: {error}") from error


def differing_fields(found: TrainConfig, wanted: TrainConfig) -> list[str]:
    """`field (found, not wanted)` of each differing field that decides what is learned."""
    return found.differences(wanted, apart_from=RECORDING_FIELDS)


def is_complete(folder: Path) -> bool:
    """Whether metrics and a whole checkpoint reach the configured steps, with or without a mark."""
    run = RunFolder(folder)
    if not (run.config_file.is_file() and run.progress_file.is_file()):
        return False
    steps = read_config(folder).steps
    return run.is_finished() and RunMetrics.read(folder).total_steps >= steps


def run_cell(config: TrainConfig, folder: Path, command: str, lock_seconds: float = LOCK_SECONDS) -> None:
    """Train one cell in this process and mark it as finished.

    Args:
        config: the cell's configuration.
        folder: the cell's folder. A finished run is left as it is, an unfinished one continues from its checkpoint.
        command: of the sweep, for the record.
        lock_seconds: how long to wait for another process that trains the cell.

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
        resumed = state is CellState.UNFINISHED
        with _counting([folder]) as share:
            if config.task == REFERENCE:
                train_reference(config, folder)
            else:
                if resumed:
                    found = read_config(folder)
                    config = dataclasses.replace(found, actors=config.actors, address=config.address)
                train(config, folder, show_progress=False, resume=True)
        seconds = RunMetrics.read(folder).seconds if resumed else time.perf_counter() - start
        write_mark(folder, _mark(seconds, command, Origin.here(config.device), core_seconds=share()))


def run_cells(
    configs: Sequence[TrainConfig], folders: Sequence[Path], command: str, lock_seconds: float = LOCK_SECONDS
) -> None:
    """Train cells in this process, several at once as a population, and mark them as finished.

    The reason why a cell of several fails is the last line of its log file; the others go on.

    Args:
        configs: the cells' configurations; those of several fit into one population.
        folders: the cells' folders; see `run_cell`.
        command: of the sweep, for the record.
        lock_seconds: see `run_cell`.

    Raises:
        TimeoutError: there is one cell; see `run_cell`.
        ValueError: there is one cell; see `run_cell`.
    """
    if len(configs) == 1:
        run_cell(configs[0], folders[0], command, lock_seconds)
        return
    with ExitStack() as stack:
        states = [
            _locked_state(stack, folder, config, lock_seconds) for folder, config in zip(folders, configs, strict=True)
        ]
        left = [i for i, state in enumerate(states) if state not in (None, CellState.FINISHED)]
        own = [read_config(folders[i]) if states[i] is CellState.UNFINISHED else configs[i] for i in left]
        start = time.perf_counter()
        with _counting([folders[i] for i in left]) as share:
            failures = train_population(own, [folders[i] for i in left])
        elapsed = time.perf_counter() - start
        for k, (i, failure) in enumerate(zip(left, failures, strict=True)):
            if failure is not None:
                _log_failure(folders[i], failure)
                continue
            seconds = RunMetrics.read(folders[i]).seconds if states[i] is CellState.UNFINISHED else elapsed
            origin = Origin.here(own[k].device)
            write_mark(folders[i], _mark(seconds / len(left), command, origin, len(left), share()))


def _locked_state(stack: ExitStack, folder: Path, config: TrainConfig, lock_seconds: float) -> CellState | None:
    """The state of a cell that is locked from now on; `None`, and the reason is in its log file, if it cannot be."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(FileLock(lock_file(folder), timeout=lock_seconds))
        return state_of(folder, config)
    except (ValueError, Timeout) as error:
        _log_failure(folder, error)
        return None


def _log_failure(folder: Path, error: Exception) -> None:
    with log_file(folder).open("a") as log:
        log.write(f"{type(error).__name__}: {error}\n")


def train_reference(config: TrainConfig, path: Path) -> A2C:
    """Train Stable-Baselines3's A2C with its defaults, recorded as by `dgvf train`; a killed run restarts.

    Args:
        config: environment, steps and seed; the agent's settings do not apply.
        path: the run folder.
    """
    folder = RunFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(config.threads)
    folder.write_config(config)
    record_origin(folder, config.device, 0)
    model = A2C(config.policy, training_environments(config), seed=config.seed, device=config.device)
    model.set_logger(Logger(str(path), [ProgressLog(folder.progress_file)]))
    batch = model.n_steps * model.n_envs
    model.learn(config.steps, log_interval=max(1, round(config.log_every / batch)))
    model.logger.close()
    model.save(path / "model.zip")
    return model


def cell_process(configs: Sequence[TrainConfig], folders: Sequence[Path], command: str) -> None:
    """`run_cells` as the entry of a new process, whose output goes to the log file of the first cell."""
    os.setsid()  # the sweep handles an interrupt from the keyboard
    threading.Thread(target=_die_with_parent, daemon=True).start()
    folders[0].parent.mkdir(parents=True, exist_ok=True)
    _redirect_output(log_file(folders[0]))
    run_cells(configs, folders, command)


def _redirect_output(path: Path) -> None:
    """Redirect file descriptors, so that the output of child processes is included."""
    with path.open("ab", buffering=0) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _die_with_parent() -> None:
    """End with a killed sweep: a process that survived it would write into folders that the next sweep uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
