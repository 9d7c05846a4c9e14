"""The live table of a sweep: progress, speed, return and remaining time of every running cell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import final

from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from dgvf_agents.experiments.metrics import RunMetrics
from dgvf_agents.experiments.runs import Cell


@final
class SweepView:
    """Draws the table and prints a line for every cell that ends; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._running: dict[Cell, _Pace] = {}
        self._total = self._ended = 0
        self._steps_left = self._steps_gained = 0
        self._start = time.monotonic()

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
        self._steps_left = sum(cell.config.steps - _progress(cell)[0] for cell in waiting)
        self._steps_gained = 0
        self._start = time.monotonic()
        if self._ended:
            self._console.print(f"{self._ended} of {self._total} cells are finished already")

    def started(self, cell: Cell) -> None:
        """A cell's process has started."""
        self._running[cell] = _Pace(_progress(cell)[0])
        self.refresh()

    def ended(self, cell: Cell, failure: str | None) -> None:
        """A cell's process has ended; `failure` is the reason if it failed."""
        pace = self._running.pop(cell)
        self._ended += 1
        self._steps_left -= cell.config.steps - pace.first_steps
        self._steps_gained += (cell.config.steps if failure is None else _progress(cell)[0]) - pace.first_steps
        outcome = f"finished in {_duration(time.monotonic() - pace.start)}" if failure is None else f"FAILED: {failure}"
        line = f"[{self._ended}/{self._total}] {cell.name} {outcome}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self, running: int) -> None:
        """The sweep was interrupted; running cells write a checkpoint."""
        self._console.print(f"stopping; {running} runs write a checkpoint (Ctrl-C again: they do not)", highlight=False)

    def refresh(self) -> None:
        """Redraw the table, if there is a terminal."""
        if self._console.is_terminal:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(title_justify="left", box=None)
        for heading in ("cell", "progress", "", "steps/s", "return", "left"):
            justify: JustifyMethod = "left" if heading in ("cell", "progress") else "right"
            table.add_column(heading, justify=justify, no_wrap=True)
        remaining, gained = self._steps_left, self._steps_gained
        for cell, pace in self._running.items():
            steps, value = _progress(cell)
            pace.update(steps)
            total = cell.config.steps
            remaining, gained = remaining - (steps - pace.first_steps), gained + steps - pace.first_steps
            table.add_row(
                cell.name,
                ProgressBar(total, min(steps, total), width=16),
                f"{100 * min(steps, total) / total:.0f}%",
                "–" if pace.speed is None else f"{pace.speed:,.0f}",
                "–" if value is None else f"{value:.2f}",
                "–" if pace.speed is None else _duration(max(0, total - steps) / pace.speed),
            )
        elapsed = time.monotonic() - self._start
        left = _duration(elapsed * max(0, remaining) / gained) if gained > 0 else "–"
        table.title = f"{self._ended} of {self._total} cells, {_duration(elapsed)} so far, about {left} left"
        return table


@final
class _Pace:
    """Speed of a cell, measured from its first new row, since compilation comes before."""

    def __init__(self, first_steps: int) -> None:
        """
        Args:
            first_steps: environment steps when its process started.
        """
        self.first_steps = first_steps
        self.start = time.monotonic()
        self._seen: list[tuple[float, int]] = []

    def update(self, steps: int) -> None:
        """Record the environment steps so far."""
        if steps > (self._seen[-1][1] if self._seen else self.first_steps):
            self._seen = [*self._seen[:1], (time.monotonic(), steps)]

    @property
    def speed(self) -> float | None:
        """Environment steps per second; `None` until two rows were seen."""
        if len(self._seen) < 2:
            return None
        (first, few), (last, many) = self._seen
        return (many - few) / (last - first)


def _progress(cell: Cell) -> tuple[int, float | None]:
    """Steps so far and the latest return; 0 and `None` while the file is being replaced."""
    try:
        metrics = RunMetrics.read(cell.folder)
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None
    curves = [metrics.curves[m] for m in ("evaluation", "training") if m in metrics.curves]
    return metrics.total_steps, float(curves[0].returns[-1]) if curves else None


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
