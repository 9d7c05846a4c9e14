"""Cells in parallel processes, those that fit into a population several in one, and the display of their progress.

A process that fails or is killed does not affect the others. (The pools of `concurrent.futures` and joblib break as a
whole when the system kills one worker.)

On the CPU a population is faster than separate runs where Python and the calls of compiled functions take a good part
of an update: in our own worlds with small networks. With wide networks and convolutions, separate runs are as fast. On
a GPU a population is faster with both worlds' networks, and processes only compete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dgvf_agents.execution.devices import device_named
from dgvf_agents.experiments.runs import REFERENCE, Cell, cell_process, progress
from dgvf_agents.hyperparameters import record
from dgvf_agents.train.config import TrainConfig

POLL_SECONDS = 1.0
"""Interval between updates of the table."""
STOP_SECONDS = 30.0
"""Time for processes to write a checkpoint when the sweep is interrupted."""

_PRELOADED = "dgvf_agents.experiments.preloaded"


@final
class SweepView:
    """Draws the progress of all cells that train, and prints a line for every cell that ends; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[Cell, TaskID] = {}
        # Speed counts from a cell's first new row, since compilation comes before.
        self._progress = Progress(
            *(TextColumn("{task.description}"), BarColumn(16), TaskProgressColumn()),
            *(TextColumn("{task.fields[speed]} steps/s"), TextColumn("return {task.fields[value]}")),
            *(TimeRemainingColumn(), TextColumn("left")),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=math.inf,
            get_time=lambda: time.monotonic(),
        )

    def __enter__(self) -> SweepView:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, cells: Sequence[Cell], waiting: Sequence[Cell]) -> None:
        """A sweep starts; the cells that are not waiting are finished."""
        self._total, self._ended = len(cells), len(cells) - len(waiting)
        done = {cell: progress(cell.folder)[0] for cell in waiting}
        shown: dict[str, Any] = {"speed": "–", "value": "–"}
        total = sum(cell.config.steps for cell in waiting)
        self._all = self._progress.add_task("all", total=total, completed=sum(done.values()), **shown)
        for cell, steps in done.items():
            shown |= {"total": cell.config.steps, "completed": steps, "start": False, "visible": False}
            self._tasks[cell] = self._progress.add_task(cell.name, **shown)
        if self._ended:
            self._console.print(f"{self._ended} of {self._total} cells are finished already")

    def started(self, cell: Cell) -> None:
        """A cell's process has started."""
        self._progress.start_task(self._tasks[cell])
        self._progress.update(self._tasks[cell], visible=True)
        if not self._console.is_terminal:  # no table is shown
            self._console.print(f"{cell.name} starts", markup=False, highlight=False, soft_wrap=True)
        self.refresh()

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell's process has ended; `failure` is the reason if it failed."""
        task = self._progress.tasks[self._tasks[cell]]
        self._progress.update(task.id, completed=cell.config.steps, visible=False)
        self._ended += 1
        outcome = (
            f"finished in {timedelta(seconds=round(task.elapsed or 0))}" if failure is None else f"FAILED: {failure}"
        )
        line = f"[{self._ended}/{self._total}] {cell.name} {outcome}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self, running: int) -> None:
        """The sweep was interrupted; running cells write a checkpoint."""
        self._console.print(f"stopping; {running} runs write a checkpoint (Ctrl-C again: they do not)", highlight=False)

    def refresh(self) -> None:
        """Redraw, if there is a terminal."""
        if not self._console.is_terminal:
            return
        tasks = {cell: self._progress.tasks[task] for cell, task in self._tasks.items()}
        for cell, task in tasks.items():
            if task.visible:
                steps, value = progress(cell.folder)
                self._show(task.id, steps, "–" if value is None else f"{value:.2f}")
        self._show(self._all, sum(int(task.completed) for task in tasks.values()), "–")
        self._progress.update(self._all, description=f"{self._ended} of {self._total} cells")
        self._progress.refresh()

    def _show(self, task: TaskID, steps: int, value: str) -> None:
        self._progress.update(task, completed=steps, value=value)
        speed = self._progress.tasks[task].speed
        self._progress.update(task, speed="–" if speed is None else f"{speed:,.0f}")


def run_sweep(
    cells: Sequence[Cell],
    jobs: int,
    view: SweepView,
    finished: Callable[[Sequence[Cell]], None] = lambda cells: None,
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
    context.set_forkserver_preload([_PRELOADED])  # processes fork from one that has imported everything and run nothing
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
            assert process.pid is not None
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(process.pid, signal.SIGINT)
        end = time.monotonic() + STOP_SECONDS
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        for process in processes:
            assert process.pid is not None
            try:
                os.killpg(process.pid, signal.SIGKILL)  # with its compilers
            except ProcessLookupError:  # it has ended, or is not yet a group of its own
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
    fields, described = dataclasses.asdict(cell.config), record()
    numbers = [name for name, value in fields.items() if name in described and described[name].kind == "number"]
    same = {name: fields[name] is None if name in numbers else fields[name] for name in fields}
    return repr({name: value for name, value in same.items() if name not in ("seed", "questions_from")})


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
