"""`dgvf sweep`: one method with every combination of given settings, for several seeds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from rich.console import Console

from dgvf_agents.experiments.figures import draw_curves, tables_of
from dgvf_agents.experiments.grid import Grid
from dgvf_agents.experiments.reproduce import print_summary
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.search import best_setting
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.storage.files import replacing

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
    seeds = range(grid.first_seed, grid.first_seed + grid.seeds)
    cells = [Cell.of(one, seed, scale, grid.out, grid.device) for seed in seeds for one in settings]
    with SweepView(console) as view:
        run_sweep(cells, grid.processes, view)
    missing = [cell for cell in cells if not cell.is_finished]
    if missing:
        text = f"{len(missing)} of {len(cells)} runs are not finished, the first is {missing[0].name}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return missing
    records = pd.DataFrame([vars(cell.record()) for cell in cells])
    records[["steps", "returns"]] = records[["steps", "returns"]].map(np.array)
    table = tables_of(settings, records)
    folder = grid.results
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "runs.csv") as unfinished:
        table.drop(columns="curve").to_csv(unfinished, index=False, lineterminator="\n")
    means = table.groupby("label", sort=False)[["final", "average"]].mean()
    best = means["final"].sort_values(ascending=False, kind="stable").index[:MAX_CURVES]
    several = f": the best {MAX_CURVES} of {len(means)} settings" if len(means) > MAX_CURVES else ""
    draw_curves(table[table["label"].isin(best)], folder / "sweep.png", f"{grid.method}{several}")
    print_summary(table, console)
    console.print(f"best: {best_setting(means)}", markup=False, highlight=False)
    console.print(f"Table and picture are in {folder}.", markup=False, highlight=False, soft_wrap=True)
    return []
