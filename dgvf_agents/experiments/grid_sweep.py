"""`dgvf sweep`: one method with every combination of given settings, for several seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.figures import draw_curves, restricted
from dgvf_agents.experiments.grid import Grid
from dgvf_agents.experiments.provenance import provenance
from dgvf_agents.experiments.reproduce import print_summary
from dgvf_agents.experiments.runs import Cell, cells_of
from dgvf_agents.experiments.search import best_setting
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.experiments.tables import Results

MAX_CURVES = 8
"""Settings in the picture: the best ones."""


def sweep(grid: Grid, console: Console | None = None) -> list[Cell]:
    """Train unfinished runs; write the table and the picture when all are finished.

    Returns:
        The runs that are still unfinished.

    Raises:
        ValueError: a setting is out of range, or a run's folder holds another configuration.
        KeyboardInterrupt: after all runs have written a checkpoint.
    """
    console = console or Console()
    settings = grid.settings()
    scale = SCALES[grid.scale]
    if grid.steps is not None:
        scale = dataclasses.replace(scale, steps=grid.steps)
    cells = cells_of(settings, scale, grid.seeds, grid.out, grid.first_seed, device=grid.device)
    with SweepView(console) as view:
        run_sweep(cells, grid.processes, grid.command, view)
    missing = [cell for cell in cells if not cell.is_finished]
    if missing:
        text = f"{len(missing)} of {len(cells)} runs are not finished, the first is {missing[0].name}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return missing
    experiment = Experiment("sweep", "", lambda world: settings, lambda results, path: None, worlds=(grid.world,))
    results = analyze(experiment, cells)
    folder = grid.results
    results.write(folder, provenance(grid.command, cells, []))
    _draw(results, folder / "sweep.png", f"{grid.method} on {grid.world}")
    print_summary(results, console)
    console.print(f"best: {best_setting(results.cells).setting}", markup=False, highlight=False)
    console.print(f"Tables and picture are in [bold]{escape(str(folder))}[/bold].")
    return []


def _draw(results: Results, path: Path, title: str) -> None:
    """Learning curves of the best settings."""
    final = results.cells.groupby("setting", sort=False)["final_return"].mean()
    best = list(final.sort_values(ascending=False, kind="stable").index[:MAX_CURVES])
    several = len(final) > MAX_CURVES
    words = f"{title}: the best {MAX_CURVES} of {len(final)} settings" if several else title
    draw_curves(restricted(results, best), path, words)
