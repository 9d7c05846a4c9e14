"""`dgvf reproduce`: an experiment from its settings to its picture, in four stages that each read the last one's files.

settings -> run folders -> result tables -> picture
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from rich.console import Console
from rich.table import Table

from dgvf_agents.experiments.adopt import adopt
from dgvf_agents.experiments.analysis import analyze, joined_provenance, provenance
from dgvf_agents.experiments.cell import Cell, Setting, cells_of
from dgvf_agents.experiments.cell_folder import CellState, state_of
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.figures import FIGURES
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.results import Results, SummaryRow, read_provenance
from dgvf_agents.experiments.scale import SCALES, Scale
from dgvf_agents.experiments.search import Search
from dgvf_agents.experiments.sweep import Failure, run_sweep
from dgvf_agents.experiments.sweep_view import SweepView


@final
@dataclass(frozen=True)
class Outcome:
    """How a reproduction ended."""

    failures: list[Failure]
    """Runs that failed this time."""
    missing: list[Cell]
    """Runs that are not finished."""
    results: Results | None
    """What was written; None where runs are missing and `partial` is not set."""


def reproduce(reproduction: Reproduction, console: Console | None = None) -> Outcome:
    """Train what is not finished yet, then write the tables and the picture.

    Raises:
        ValueError: a setting of the reproduction is out of range, a run's folder holds another configuration, or
            results to be extended hold one of these runs already, or runs of another configuration.
        FileNotFoundError: a folder to adopt runs from is not there.
    """
    console = console or Console()
    figure: Figure = Search(reproduction.search) if reproduction.figure == "search" else FIGURES[reproduction.figure]
    scale = SCALES[reproduction.scale]
    if reproduction.steps is not None:
        scale = dataclasses.replace(scale, steps=reproduction.steps)
    if reproduction.seeds is not None:
        scale = dataclasses.replace(scale, seeds=reproduction.seeds)
    chosen = reproduction.game_worlds or reproduction.tasks or reproduction.worlds or figure.worlds
    worlds = tuple(dict.fromkeys(chosen))

    first = [setting for world in worlds for setting in figure.settings(world)]
    cells, failures = _stage(reproduction, figure, scale, first, console)
    then = [setting for world in worlds for setting in _follow_up(figure, world, cells)]
    if then:
        more, more_failures = _stage(reproduction, figure, scale, then, console)
        cells, failures = cells + more, failures + more_failures

    finished = [cell for cell in cells if _is_finished(cell)]
    missing = [cell for cell in cells if not _is_finished(cell)]
    if missing:
        text = f"{len(missing)} of {len(cells)} runs are not finished, the first is {missing[0].name}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if not finished or (missing and not reproduction.partial):
        return Outcome(failures, missing, None)
    made = provenance(reproduction.command, finished, missing)
    earlier = None
    if reproduction.extend and (reproduction.results_folder / "cells.csv").exists():
        earlier = Results.read(reproduction.results_folder)
        made = joined_provenance(read_provenance(reproduction.results_folder), made)
    results = analyze(figure, finished, earlier)
    results.write(reproduction.results_folder, made)
    draw(reproduction.figure, reproduction.results_folder)
    _print_summary(results, console)
    console.print(f"Tables and picture lie in [bold]{reproduction.results_folder}[/bold].")
    return Outcome(failures, missing, results)


def draw(figure: str, results: Path) -> Path:
    """Draw an experiment's picture from its tables alone; returns its path, beside the tables.

    Raises:
        FileNotFoundError: a table is missing.
    """
    picture = results / f"{figure}.png"
    FIGURES[figure].draw(Results.read(results), picture)
    return picture


def _stage(
    reproduction: Reproduction, figure: Figure, scale: Scale, settings: Sequence[Setting], console: Console
) -> tuple[list[Cell], list[Failure]]:
    seeds = scale.seeds or figure.seeds
    cells = cells_of(settings, scale, seeds, reproduction.runs_folder, reproduction.first_seed)
    for cell in adopt(cells, reproduction.adopt):
        console.print(f"adopted {cell.name}", markup=False, highlight=False)
    if not reproduction.run:
        return cells, []
    with SweepView(console) as view:
        return cells, run_sweep(cells, reproduction.jobs, reproduction.command, view)


def _follow_up(figure: Figure, world: str, cells: Sequence[Cell]) -> list[Setting]:
    """Nothing on a world whose first cells are not all finished: what is chosen would depend on when it is asked."""
    ours = [cell for cell in cells if cell.setting.world == world]
    if not all(_is_finished(cell) for cell in ours):
        return []
    return figure.follow_up(world, analyze(figure, ours).cells)


def _is_finished(cell: Cell) -> bool:
    return state_of(cell.folder, cell.config) is CellState.FINISHED


def _print_summary(results: Results, console: Console) -> None:
    average = {(row.world, row.setting): row for row in results.summary if row.quantity == "average"}
    for world in dict.fromkeys(row.world for row in results.summary):
        console.print(f"\n{world}: mean return over seeds, with 95 % intervals", highlight=False)
        table = Table(box=None)
        for heading in ("setting", "seeds", "final", "average"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
        for row in results.summary:
            if (row.world, row.quantity) == (world, "final"):
                both = (_with_interval(r) for r in (row, average[world, row.setting]))
                table.add_row(row.setting, str(row.seeds), *both)
        console.print(table)
    for choice in results.choices:
        console.print(f"chosen on {choice.world}: {choice.setting}", markup=False, highlight=False)


def _with_interval(row: SummaryRow) -> str:
    interval = "" if row.mean_low is None else f" ({row.mean_low:.2f} … {row.mean_high:.2f})"
    return f"{row.mean:.2f}{interval}"
