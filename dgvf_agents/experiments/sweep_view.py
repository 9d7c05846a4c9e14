"""The live table of a sweep: progress, speed, return and remaining time of every running cell."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Literal, final

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from dgvf_agents.experiments.runs import Cell, progress


@final
class SweepView:
    """Draws the table and prints a line for every cell that ends; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._running: dict[Cell, Task] = {}
        self._total = self._ended = 0
        self._steps_left = self._steps_gained = 0
        self._start = time.monotonic()
        # Speed counts from a cell's first new row, since compilation comes before.
        self._progress = Progress(
            TextColumn("{task.description}", table_column=_column("cell", "left")),
            BarColumn(16, table_column=_column("progress", "left")),
            TaskProgressColumn("{task.percentage:.0f}%", table_column=_column("", "right")),
            TextColumn("{task.fields[speed]}", table_column=_column("steps/s", "right")),
            TextColumn("{task.fields[value]}", table_column=_column("return", "right")),
            TimeRemainingColumn(table_column=_column("left", "right")),
            console=console,
            speed_estimate_period=math.inf,
            get_time=lambda: time.monotonic(),
        )

    def __enter__(self) -> SweepView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, cells: Sequence[Cell], waiting: Sequence[Cell]) -> None:
        """A sweep starts; the cells that are not waiting are finished."""
        self._total, self._ended = len(cells), len(cells) - len(waiting)
        self._steps_left = sum(cell.config.steps - progress(cell.folder)[0] for cell in waiting)
        self._steps_gained = 0
        self._start = time.monotonic()
        if self._ended:
            self._console.print(f"{self._ended} of {self._total} cells are finished already")

    def started(self, cell: Cell) -> None:
        """A cell's process has started."""
        first = progress(cell.folder)[0]
        self._progress.add_task(cell.name, total=cell.config.steps, completed=first, first=first, speed="–", value="–")
        self._running[cell] = self._progress.tasks[-1]
        self.refresh()

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell's process has ended; `failure` is the reason if it failed."""
        task = self._running.pop(cell)
        self._progress.remove_task(task.id)
        self._ended += 1
        self._steps_left -= cell.config.steps - task.fields["first"]
        reached = cell.config.steps if failure is None else progress(cell.folder)[0]
        self._steps_gained += reached - task.fields["first"]
        outcome = f"finished in {_duration(task.elapsed or 0.0)}" if failure is None else f"FAILED: {failure}"
        line = f"[{self._ended}/{self._total}] {cell.name} {outcome}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self, running: int) -> None:
        """The sweep was interrupted; running cells write a checkpoint."""
        self._console.print(f"stopping; {running} runs write a checkpoint (Ctrl-C again: they do not)", highlight=False)

    def refresh(self) -> None:
        """Redraw the table, if there is a terminal."""
        if not self._console.is_terminal:
            return
        gained = 0
        for cell, task in self._running.items():
            steps, value = progress(cell.folder)
            self._progress.update(task.id, completed=max(steps, task.completed))
            speed = "–" if task.speed is None else f"{task.speed:,.0f}"
            self._progress.update(task.id, speed=speed, value="–" if value is None else f"{value:.2f}")
            gained += steps - task.fields["first"]
        elapsed, total_gained = time.monotonic() - self._start, self._steps_gained + gained
        left = _duration(elapsed * max(0, self._steps_left - gained) / total_gained) if total_gained > 0 else "–"
        table = self._progress.make_tasks_table(self._progress.tasks)
        table.title = f"{self._ended} of {self._total} cells, {_duration(elapsed)} so far, about {left} left"
        table.title_justify, table.show_header = "left", True
        self._live.update(table, refresh=True)


def _column(heading: str, justify: Literal["left", "right"]) -> Column:
    return Column(heading, justify=justify, no_wrap=True)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
