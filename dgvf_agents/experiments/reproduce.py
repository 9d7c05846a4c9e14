"""`dgvf reproduce`: trains what an experiment needs and has no record of, adds the records, and draws the figure.

settings -> run folders -> records -> figure and verdicts
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import numpy as np
import pandas as pd
import tyro
from rich.console import Console

from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.experiments.catalog import EXPERIMENTS, TRIAL
from dgvf_agents.experiments.figures import draw_experiment, tables_of
from dgvf_agents.experiments.records import add_records, merge_records, read_configs, read_records
from dgvf_agents.experiments.runs import Cell, setting_fields
from dgvf_agents.experiments.settings import SCALES, ScaleName, Wanted
from dgvf_agents.experiments.statistics import AGGREGATES, estimate
from dgvf_agents.experiments.sweep import SweepView, processes_on, run_sweep
from dgvf_agents.experiments.worlds import EXTERNAL, GAME_ORDER, reference_of, world_of_game
from dgvf_agents.options import ExperimentName
from dgvf_agents.train.config import WORLDS

COMMITTED = Path("docs/results/records")
"""Where a checkout has its records."""
SMOKE_TEST_STEPS = 10_000
"""Runs with fewer environment steps learn nothing: they only show that everything runs."""


@final
@dataclass(frozen=True)
class Reproduction:
    """Train the runs of an experiment that have no record yet, add their records, and draw its figure."""

    experiment: Annotated[ExperimentName, tyro.conf.Positional]
    """Which one."""
    scale: ScaleName = "full"
    """`full` as declared, `small` a quarter of the steps and 2 seeds, `demo` minutes on the smallest world, `tiny` a
    smoke test."""
    seeds: int | None = None
    """Seeds per setting; the experiment's and the scale's if `None`."""
    steps: int | None = None
    """Environment steps of every run; the setting's and the scale's if `None`."""
    worlds: tuple[str, ...] | None = None
    """Worlds, tasks of `own-tasks` as CartPole-v1, or games of `joint` as minatar/asterix; if `None`, the declared ones
    that are installed. Not on Atari."""
    settings: tuple[str, ...] = ()
    """Labels of the settings to run, or what stands before a label's colon, as joint of `atari`; all if empty."""
    game: tuple[str, ...] = ()
    """Games of `atari`, as Breakout or ms_pacman."""
    games: int | None = None
    """In place of games by name: the first N of the 57 games, in the order of `worlds.GAME_ORDER`."""
    actors: int = 0
    """Distributed actors of every run, IMPALA only; see `dgvf train impala`."""
    address: str | None = None
    """Address of the Ray cluster that actors join, or `auto`; a Ray on this machine if `None`."""
    jobs: int | None = None
    """Parallel processes, one thread each; if `None`, as many as there are cores, and one on a GPU that `device`
    names. Runs that are faster at once share one."""
    device: str | None = None
    """`cpu`, `cuda`, or `auto` for CUDA if available; the presets' if `None`. On a GPU, all networks of the
    gridworlds train in populations."""
    out: Path | None = None
    """Folder of the run folders, from which unfinished runs continue; runs/SCALE if `None`."""
    records: Path | None = None
    """Folder of the records and the figure; if `None`, docs/results/records in a checkout at full scale, otherwise
    OUT/records."""
    merge: tuple[Path, ...] = ()
    """Folders of records to add, as other machines made them."""
    run: bool = True
    """Whether runs without a record are trained."""

    def __post_init__(self) -> None:
        if self.device is not None:
            check_device_name(self.device)
        on_atari, declared = self.experiment == "atari", EXPERIMENTS[self.experiment].worlds
        known = WORLDS if set(declared) <= set(WORLDS) else declared
        for failed, message in (
            (self.jobs is not None and self.jobs < 1, f"jobs must be >= 1, got {self.jobs!r}"),
            (
                bool(self.game) + (self.games is not None) != on_atari,
                "game must name a game for atari alone, as --game Breakout, or --games must be given in its place, "
                f"got game {self.game!r} and games {self.games!r} for {self.experiment}",
            ),
            (
                self.games is not None and not 1 <= self.games <= len(GAME_ORDER),
                f"games must be in 1 ... {len(GAME_ORDER)}, got {self.games!r}",
            ),
            (self.address and not self.actors, f"address must be left out without actors, got {self.address!r}"),
            (on_atari and self.worlds, f"worlds must be left out for atari, got {self.worlds!r}"),
            (
                self.worlds is not None and not (self.worlds and set(self.worlds) <= set(known)),
                f"worlds of {self.experiment} must be among {', '.join(known)}, got {', '.join(self.worlds or ())}",
            ),
        ):
            if failed:
                raise ValueError(message)

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        return processes_on(self.device, self.jobs)

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
            usual = tuple(world for world in declared if world not in EXTERNAL or EXTERNAL[world].is_installed)
            found = self.worlds or usual
        if not found:
            raise ValueError(f"{self.experiment} must have an installed world, got none of {', '.join(declared)}")
        return tuple(dict.fromkeys(found))

    @property
    def runs_folder(self) -> Path:
        """Folder of the run folders."""
        return self.out or Path("runs") / self.scale

    @property
    def records_folder(self) -> Path:
        """Folder of the records."""
        is_declared = self.scale == "full" and self.steps is None and COMMITTED.is_dir()
        return self.records or (COMMITTED if is_declared else self.runs_folder / "records")


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
    worlds = reproduction.all_worlds

    def cell_of(wanted: Wanted) -> Cell:
        return Cell.of(*wanted, scale, reproduction.runs_folder, reproduction.device)

    attempted: set[Wanted] = set()
    while True:
        records = read_records(store)
        needed = [one for world in worlds for one in experiment.wanted(world, records, scale.seeds)]
        wanted = _selected(reproduction, needed)
        cells = {one: cell_of(one) for one in wanted}
        _check_records(store, list(cells.values()))
        missing = _unrecorded(wanted, records)
        finished = [cells[one] for one in missing if cells[one].is_finished]
        collect(store, finished)
        left = [one for one in missing if not (cells[one].is_finished or one in attempted)]
        if not (finished or (left and reproduction.run)):
            break
        attempted.update(left)
        sources = [cell_of(Wanted(one.setting.source, one.seed)) for one in left if one.setting.source is not None]
        for part in (sources, [cells[one] for one in left]):
            if reproduction.run and part:
                with SweepView(console) as view:
                    run_sweep(part, reproduction.processes, view, lambda done: collect(store, done))
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


def _check_records(store: Path, cells: Sequence[Cell]) -> None:
    """Refuse settings that have another configuration in the records; fields that only one of them has do not count."""
    known = {world: read_configs(store, world) for world in {cell.setting.world for cell in cells}}
    for name, cell in {cell.setting.folder_name: cell for cell in cells}.items():
        recorded, fields = known[cell.setting.world].get(cell.setting.name, {}), setting_fields(cell.config)
        if differing := [field for field in fields if field in recorded and fields[field] != recorded[field]]:
            told = ", ".join(f"{field} ({recorded[field]!r}, not {fields[field]!r})" for field in differing)
            raise ValueError(f"{name} must have the configuration of its records in {store}, got another {told}")
