"""The options of `dgvf reproduce`."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, final

import tyro

from dgvf_agents.bench.report import options
from dgvf_agents.command_names import PAPER_FIGURES, ExperimentName, PaperFigure
from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.experiments.groups import processes_on
from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.settings import ScaleName, SearchGrid
from dgvf_agents.experiments.worlds import GAME_ORDER, game_of_world, world_of_game
from dgvf_agents.options import World

_SEARCHES = ("search", "paper", "equal-budget", "joint-equal-budget")
_FIGURE_OPTIONS = ("experiment", "scale", "worlds", "jobs", "device", "out", "run", "records", "merge", "search")
"""Experiments that choose hyperparameters."""


@final
@dataclass(frozen=True)
class Reproduction:
    """Run an experiment of the paper, or resume it, and write its tables and its picture."""

    experiment: Annotated[ExperimentName | PaperFigure, tyro.conf.Positional]
    """Which one; figures have declared claims and go on from the records."""
    scale: ScaleName = "full"
    """`full` as in the presets, `small` a quarter of the steps and 2 seeds, `demo` minutes on the smallest world,
    `tiny` a smoke test."""
    seeds: int | None = None
    """Seeds per setting; those of the experiment and the scale if `None`."""
    first_seed: int = 0
    """The lowest seed."""
    steps: int | None = None
    """Environment steps of every run; those of the preset and the scale if `None`."""
    worlds: tuple[World, ...] | None = None
    """Worlds; all if `None`. Not on Atari."""
    settings: tuple[str, ...] = ()
    """Labels of the settings to run, as in the tables; all if empty."""
    tasks: tuple[str, ...] = ()
    """Tasks of `own-tasks` and `joint-equal-budget`, as CartPole-v1; all if empty, unless worlds are named."""
    game: tuple[str, ...] = ()
    """Games of an experiment on Atari, as Breakout or ms_pacman."""
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
    """`cpu`, `cuda`, or `auto` for CUDA if available; those of the presets if `None`. On a GPU, all networks of the
    gridworlds train in populations."""
    out: Path | None = None
    """Folder of the runs, which experiments with equal settings share; runs/SCALE if `None`."""
    results: Path | None = None
    """Tables and picture go to RESULTS/EXPERIMENT, on Atari RESULTS/EXPERIMENT/GAME or N-games; RESULTS is
    OUT/results if `None`."""
    adopt: tuple[Path, ...] = ()
    """Folders with finished runs of `dgvf train` to adopt if the configuration is the same."""
    run: bool = True
    """Whether unfinished runs are trained."""
    partial: bool = False
    """Whether results are written even if runs are missing."""
    extend: bool = False
    """Whether the existing results, of runs made elsewhere, stay part of the results."""
    records: Path | None = None
    """Folder of a figure's records; docs/results/records if `None` and in a checkout, otherwise OUT/records."""
    merge: tuple[Path, ...] = ()
    """Folders of other records to add to a figure's, as another machine made them."""
    search: SearchGrid = field(default_factory=SearchGrid)
    """What `search`, `paper`, `equal-budget` and `joint-equal-budget` try."""

    def __post_init__(self) -> None:
        if self.device is not None:
            check_device_name(self.device)
        unknown = ", ".join(task for task in self.tasks if task not in OWN_TASKS)
        given = self._not_for_figures if self.experiment in PAPER_FIGURES else []
        unused = f"must be left out for {self.experiment}"
        with_tasks = self.experiment in ("own-tasks", "joint-equal-budget")
        for failed, message in (
            (self.jobs is not None and self.jobs < 1, f"jobs must be >= 1, got {self.jobs!r}"),
            (
                given,
                f"only {', '.join(_FIGURE_OPTIONS[1:-1])} may be given for {self.experiment}, got {', '.join(given)}",
            ),
            (self.worlds == (), f"worlds must name a world, got {self.worlds!r}"),
            (self.first_seed < 0, f"first_seed must be >= 0, got {self.first_seed!r}"),
            (unknown, f"tasks must be among {', '.join(OWN_TASKS)}, got {unknown}"),
            (self.tasks and not with_tasks, f"tasks {unused}, got {self.tasks!r}"),
            (
                self.worlds and self.experiment == "own-tasks",
                f"worlds {unused}, which --tasks names, got {self.worlds!r}",
            ),
            (
                self.on_atari and bool(self.game) == (self.games is not None),
                f"game must name a game for {self.experiment}, as --game Breakout, or --games must be given in its "
                f"place, got game {self.game!r} and games {self.games!r}",
            ),
            (
                self.games is not None and not 1 <= self.games <= len(GAME_ORDER),
                f"games must be in 1 ... {len(GAME_ORDER)}, got {self.games!r}",
            ),
            (
                self.settings and self.experiment in _SEARCHES,
                f"settings {unused}, which compares all of them, got {', '.join(self.settings)}",
            ),
            (
                self.search != SearchGrid() and self.experiment not in _SEARCHES,
                f"search {unused}, which chooses nothing, got {shlex.join(self._search_options)}",
            ),
            (self.address and not self.actors, f"address must be left out without actors, got {self.address!r}"),
            (self.on_atari and self.worlds, f"worlds {unused}, got {self.worlds!r}"),
            (self.game and not self.on_atari, f"game {unused}, which is not on Atari, got {self.game!r}"),
            (self.games and not self.on_atari, f"games {unused}, which is not on Atari, got {self.games!r}"),
        ):
            if failed:
                raise ValueError(message)

    @property
    def records_folder(self) -> Path:
        """Folder of a figure's records."""
        committed = Path("docs/results/records")
        usual = committed if self.scale == "full" and committed.is_dir() else self.runs_folder / "records"
        return usual if self.records is None else self.records

    @property
    def _not_for_figures(self) -> list[str]:
        """Given options that figures have not."""
        others = [one for one in dataclasses.fields(self) if one.name not in _FIGURE_OPTIONS]
        return [one.name for one in others if getattr(self, one.name) != one.default]

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        return processes_on(self.device, self.jobs)

    @property
    def on_atari(self) -> bool:
        """Whether the experiment is on Atari."""
        return self.experiment.startswith("atari-")

    @property
    def game_worlds(self) -> tuple[str, ...]:
        """The worlds of the games, each once.

        Raises:
            ValueError: ALE has no such game.
        """
        names = self.game if self.games is None else GAME_ORDER[: self.games]
        return tuple(dict.fromkeys(world_of_game(game) for game in names))

    @property
    def runs_folder(self) -> Path:
        """Folder of the runs."""
        return self.out or Path("runs") / self.scale

    @property
    def results_folder(self) -> Path:
        """Folder of tables and picture."""
        folder = (self.results or self.runs_folder / "results") / self.experiment
        if self.games is not None:
            return folder / f"{self.games}-games"
        return folder / "-".join(str(game_of_world(world)) for world in self.game_worlds) if self.on_atari else folder

    @property
    def has_earlier_results(self) -> bool:
        """Whether there are results to extend."""
        return self.extend and (self.results_folder / "cells.csv").exists()

    @property
    def command(self) -> str:
        """The command that makes these results, without folders."""
        words = ["dgvf", "reproduce", self.experiment, "--scale", self.scale]
        words += options(
            self, ("seeds", "steps", "first_seed", "worlds", "settings", "tasks", "game", "games", "actors", "device")
        )
        return shlex.join([*words, *(self._search_options if self.experiment in _SEARCHES else ())])

    @property
    def _search_options(self) -> list[str]:
        return options(self.search, [grid.name for grid in dataclasses.fields(SearchGrid)])
