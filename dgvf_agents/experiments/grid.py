"""`dgvf sweep`: one method with every combination of given settings, for several seeds."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import pandas as pd
import tyro
from rich.console import Console

from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.experiments.catalog import best_setting
from dgvf_agents.experiments.figures import draw_curves, tables_of
from dgvf_agents.experiments.reproduce import print_summary
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.settings import SCALES, ScaleName, Setting, setting
from dgvf_agents.experiments.sweep import SweepView, processes_on, run_sweep
from dgvf_agents.options import Method, World
from dgvf_agents.storage.files import replacing
from dgvf_agents.train.config import TrainConfig

MAX_CURVES = 8
"""Settings in the picture: the best ones."""
_OTHERS = ("env", "seed", "steps", "task", "atari", "device")
"""Fields of `TrainConfig` that other options decide."""


@final
@dataclass(frozen=True)
class Grid:
    """Train a method with every combination of settings, or what is left of it; write a table and a picture."""

    world: Annotated[World, tyro.conf.Positional]
    """The world."""
    method: Annotated[Method, tyro.conf.Positional]
    """The method, whose preset is varied."""
    vary: tuple[str, ...] = ()
    """Fields of the configuration and their values, as learning-rate=1e-4,3e-4 ent-coef=0.01,0.03; all combinations
    are run."""
    seeds: int = 3
    """Seeds per combination."""
    first_seed: int = 0
    """The lowest seed."""
    scale: ScaleName = "full"
    """`full` as in the preset, `small` a quarter of the steps, `demo` minutes, `tiny` a smoke test."""
    steps: int | None = None
    """Environment steps of every run; the preset's and the scale's if `None`."""
    jobs: int | None = None
    """Parallel processes, one thread each; if `None`, as many as there are cores, and one on a GPU. Runs that are
    faster at once share one."""
    device: str = "cpu"
    """`cpu`, `cuda`, or `auto` for CUDA if available. On a GPU, all networks train in populations."""
    out: Path = Path("runs/sweep")
    """Folder of the runs, and of table and picture."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("seeds", "jobs", "steps")}
        check_counts(**{name: value for name, value in given.items() if value is not None})
        if self.first_seed < 0:
            raise ValueError(f"first_seed must be >= 0, got {self.first_seed!r}")
        check_device_name(self.device)
        names = [name for name, _ in map(varied_field, self.vary)]
        if len(set(names)) < len(names):
            raise ValueError(f"vary must name every field once, got {' '.join(self.vary)}")

    def settings(self) -> list[Setting]:
        """All combinations.

        Raises:
            ValueError: a value is out of the range of its field.
        """
        fields = [[(name, value) for value in values] for name, values in map(varied_field, self.vary)]
        return [setting(self.world, self.method, **dict(chosen)) for chosen in itertools.product(*fields)]

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        return processes_on(self.device, self.jobs)

    @property
    def results(self) -> Path:
        """Folder of table and picture, another one for another world, method or choice of fields."""
        names = [name for name, _ in map(varied_field, self.vary)]
        return self.out / "results" / "-".join([self.world, self.method, *names])


def varied_field(given: str) -> tuple[str, list[Any]]:
    """A field of `TrainConfig` and its values, from `FIELD=VALUE,VALUE`.

    Raises:
        ValueError: there is no such field or no value, or another option decides the field.
    """
    name, _, values = given.partition("=")
    name, allowed = name.replace("-", "_"), [field.name for field in dataclasses.fields(TrainConfig)]
    if name not in allowed or name in _OTHERS:
        known = ", ".join(other for other in allowed if other not in _OTHERS)
        raise ValueError(f"vary must name fields among {known}, got {given!r}")
    if not values or not all(values.split(",")):
        raise ValueError(f"vary must give values, as {name}=VALUE,VALUE, got {given!r}")
    found = [_value(text) for text in values.split(",")]
    if any(value in found[:i] for i, value in enumerate(found)):
        raise ValueError(f"vary must give every value once, got {given!r}")
    return name, found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


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
