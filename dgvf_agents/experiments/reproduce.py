"""`dgvf reproduce`: trains what an experiment needs and has no record of, adds the records, and draws the figure.

settings -> run folders -> records -> figure and verdicts
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from dgvf_agents.experiments.catalog import EXPERIMENTS, Experiment
from dgvf_agents.experiments.figures import draw_experiment, tables_of
from dgvf_agents.experiments.records import add_records, merge_records, read_configs, read_records
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import Cell, setting_fields
from dgvf_agents.experiments.search import TRIAL, Wanted
from dgvf_agents.experiments.settings import SCALES, Scale
from dgvf_agents.experiments.statistics import AGGREGATES, estimate
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.experiments.worlds import reference_of

SMOKE_TEST_STEPS = 10_000
"""Runs with fewer environment steps learn nothing: they only show that everything runs."""


def reproduce(reproduction: Reproduction, console: Console | None = None) -> list[Wanted]:
    """Train the runs without a record, add the records of finished ones, print a summary and draw the figure.

    A search adds runs when its trials are finished, so training goes on until nothing more is wanted.

    Returns:
        The runs that are still without a record.

    Raises:
        ValueError: an option is out of range, or a record or a run folder has another configuration.
    """
    console = console or Console()
    experiment, store = EXPERIMENTS[reproduction.experiment], reproduction.records_folder
    for other in reproduction.merge:
        merge_records(store, other)
    values = {name: getattr(reproduction, name) for name in ("steps", "seeds", "actors", "address")}
    given = {name: value for name, value in values.items() if value is not None}
    scale = dataclasses.replace(SCALES[reproduction.scale], **given)
    worlds = _worlds(reproduction, experiment)
    attempted: set[Wanted] = set()
    while True:
        records = read_records(store)
        needed = [one for world in worlds for one in experiment.wanted(world, records, scale.seeds)]
        wanted = _selected(reproduction, needed)
        _check_records(store, wanted, scale)
        missing = _unrecorded(wanted, records)
        cells = {one: _cell(reproduction, one, scale) for one in missing}
        finished = [cell for cell in cells.values() if cell.is_finished]
        collect(store, finished)
        left = [one for one, cell in cells.items() if not (cell.is_finished or one in attempted)]
        if not (finished or (left and reproduction.run)):
            break
        attempted.update(left)
        sources = [Wanted(one.setting.source, one.seed) for one in left if one.setting.source is not None]
        for part in (dict.fromkeys(sources), left):
            if reproduction.run and part:
                _train(reproduction, [_cell(reproduction, one, scale) for one in part], store, console)
    if missing:
        text = f"{len(missing)} of {len(wanted)} runs have no record, the first is {missing[0].setting.folder_name}"
        console.print(f"{text} seed {missing[0].seed}", markup=False, highlight=False, soft_wrap=True)
    settings = [one.setting for one in wanted if one.setting.label != TRIAL]
    if len(table := tables_of(settings, records)):
        print_summary(table, console)
        picture = draw(reproduction.experiment, store, worlds)
        console.print(f"The picture is {picture}.", markup=False, highlight=False, soft_wrap=True)
    return missing


def draw(name: str, store: Path, worlds: Sequence[str] = ()) -> Path:
    """Draw an experiment's figure from records alone; returns its path, beside the records.

    Args:
        name: of the experiment.
        store: folder of the records.
        worlds: to draw; the experiment's worlds that have records if empty.

    Raises:
        ValueError: there are no records of the experiment.
    """
    experiment, records, picture = EXPERIMENTS[name], read_records(store), store / f"{name}.png"
    usual = experiment.worlds or [world for world in records["world"].unique() if world.startswith("atari/")]
    table = tables_of([one for world in worlds or usual for one in experiment.compared(world, records)], records)
    if table.empty:
        raise ValueError(f"results must be a folder with records of {name}, got {store}")
    draw_experiment(experiment, table, picture)
    return picture


def collect(store: Path, cells: Sequence[Cell]) -> None:
    """Add the records of finished runs."""
    configs = {cell.setting.folder_name: setting_fields(cell.config) for cell in cells}
    add_records(store, [cell.record() for cell in cells], configs)


def print_summary(table: pd.DataFrame, console: Console) -> None:
    """Print the returns of every setting, then aggregates over worlds with normalized returns; see `tables_of`."""
    runs = table.groupby(["world", "label"], sort=False)
    columns = {"seeds": ("seed", "size"), "solved": ("solved", "sum"), "final": ("final", "mean")}
    shown = runs.agg(**columns, average=("average", "mean"), known=("solved", "count")).reset_index()
    shown["solved"] = [f"{row.solved:.0f}" if row.known else "" for row in shown.itertuples()]
    print_table(shown.drop(columns="known"), console)
    normalized = table[[reference_of(world).random is not None for world in table["world"]]]
    if normalized["world"].nunique() > 1:
        rows = []
        for label, of in normalized.groupby("label", sort=False):
            games = [
                np.array([reference_of(str(world)).normalized(value) for value in seeds])
                for world, seeds in of.groupby("world", sort=False)["final"]
            ]
            rows.append({"normalized": label, **{name: str(estimate(f, games)) for name, f in AGGREGATES.items()}})
        print_table(pd.DataFrame(rows), console)
    if (table["steps"] < SMOKE_TEST_STEPS).all():
        console.print("This was a smoke test: everything runs, but nothing is learned in so few steps.")


def print_table(table: pd.DataFrame, console: Console) -> None:
    """Print a table, however wide the terminal is."""
    text = table.to_string(index=False, float_format=lambda value: f"{value:.2f}")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _worlds(reproduction: Reproduction, experiment: Experiment) -> list[str]:
    """The ones that the command names, or the experiment's; at the scales for a first look, the smallest one."""
    quick = reproduction.scale == "demo" and reproduction.experiment != "own-tasks"
    usual = ("collect-objects-small",) if quick else experiment.worlds
    return list(dict.fromkeys(reproduction.game_worlds or reproduction.worlds or usual))


def _selected(reproduction: Reproduction, wanted: Sequence[Wanted]) -> list[Wanted]:
    """The runs of settings that the command names, or all."""
    names = reproduction.settings
    known = {one.setting.label: one.setting.label.split(":")[0] for one in wanted}
    if unknown := [name for name in names if name not in {*known, *known.values()}]:
        raise ValueError(f"settings must be among {', '.join(known)}, got {', '.join(unknown)}")
    return [one for one in wanted if not names or {one.setting.label, known[one.setting.label]} & set(names)]


def _unrecorded(wanted: Sequence[Wanted], records: pd.DataFrame) -> list[Wanted]:
    """The runs without a record, each once; settings with other labels may be the same run."""
    known = {(f"{row.world}/{row.setting}", row.seed) for row in records.itertuples()}
    runs = {(one.setting.folder_name, one.seed): one for one in reversed(wanted)}
    return [one for key, one in reversed(runs.items()) if key not in known]


def _cell(reproduction: Reproduction, wanted: Wanted, scale: Scale) -> Cell:
    return Cell.of(*wanted, scale, reproduction.runs_folder, reproduction.device)


def _train(reproduction: Reproduction, cells: Sequence[Cell], store: Path, console: Console) -> None:
    with SweepView(console) as view:
        run_sweep(cells, reproduction.processes, view, lambda finished: collect(store, finished))


def _check_records(store: Path, wanted: Sequence[Wanted], scale: Scale) -> None:
    """Refuse settings that have another configuration in the records; fields that only one of them has do not count."""
    known = {world: read_configs(store, world) for world in {one.setting.world for one in wanted}}
    for setting in {one.setting.folder_name: one.setting for one in wanted}.values():
        if (recorded := known[setting.world].get(setting.name)) is None:
            continue
        fields = setting_fields(setting.config(scale, 0))
        differing = [n for n in fields if n in recorded and fields[n] != recorded[n]]
        if differing:
            told = ", ".join(f"{n} ({recorded[n]!r}, not {fields[n]!r})" for n in differing)
            raise ValueError(
                f"{setting.folder_name} must have the configuration of its records in {store}, got another {told}"
            )
