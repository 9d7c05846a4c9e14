"""`dgvf reproduce`: an experiment from its settings to its picture, in four stages that each read the last one's files.

settings -> run folders -> result tables -> picture
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dgvf_agents.experiments.adopt import adopt
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.evidence import interval, returns_of
from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.figures import is_smoke_test
from dgvf_agents.experiments.protocols import edge_warnings
from dgvf_agents.experiments.provenance import check_extension, joined_provenance, provenance
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import Cell, cells_of
from dgvf_agents.experiments.settings import SCALES, Setting
from dgvf_agents.experiments.statistics import SEEDS_FOR_INTERVALS, Estimate
from dgvf_agents.experiments.studies import STUDIES, Study, Wanted
from dgvf_agents.experiments.study_runs import reproduce_study
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.experiments.tables import Results, only, read_provenance, where

TRIAL_SEEDS = 3
"""Seeds of every trial, unless the scale or the options have others."""
SEEDS_AFTER_TRIALS = 100
"""Added to the seeds of what trials have led to choose: trials have other seeds."""


def reproduce(reproduction: Reproduction, console: Console | None = None) -> list[Any]:
    """Train unfinished runs, then write the tables and the picture, unless runs are missing and `partial` is not set.

    Returns:
        The runs that are still unfinished.

    Raises:
        ValueError: a setting of the reproduction is out of range, a run's folder holds another configuration, or
            results to be extended hold one of these runs already, or runs of another configuration.
        FileNotFoundError: a folder to adopt runs from does not exist.
    """
    console = console or Console()
    if (study := STUDIES.get(reproduction.experiment)) is not None:
        return _reproduce_figure(reproduction, study, console)
    return _reproduce_experiment(reproduction, console)


def _reproduce_figure(reproduction: Reproduction, study: Study, console: Console) -> list[Wanted]:
    """The runs of a figure that have no record yet."""
    worlds = [world for world in study.worlds if world in (reproduction.worlds or study.worlds)]
    missing = reproduce_study(
        study,
        worlds,
        reproduction.records_folder,
        reproduction.runs_folder,
        scale=SCALES[reproduction.scale],
        device=reproduction.device,
        jobs=reproduction.processes,
        command=reproduction.command,
        run=reproduction.run,
        merged=reproduction.merge,
        console=console,
    )
    text = f"{len(missing)} runs have no record" if missing else "all runs have their records"
    console.print(f"{text}; records are in {reproduction.records_folder}", markup=False, soft_wrap=True)
    return missing


def _reproduce_experiment(reproduction: Reproduction, console: Console) -> list[Cell]:
    """The runs of one experiment that are still unfinished after it ran."""
    experiment = EXPERIMENTS[reproduction.experiment]
    if experiment.grid is not None:
        experiment = dataclasses.replace(experiment, grid=reproduction.search)
    worlds = _worlds(reproduction, experiment)
    if experiment.first is not None:
        before = [s for world in worlds for s in experiment.first(world)]
        _train(reproduction, _cells(reproduction, experiment, before), console)
    settings = _wanted(reproduction, [s for world in worlds for s in experiment.settings(world)])
    cells, recorded = _first_stage(reproduction, experiment, settings, console)
    if experiment.grid is not None:
        found = analyze(experiment, [cell for cell in cells if cell.is_finished], recorded)
        if then := [s for world in worlds for s in _follow_up(experiment, world, cells, found)]:
            _warn_of_edges(experiment, found, worlds, console)
            cells += _train(reproduction, _cells(reproduction, experiment, then), console)

    finished = [cell for cell in cells if cell.is_finished]
    missing = [cell for cell in cells if cell not in finished]
    if missing:
        text = f"{len(missing)} of {len(cells)} runs are not finished, the first is {missing[0].name}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if finished and (reproduction.partial or not missing):
        results = _write(reproduction, experiment, finished, missing)
        print_summary(results, console)
        _warn_of_edges(experiment, results, worlds, console)
        console.print(f"Tables and picture are in [bold]{escape(str(reproduction.results_folder))}[/bold].")
    return missing


def _worlds(reproduction: Reproduction, experiment: Experiment) -> list[str]:
    """Those that the command names, or those of the experiment at its scale."""
    named = reproduction.game_worlds or (*(reproduction.worlds or ()), *reproduction.tasks)
    return list(dict.fromkeys(named or SCALES[reproduction.scale].worlds_of(experiment.worlds)))


def draw(experiment: str, results: Path) -> Path:
    """Draw an experiment's picture from its tables alone; returns its path, beside the tables.

    Raises:
        FileNotFoundError: a table is missing.
        ValueError: the tables are of another experiment, which has nothing to draw for this one.
    """
    picture = results / f"{experiment}.png"
    try:
        EXPERIMENTS[experiment].draw(Results.read(results), picture)
    except KeyError as error:
        raise ValueError(f"results must be the tables of {experiment}, got {results} without {error}") from error
    return picture


def _wanted(reproduction: Reproduction, settings: Sequence[Setting]) -> list[Setting]:
    """The settings that the reproduction names, or all."""
    labels = dict.fromkeys(setting.label for setting in settings)
    if unknown := [label for label in reproduction.settings if label not in labels]:
        raise ValueError(f"settings must be among {', '.join(labels)}, got {', '.join(unknown)}")
    return [setting for setting in settings if setting.label in (reproduction.settings or labels)]


def _first_stage(
    reproduction: Reproduction, experiment: Experiment, settings: Sequence[Setting], console: Console
) -> tuple[list[Cell], Results]:
    """The runs that were trained, and the rows of the trials that results to be extended hold, which are not run again.

    Raises:
        ValueError: they record trials of another configuration.
    """
    cells = _cells(reproduction, experiment, settings, trials=experiment.chooses_with_trials)
    if not (reproduction.has_earlier_results and experiment.chooses_with_trials):
        return _train(reproduction, cells, console), Results()
    table = Results.read(reproduction.results_folder).cells
    rows = {cell: where(table, world=cell.setting.world, setting=cell.setting.label, seed=cell.seed) for cell in cells}
    recorded = {cell: row for cell, row in rows.items() if len(row)}
    _check_extension(reproduction, recorded, added=False)
    trained = _train(reproduction, [cell for cell in cells if cell not in recorded], console)
    return trained, Results(pd.concat(recorded.values())) if recorded else Results()


def _train(reproduction: Reproduction, cells: list[Cell], console: Console) -> list[Cell]:
    """Adopt and train runs; returns them."""
    _check_extension(reproduction, cells)
    for cell in adopt(cells, reproduction.adopt):
        console.print(f"adopted {cell.name}", markup=False, highlight=False)
    if reproduction.run:
        with SweepView(console) as view:
            run_sweep(cells, reproduction.processes, reproduction.command, view)
    return cells


def _cells(
    reproduction: Reproduction, experiment: Experiment, settings: Sequence[Setting], trials: bool = False
) -> list[Cell]:
    """The runs of settings, at the scale of the reproduction; trials have their own seeds."""
    values = {name: getattr(reproduction, name) for name in ("steps", "seeds", "actors", "address")}
    given = {name: value for name, value in values.items() if value is not None}
    scale = dataclasses.replace(SCALES[reproduction.scale], **given)
    seeds, folder, first = _seeds(reproduction, experiment, trials)
    changes = {} if reproduction.device is None else {"device": reproduction.device}
    return cells_of(settings, scale, seeds, folder, first, **changes)


def _check_extension(reproduction: Reproduction, cells: Collection[Cell], added: bool = True) -> None:
    """Refuse to extend results by runs, before they are trained.

    Args:
        reproduction: the options.
        cells: the runs.
        added: whether the runs are to be added; otherwise the results have them.
    """
    if reproduction.has_earlier_results:
        earlier = read_provenance(reproduction.results_folder)
        names = [cell.name for cell in cells if added]
        check_extension(earlier, names, {cell.setting.folder_name: cell.config for cell in cells})


def _seeds(reproduction: Reproduction, experiment: Experiment, trials: bool) -> tuple[int, Path, int]:
    """Number of seeds, folder of the runs, and the first seed."""
    scale, folder = SCALES[reproduction.scale], reproduction.runs_folder
    if trials and experiment.grid is not None:
        return experiment.grid.trial_seeds or scale.seeds or TRIAL_SEEDS, folder, 0
    first = reproduction.first_seed + (SEEDS_AFTER_TRIALS if experiment.chooses_with_trials else 0)
    return reproduction.seeds or scale.seeds or experiment.seeds, folder, first


def _warn_of_edges(experiment: Experiment, results: Results, worlds: Collection[str], console: Console) -> None:
    """Tell which choices on these worlds are at an edge of the grid; results on others may be of another grid."""
    if experiment.grid is None or experiment.stages.is_drawn:
        return
    choices = results.choices[results.choices["world"].isin(worlds)]
    for text in edge_warnings(experiment.grid, list(choices.itertuples(index=False))):
        console.print(f"[yellow]{text}[/yellow]", highlight=False, soft_wrap=True)


def _follow_up(experiment: Experiment, world: str, cells: Sequence[Cell], found: Results) -> list[Setting]:
    """Second-stage settings of one world; none until its first stage is finished, on which they depend.

    Args:
        experiment: what is run.
        world: the world.
        cells: runs of the first stage, on all worlds.
        found: tables of the first stage.
    """
    if not all(cell.is_finished for cell in cells if cell.setting.world == world):
        return []
    return experiment.follow_up(world, where(found.cells, world=world))


def _write(
    reproduction: Reproduction, experiment: Experiment, cells: Sequence[Cell], missing: Sequence[Cell]
) -> Results:
    """Write tables, provenance and picture."""
    folder = reproduction.results_folder
    made, earlier = provenance(reproduction.command, cells, missing), None
    if reproduction.has_earlier_results:
        earlier, made = Results.read(folder), joined_provenance(read_provenance(folder), made)
    results = analyze(experiment, cells, earlier)
    results.write(folder, made)
    draw(reproduction.experiment, folder)
    return results


def print_summary(results: Results, console: Console) -> None:
    """Print the mean returns of every setting, and what a search chose."""
    for world in results.summary["world"].unique():
        console.print(f"\n{world}: mean return, and every seed or a 95 % interval", highlight=False)
        table = Table(box=None)
        for heading in ("setting", "seeds", "final", "average"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
        for row in where(results.summary, world=world, quantity="final").itertuples():
            average = only(results.summary, world=world, quantity="average", setting=row.setting)
            table.add_row(row.setting, str(row.seeds), *(_in_words(results, found) for found in (row, average)))
        console.print(table)
    if len(medians := where(results.top_games, statistic="median")):
        table = Table("median human-normalized score", *(f"top {n}" for n in medians["games"].unique()), box=None)
        for label, rows in medians.groupby("setting", sort=False):
            table.add_row(label, *(interval(Estimate(*row)) for row in rows[["value", "low", "high"]].to_numpy(float)))
        console.print("\n", table)
    for choice in results.choices.itertuples():
        console.print(f"chosen on {choice.world}: {choice.setting}", markup=False, highlight=False)
    if is_smoke_test(results.cells):
        console.print("This was a smoke test: everything runs, but nothing is learned in so few steps.")


def _in_words(results: Results, row: Any) -> str:
    """A row of the summary: the mean, and every seed, or the interval if there are enough seeds or several worlds."""
    seeds = returns_of(results, row.world, row.setting, row.quantity)
    if 0 < len(seeds) < SEEDS_FOR_INTERVALS:
        return f"{row.mean:.2f}" + (f" ({', '.join(f'{value:.2f}' for value in seeds)})" if len(seeds) > 1 else "")
    return f"{row.mean:.2f}" + ("" if math.isnan(row.mean_low) else f" ({row.mean_low:.2f} … {row.mean_high:.2f})")
