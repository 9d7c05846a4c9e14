"""The runs behind an experiment: their folders, how parallel processes train them, and what is recorded of them.

A sweep marks a finished run with `finished.json`, written last and atomically.

A process that fails or is killed does not affect the others. (The pools of `concurrent.futures` and joblib break as a
whole when the system kills one worker.)

On the CPU a population is faster than separate runs where Python and the calls of compiled functions take a good part
of an update: in our own worlds with small networks. With wide networks and convolutions, separate runs are as fast. On
a GPU a population is faster with both worlds' networks, and processes only compete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, cast, final

import numpy as np
import torch
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger

from dgvf_agents.execution.devices import device_named
from dgvf_agents.experiments.records import COLUMNS, Record
from dgvf_agents.experiments.settings import Scale, Setting
from dgvf_agents.hyperparameters import record as hyperparameters
from dgvf_agents.storage.files import contents_of, write_bytes
from dgvf_agents.train.config import TrainConfig, differences
from dgvf_agents.train.environments import import_named, training_environments
from dgvf_agents.train.folder import STEPS, Origin, ProgressLog, RunFolder, record_origin
from dgvf_agents.train.train import train, train_population

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

POINTS = 50
"""Of the curve of training returns, where there are no evaluations."""


@final
@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    setting: Setting
    """The configuration of the run."""
    seed: int
    """Seed of everything random."""
    config: TrainConfig = field(hash=False)
    """The run's configuration."""
    folder: Path
    """The run's folder; need not exist."""

    @classmethod
    def of(cls, setting: Setting, seed: int, scale: Scale, out: Path, device: str | None = None) -> Cell:
        """The cell of a setting and a seed.

        Args:
            setting: what is run.
            seed: its seed.
            scale: steps and evaluations.
            out: folder of the runs' folders.
            device: of the run; the setting's own if `None`.
        """
        config = setting.config(scale, seed)
        config = config if device is None else dataclasses.replace(config, device=device)
        return cls(setting, seed, config, out / setting.folder_name / f"seed-{seed}")

    @property
    def name(self) -> str:
        """World, method and changes, and seed."""
        return f"{self.setting.folder_name} seed {self.seed}"

    @property
    def mark(self) -> Path:
        """The record of a finished run, which marks it as such."""
        return self.folder / "finished.json"

    def beside(self, ending: Literal["log", "spent"]) -> Path:
        """A file beside the folder: output of its process, or its CPU time.

        Raises:
            ValueError: it is a link, whose target would be written to.
        """
        file = self.folder.with_name(f"{self.folder.name}.{ending}")
        if file.is_symlink():
            raise ValueError(f"{file} must be a file of its own, got a link to {file.readlink()}")
        return file

    def found_config(self) -> TrainConfig | None:
        """The configuration of the run in the folder, which may be recorded in another way; `None` if there is no run.

        Raises:
            ValueError: the folder holds a run of another configuration.
        """
        run = RunFolder(self.folder)
        if not run.config_file.is_file():
            return None
        import_named(self.config)
        found = run.read_config()
        if differing := differences(found.fields(), self.config.fields(apart_from=RECORDING_FIELDS)):
            raise ValueError(
                f"the run in {self.folder} must have the configuration of its cell, got another {differing}; choose "
                "another --out or remove the folder"
            )
        return found

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete.

        Raises:
            ValueError: the folder holds a run of another configuration.
        """
        return self.found_config() is not None and self.mark.is_file()

    @property
    def fields(self) -> dict[str, Any]:
        """The configuration without what differs between the runs of a setting, as in JSON."""
        return self.config.fields(apart_from=("seed", "questions_from", *RECORDING_FIELDS))

    def record(self) -> Record:
        """The record of the finished run."""
        with contents_of(self.mark, 1 << 20) as contents:
            found = json.loads(contents)
            return {name: found[name] for name in ("world", *COLUMNS)}

    def log_failure(self, error: Exception) -> None:
        """Write the reason why the run failed as the last line of its log."""
        with self.beside("log").open("a") as log:
            log.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")


def learning_curve(folder: Path) -> tuple[list[int], list[float]]:
    """Steps and mean returns of a run: its evaluations, or else training returns at `POINTS` equal intervals.

    Raises:
        ValueError: it has no returns.
    """
    run = RunFolder(folder)
    steps, returns = run.learning_curve("eval/mean_reward")
    if steps:
        return steps, returns
    steps, returns = run.learning_curve()
    if not steps:
        raise ValueError(f"a run must have returns, got {folder} without any")
    total = run.read_config().steps
    places = np.minimum(POINTS, np.ceil(np.array(steps) * POINTS / total)).astype(int)
    ends = sorted(set(places.tolist()))
    means = [float(np.mean(np.array(returns)[places == end])) for end in ends]
    return [round(end * total / POINTS) for end in ends], means


def progress(folder: Path) -> tuple[int, float | None]:
    """Steps so far and the latest return; 0 and `None` before the first row."""
    try:
        curves = [RunFolder(folder).learning_curve(m) for m in (STEPS, "rollout/ep_rew_mean", "eval/mean_reward")]
    except (FileNotFoundError, NotADirectoryError):
        return 0, None
    latest = [returns[-1] for _, returns in curves if returns]  # the number of steps is a metric itself
    return (int(latest[0]), latest[-1] if len(latest) > 1 else None) if latest else (0, None)


def run_cells(cells: Sequence[Cell]) -> None:
    """Train cells in this process, several at once as a population, and mark them as finished.

    A finished run is left as it is, an unfinished one continues from its checkpoint. The reason why a cell of several
    fails is the last line of its log file; the others go on.

    Args:
        cells: several fit into one population.

    Raises:
        ValueError: there is one cell, and another process is training it, or its folder holds a run of another
            configuration.
    """
    left: list[Cell] = []
    for cell in cells:
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = cell.found_config()
        except ValueError as error:
            if len(cells) == 1:
                raise
            cell.log_failure(error)
            continue
        if found is not None:
            where: dict[str, Any] = {"actors": cell.config.actors, "address": cell.config.address}
            cell = dataclasses.replace(cell, config=dataclasses.replace(found, **where))
        if found is None or not cell.mark.is_file():
            left.append(cell)
    if left:
        _train(left, alone=len(cells) == 1)


def _train(cells: Sequence[Cell], alone: bool) -> None:
    """Train cells. A file beside each has its share of the CPU time for the process that resumes it."""
    failures: list[Exception | None] = [None] * len(cells)
    start, files = sum(os.times()[:4]), [cell.beside("spent") for cell in cells]
    earlier = sum(float(file.read_text()) for file in files if file.exists())
    try:
        if not alone:
            failures = train_population([cell.config for cell in cells], [cell.folder for cell in cells])
        elif cells[0].config.task == REFERENCE:
            train_reference(cells[0].config, cells[0].folder)
        else:
            train(cells[0].config, cells[0].folder, show_progress=False, resume=True)
    finally:
        share = (sum(os.times()[:4]) - start + earlier) / len(cells)
        for file in files:
            write_bytes(file, f"{share:.1f}\n".encode())
    for cell, failure in zip(cells, failures, strict=True):
        if failure is not None:
            cell.log_failure(failure)
            continue
        origin = Origin.here(cell.config.device)
        names = [str(origin.hardware[name]) for name in ("processor", "accelerator") if name in origin.hardware]
        steps, returns = learning_curve(cell.folder)
        discounts = RunFolder(cell.folder).learning_curve("questions/discount_max")[1]
        learned = max(discounts, default=None) if cell.config.question_discount is None else None
        run = {"world": cell.setting.world, "setting": cell.setting.name, "seed": cell.seed}
        spent = {"processor": " + ".join(names), "code": origin.code or "", "core_seconds": share}
        found = {"largest_discount": learned, "steps": steps, "returns": returns}
        write_bytes(cell.mark, f"{json.dumps(run | spent | found)}\n".encode())


def train_reference(config: TrainConfig, path: Path) -> None:
    """Train Stable-Baselines3's A2C with its defaults, recorded as by `dgvf train`; a killed run restarts.

    Args:
        config: environment, steps and seed; the agent's settings do not apply.
        path: the run folder.
    """
    folder = RunFolder(path)
    folder.check_links()
    path.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(config.threads)
    with FileLock(folder.lock_file, timeout=0):
        folder.write_config(config)
        record_origin(folder, config.device, 0)
        model = A2C(config.policy, training_environments(config), seed=config.seed, device=config.device)
        model.set_logger(Logger(str(path), [ProgressLog(folder.progress_file)]))
        batch = model.n_steps * model.n_envs
        model.learn(config.steps, log_interval=max(1, round(config.log_every / batch)))
        model.logger.close()
        model.save(path / "model.zip")


def cell_process(cells: Sequence[Cell]) -> None:
    """`run_cells` as the entry of a new process, whose output goes to the log file of the first cell."""
    os.setsid()  # the sweep handles an interrupt from the keyboard
    os.environ.update(cells[0].setting.variables)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    cells[0].folder.parent.mkdir(parents=True, exist_ok=True)
    with cells[0].beside("log").open("ab", buffering=0) as file:  # of child processes, too
        for number, stream in enumerate((sys.stdout, sys.stderr), 1):
            stream.flush()
            os.dup2(file.fileno(), number)
    run_cells(cells)


def _die_with_parent() -> None:
    """End with a killed sweep: a process that survived it would write into folders that the next sweep uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


# --- parallel processes -----------------------------------------------------------------------------------------------

POLL_SECONDS = 1.0
"""Interval between updates of the table."""
STOP_SECONDS = 30.0
"""Time for processes to write a checkpoint when the sweep is interrupted."""


@final
class SweepView(Progress):
    """Draws the progress of the cells that train, and prints a line for every cell that ends; a context manager."""

    def __init__(self, console: Console) -> None:
        self._cells: dict[Cell, TaskID] = {}
        super().__init__(
            TextColumn("{task.description}", table_column=Column()),  # this one folds in narrow terminals
            *(BarColumn(10), TaskProgressColumn(), TextColumn("return {task.fields[value]}"), TimeRemainingColumn()),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=math.inf,  # from the first new row on, since compilation comes before
            get_time=lambda: time.monotonic(),
        )

    def begin(self, cells: Sequence[Cell], waiting: Sequence[Cell]) -> None:
        """A sweep starts; the cells that are not waiting are finished."""
        finished = len(cells) - len(waiting)
        self._all = self.add_task("all cells", total=len(cells), completed=finished, value="–")
        if finished:
            self.console.print(f"{finished} of {len(cells)} cells are finished already")

    def started(self, cell: Cell) -> None:
        """A cell's process has started."""
        self._cells[cell] = self.add_task(cell.name, total=cell.config.steps, value="–")
        if not self.console.is_terminal:  # no table is shown
            self.console.print(f"{cell.name} starts", markup=False, highlight=False, soft_wrap=True)

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell's process has ended; `failure` is the reason if it failed."""
        task = self.tasks[self.task_ids.index(self._cells.pop(cell))]
        self.remove_task(task.id)
        self.advance(self._all)
        whole = self.tasks[0]
        time_taken = timedelta(seconds=round(task.elapsed or 0))
        outcome = f"finished in {time_taken}" if failure is None else f"FAILED: {failure}"
        line = f"[{whole.completed}/{whole.total}] {cell.name} {outcome}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self, running: int) -> None:
        """The sweep was interrupted; running cells write a checkpoint."""
        self.console.print(f"stopping; {running} runs write a checkpoint (Ctrl-C again: they do not)", highlight=False)

    def refresh(self) -> None:
        """Redraw, if there is a terminal."""
        for cell, task in self._cells.items() if self.console.is_terminal else ():
            steps, value = progress(cell.folder)
            self.update(task, completed=steps, value="–" if value is None else f"{value:.2f}")
        super().refresh()


def run_sweep(
    cells: Sequence[Cell], jobs: int, view: SweepView, finished: Callable[[Sequence[Cell]], None] = lambda cells: None
) -> None:
    """Train all cells that are not finished.

    Args:
        cells: finished ones are skipped; those that share a folder are one run.
        jobs: parallel processes ≥ 1.
        view: shows progress.
        finished: called with the cells that a process has just finished.

    Raises:
        ValueError: a cell's folder holds a run of another configuration.
        KeyboardInterrupt: after all processes have written a checkpoint and stopped.
    """
    cells = list({cell.folder: cell for cell in cells}.values())
    unfinished = [cell for cell in cells if not cell.is_finished]
    view.begin(cells, unfinished)
    context, waiting = multiprocessing.get_context("forkserver"), groups_of(unfinished, jobs)
    # processes fork from one that has imported everything and run nothing
    context.set_forkserver_preload(["dgvf_agents.experiments.preloaded"])
    running: dict[tuple[Cell, ...], BaseProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                group = waiting.pop(0)
                running[group] = context.Process(target=cell_process, args=(group,))
                running[group].start()
                for cell in group:
                    view.started(cell)
            wait([process.sentinel for process in running.values()], POLL_SECONDS)
            for group in [group for group, process in running.items() if process.exitcode is not None]:
                process = running.pop(group)
                process.join()
                finished([cell for cell in group if cell.is_finished])
                for cell in group:
                    view.ended(cell, _failure(cell, process.exitcode, log_of=group[0]))
            view.refresh()
    except BaseException:
        view.stopping(sum(map(len, running)))
        _stop(list(running.values()))
        raise


def _failure(cell: Cell, code: int | None, log_of: Cell) -> str | None:
    """Why a cell did not finish: the last line of its output, or how it ended.

    Args:
        cell: the cell.
        code: of the process that trained it.
        log_of: the cell whose log file has the output of a process that failed as a whole.
    """
    if code == 0 and cell.is_finished:
        return None
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    log = (log_of if code else cell).beside("log")
    lines = log.read_text(errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), f"ended with status {code}")


def _stop(processes: Sequence[BaseProcess]) -> None:
    """Let each process write a checkpoint; kill those that take too long, and all at a second Ctrl-C. Files are written
    atomically.
    """
    try:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(cast(int, process.pid), signal.SIGINT)
        end = time.monotonic() + STOP_SECONDS
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # it has ended, or is not yet a group of its own
                os.killpg(cast(int, process.pid), signal.SIGKILL)  # with its compilers
            process.kill()
            process.join()


MAX_MEMBERS = 10
"""Of a population on the CPU. More hardly gain, and make all of them wait for the slowest part of a sweep."""
MAX_MEMBERS_ON_GPU = 32
"""Of one on a GPU, where members of the widest network take half a gigabyte each."""


def groups_of(cells: Sequence[Cell], jobs: int) -> list[tuple[Cell, ...]]:
    """The cells that one process trains at once, in the order of the first of each group.

    Args:
        cells: those to train.
        jobs: number of processes that share the work; on the CPU, no group is so large that one of them
            has nothing to do.
    """
    alike: dict[Any, list[Cell]] = defaultdict(list)
    for cell in cells:
        alike[_kind(cell)].append(cell)
    groups = [group for members in alike.values() for group in _divided(members, jobs)]
    return sorted(groups, key=lambda group: list(cells).index(group[0]))


def _kind(cell: Cell) -> Any:
    """Equal for cells that a population can train at once: their numbers may differ."""
    if not _gains(cell.config):
        return cell
    fields = {**dataclasses.asdict(cell.config), "seed": None, "questions_from": None, **cell.setting.variables}
    numbers = {name for name, one in hyperparameters().items() if one.kind == "number"}
    return repr({name: value is None if name in numbers else value for name, value in fields.items()})


def _gains(config: TrainConfig) -> bool:
    """Whether the run is faster in a population."""
    ours = config.env.startswith(("PuddleWorld", "CollectObjects")) and config.env_wrapper is None
    fast = config.policy in ("PaperMlpPolicy", "MlpPolicy") or _on_gpu(config)
    return ours and fast and config.compile is not False and config.task != REFERENCE and config.algorithm == "a2c"


def _on_gpu(config: TrainConfig) -> bool:
    return device_named(config.device).type == "cuda"


def _divided(members: Sequence[Cell], jobs: int) -> list[tuple[Cell, ...]]:
    """Groups of about equal size: functions are compiled for every size."""
    if _on_gpu(members[0].config):
        count = math.ceil(len(members) / MAX_MEMBERS_ON_GPU)
    else:
        count = min(len(members), math.ceil(len(members) / (MAX_MEMBERS * jobs)) * jobs)
    size = math.ceil(len(members) / count)
    return [tuple(members[start : start + size]) for start in range(0, len(members), size)]
