"""`dgvf reproduce` and `dgvf sweep`: train what has no record yet, add the records, print a summary, draw the figure.

settings -> run folders -> records -> figure and verdicts
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import pandas as pd
import tyro
from rich.console import Console

from dgvf_agents.core.argument_checks import check_counts, check_device_name
from dgvf_agents.execution.devices import device_named
from dgvf_agents.experiments.catalog import EXPERIMENTS, TRIAL, Experiment, best_setting
from dgvf_agents.experiments.figures import draw_runs
from dgvf_agents.experiments.records import add_records, merge_records, read_configs, read_records, scaled, tables_of
from dgvf_agents.experiments.runs import Cell, SweepView, run_sweep
from dgvf_agents.experiments.settings import (
    EXTERNAL,
    GAME_ORDER,
    SCALES,
    Scale,
    ScaleName,
    Wanted,
    field_value,
    setting,
    world_of_game,
)
from dgvf_agents.experiments.statistics import AGGREGATES, estimate
from dgvf_agents.options import ExperimentName, Method, World
from dgvf_agents.storage.files import write_bytes
from dgvf_agents.train.config import WORLDS, TrainConfig, differences

COMMITTED = Path("docs/results/records")
"""Where a checkout has its records."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs, how long and where."""

    scale: ScaleName = "full"
    """`full` as declared, `small` a quarter of the steps and 2 seeds, `demo` minutes on the smallest world, `tiny` a
    smoke test."""
    seeds: int | None = None
    """Seeds per setting; the experiment's and the scale's if `None`, and 3 of a sweep."""
    steps: int | None = None
    """Environment steps of every run; the setting's and the scale's if `None`."""
    jobs: int | None = None
    """Parallel processes, one thread each; if `None`, as many as there are cores, and one on a GPU that `device`
    names. Runs that are faster at once share one."""
    device: str | None = None
    """`cpu`, `cuda`, or `auto` for CUDA if available; the presets' if `None`. On a GPU, all networks of the
    gridworlds train in populations."""
    out: Path | None = None
    """Folder of the run folders, from which unfinished runs continue; runs/SCALE if `None`, runs/sweep of a sweep."""

    def __post_init__(self) -> None:
        names = ("seeds", "steps", "jobs")
        check_counts(**{name: value for name in names if (value := getattr(self, name)) is not None})
        if self.device is not None:
            check_device_name(self.device)

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        on_gpu = self.device is not None and device_named(self.device).type == "cuda"
        return self.jobs or (1 if on_gpu else os.cpu_count() or 1)

    @property
    def runs_folder(self) -> Path:
        """Folder of the run folders."""
        return self.out or Path("runs") / self.scale

    @property
    def changes(self) -> Scale:
        """Those to every configuration."""
        names = ("steps", "seeds", "actors", "address")
        given = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        return dataclasses.replace(SCALES[self.scale], **given)


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction(Options):
    """Train the runs of an experiment that have no record yet, add their records, and draw its figure."""

    experiment: Annotated[ExperimentName, tyro.conf.Positional]
    """Which one."""
    worlds: tuple[str, ...] | None = None
    """Worlds, tasks of `own-tasks` as CartPole-v1, or games of `joint` as minatar/asterix; if `None`, the declared ones
    that are installed. Not on Atari."""
    settings: tuple[str, ...] = ()
    """Labels of the settings to run, or what stands before a label's colon, as joint of `atari`; all if empty."""
    game: tuple[str, ...] = ()
    """Games of `atari`, as Breakout or ms_pacman."""
    games: int | None = None
    """In place of games by name: the first N of the 57 games, in the order of `settings.GAME_ORDER`."""
    actors: int = 0
    """Distributed actors of every run, IMPALA only; see `dgvf train impala`."""
    address: str | None = None
    """Address of the Ray cluster that actors join, or `auto`; a Ray on this machine if `None`."""
    records: Path | None = None
    """Folder of the records and the figure; if `None`, docs/results/records in a checkout at full scale, otherwise
    OUT/records."""
    merge: tuple[Path, ...] = ()
    """Folders of records to add, as other machines made them."""
    run: bool = True
    """Whether runs without a record are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.game) + (self.games is not None) != (self.experiment == "atari"):
            raise ValueError(
                "game must name a game for atari alone, as --game Breakout, or --games must be given in its place, got "
                f"game {self.game!r} and games {self.games!r} for {self.experiment}"
            )
        if self.games is not None and not 1 <= self.games <= len(GAME_ORDER):
            raise ValueError(f"games must be in 1 ... {len(GAME_ORDER)}, got {self.games!r}")
        if self.address and not self.actors:
            raise ValueError(f"address must be left out without actors, got {self.address!r}")
        declared = EXPERIMENTS[self.experiment].worlds
        known = WORLDS if declared and set(declared) <= set(WORLDS) else declared
        if self.worlds is not None and not (self.worlds and set(self.worlds) <= set(known)):
            raise ValueError(f"worlds of {self.experiment} must be among {known}, got {self.worlds}")

    @property
    def all_worlds(self) -> tuple[str, ...]:
        """The worlds that the command names, or the experiment's; at the scale for a first look, the smallest one.

        Raises:
            ValueError: ALE has no such game, or none of the experiment's worlds is installed.
        """
        declared = EXPERIMENTS[self.experiment].worlds
        if self.experiment == "atari":
            names = self.game if self.games is None else GAME_ORDER[: self.games]
            found = tuple(world_of_game(game) for game in names)
        elif self.worlds is None and self.scale == "demo" and set(declared) <= set(WORLDS):
            found = ("collect-objects-small",)
        else:
            found = self.worlds or tuple(one for one in declared if one not in EXTERNAL or EXTERNAL[one].is_installed)
        if not found:
            raise ValueError(f"{self.experiment} must have an installed world, got none of {', '.join(declared)}")
        return tuple(dict.fromkeys(found))

    @property
    def records_folder(self) -> Path:
        """Folder of the records."""
        is_declared = self.scale == "full" and self.steps is None and COMMITTED.is_dir()
        return self.records or (COMMITTED if is_declared else self.runs_folder / "records")


def reproduce(reproduction: Reproduction, console: Console | None = None) -> list[Wanted]:
    """Train the runs without a record, add the records of finished ones, print a summary and draw the figure.

    Returns:
        The runs that are still without a record.

    Raises:
        ValueError: an option is out of range, or a record or a run folder has another configuration.
        KeyboardInterrupt: after all runs have written a checkpoint.
    """
    console, store, worlds = console or Console(), reproduction.records_folder, reproduction.all_worlds
    for other in reproduction.merge:
        merge_records(store, other)
    missing, table = _train(reproduction, EXPERIMENTS[reproduction.experiment], worlds, store, console)
    if len(table):
        print_summary(table, console)
        picture = draw(reproduction.experiment, store, worlds)
        console.print(f"The picture is {picture}.", markup=False, highlight=False, soft_wrap=True)
    return missing


def _train(
    options: Options, experiment: Experiment, worlds: Sequence[str], store: Path, console: Console
) -> tuple[list[Wanted], pd.DataFrame]:
    """Train the runs without a record; those that are still without one, and the table of all others but trials.

    A search adds runs when its trials are finished, so training goes on until nothing more is wanted.
    """
    scale, run, attempted = options.changes, getattr(options, "run", True), set[Wanted]()

    def cell_of(wanted: Wanted) -> Cell:
        return Cell.of(*wanted, scale, options.runs_folder, options.device)

    while True:
        records = read_records(store)
        needed = [one for world in worlds for one in experiment.wanted(world, records, scale.seeds)]
        wanted = _selected(getattr(options, "settings", ()), needed)
        cells = {one: cell_of(one) for one in wanted}
        _check_records(store, list(cells.values()))
        missing = _unrecorded(wanted, records)
        finished = [cells[one] for one in missing if cells[one].is_finished]
        collect(store, finished)
        left = [one for one in missing if not (cells[one].is_finished or one in attempted)]
        if not (finished or (left and run)):
            break
        attempted.update(left)
        sources = [cell_of(Wanted(one.setting.source, one.seed)) for one in left if one.setting.source is not None]
        for part in (sources, [cells[one] for one in left]):
            if run and part:
                with SweepView(console) as view:
                    run_sweep(part, options.processes, view, lambda done: collect(store, done))
    if missing:
        text = f"{len(missing)} of {len(wanted)} runs have no record, the first is {missing[0].setting.folder_name}"
        console.print(f"{text} seed {missing[0].seed}", markup=False, highlight=False, soft_wrap=True)
    return missing, tables_of([one.setting for one in wanted if one.setting.label != TRIAL], records)


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
    compared = [one for world in worlds or usual for one in experiment.compared(world, records)]
    settings = {one.folder_name: one for one in reversed(compared)}  # a search may choose what is compared anyway
    table = tables_of([*settings.values()][::-1], records)
    if table.empty:
        raise ValueError(f"results must be a folder with records of {name}, got {store}")
    draw_runs(table, picture, experiment.figure)
    return picture


def collect(store: Path, cells: Sequence[Cell]) -> None:
    """Add the records of finished runs."""
    add_records(store, [cell.record() for cell in cells], {cell.setting.folder_name: cell.fields for cell in cells})


def print_summary(table: pd.DataFrame, console: Console) -> None:
    """Print the returns of every setting, then aggregates over worlds with normalized returns; see `tables_of`."""
    runs = table.groupby(["world", "label"], sort=False)
    columns = {"seeds": ("seed", "size"), "solved": ("solved", "sum"), "final": ("final", "mean")}
    shown = runs.agg(**columns, average=("average", "mean"), known=("solved", "count")).reset_index()
    shown["solved"] = [f"{row.solved:.0f}" if row.known else "" for row in shown.itertuples()]
    print_table(shown.drop(columns="known"), console)
    known = scaled(table).dropna(subset="final")
    if known["world"].nunique() > 1:
        rows = []
        for label, of in known.groupby("label", sort=False):
            games = [seeds.to_numpy() for _, seeds in of.groupby("world", sort=False)["final"]]
            rows.append({"normalized": label, **{name: str(estimate(f, games)) for name, f in AGGREGATES.items()}})
        print_table(pd.DataFrame(rows), console)


def print_table(table: pd.DataFrame, console: Console) -> None:
    """Print a table, however wide the terminal is."""
    text = table.to_string(index=False, float_format=lambda value: f"{value:.2f}")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _selected(names: Sequence[str], wanted: Sequence[Wanted]) -> list[Wanted]:
    """The runs of settings with these names, or all."""
    known = {one.setting.label: one.setting.label.split(":")[0] for one in wanted}
    if unknown := [name for name in names if name not in {*known, *known.values()}]:
        raise ValueError(f"settings must be among {', '.join(known)}, got {', '.join(unknown)}")
    return [one for one in wanted if not names or {one.setting.label, known[one.setting.label]} & set(names)]


def _unrecorded(wanted: Sequence[Wanted], records: pd.DataFrame) -> list[Wanted]:
    """The runs without a record, each once; settings with other labels may be the same run."""
    known = {(f"{row.world}/{row.setting}", row.seed) for row in records.itertuples()}
    runs = {(one.setting.folder_name, one.seed): one for one in reversed(wanted)}
    return [one for key, one in reversed(runs.items()) if key not in known]


def _check_records(store: Path, cells: Sequence[Cell]) -> None:
    """Refuse settings that have another configuration in the records; fields that only one of them has do not count."""
    known = {world: read_configs(store, world) for world in {cell.setting.world for cell in cells}}
    for name, cell in {cell.setting.folder_name: cell for cell in cells}.items():
        if differing := differences(known[cell.setting.world].get(cell.setting.name, {}), cell.fields):
            raise ValueError(f"{name} must have the configuration of its records in {store}, got another {differing}")


# --- sweeps -----------------------------------------------------------------------------------------------------------

MAX_CURVES = 8
"""Settings in the picture: the best ones."""
_OTHERS = ("env", "seed", "steps", "task", "atari", "device")
"""Fields of `TrainConfig` that other options decide."""


@final
@dataclass(frozen=True, kw_only=True)
class Grid(Options):
    """Train a method with every combination of settings, or what is left of it; write a table and a picture."""

    world: Annotated[World, tyro.conf.Positional]
    """The world."""
    method: Annotated[Method, tyro.conf.Positional]
    """The method, whose preset is varied."""
    vary: tuple[str, ...] = ()
    """Fields of the configuration and their values, as learning-rate=1e-4,3e-4 ent-coef=0.01,0.03; all combinations
    are run."""
    first_seed: int = 0
    """The lowest seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_seed < 0:
            raise ValueError(f"first_seed must be >= 0, got {self.first_seed!r}")
        names = [name for name, _ in map(varied_field, self.vary)]
        if len(set(names)) < len(names):
            raise ValueError(f"vary must name every field once, got {' '.join(self.vary)}")

    @property
    def experiment(self) -> Experiment:
        """All combinations.

        Raises:
            ValueError: a value is out of the range of its field.
        """
        fields = [[(name, value) for value in values] for name, values in map(varied_field, self.vary)]
        settings = [setting(self.world, self.method, **dict(chosen)) for chosen in itertools.product(*fields)]
        return Experiment("sweep", self.method, lambda world: settings, (self.world,), 3, self.first_seed)

    @property
    def runs_folder(self) -> Path:
        return self.out or Path("runs/sweep")

    @property
    def results(self) -> Path:
        """Folder of table and picture, another one for another world, method or choice of fields."""
        names = [name for name, _ in map(varied_field, self.vary)]
        return self.runs_folder / "results" / "-".join([self.world, self.method, *names])


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
    found = [field_value(f"{name}={text}")[1] for text in values.split(",")]
    if any(value in found[:i] for i, value in enumerate(found)):
        raise ValueError(f"vary must give every value once, got {given!r}")
    return name, found


def sweep(grid: Grid, console: Console | None = None) -> list[Wanted]:
    """Train unfinished runs; write the table and the picture of those that are finished.

    Returns:
        The runs that are still unfinished.

    Raises:
        ValueError: a setting is out of range, or a run's folder holds another configuration.
        KeyboardInterrupt: after all runs have written a checkpoint.
    """
    console, experiment, folder = console or Console(), grid.experiment, grid.results
    missing, table = _train(grid, experiment, experiment.worlds, grid.runs_folder / "records", console)
    if table.empty:
        return missing
    folder.mkdir(parents=True, exist_ok=True)
    text = table.drop(columns="curve").to_csv(index=False, lineterminator="\n")
    write_bytes(folder / "runs.csv", text.encode())
    means = table.groupby("label", sort=False)[["final", "average"]].mean()
    best = means["final"].sort_values(ascending=False, kind="stable").index[:MAX_CURVES]
    several = f": the best {MAX_CURVES} of {len(means)} settings" if len(means) > MAX_CURVES else ""
    draw_runs(table[table["label"].isin(best)], folder / "sweep.png", title=f"{grid.method}{several}")
    print_summary(table, console)
    means = means.drop(index={one.setting.label for one in missing}, errors="ignore")
    if len(means):
        of = " of the settings whose seeds are all finished" if missing else ""
        console.print(f"best{of}: {best_setting(means)}", markup=False, highlight=False)
    console.print(f"Table and picture are in {folder}.", markup=False, highlight=False, soft_wrap=True)
    return missing
