"""What `dgvf reproduce` is told."""

from __future__ import annotations

import dataclasses
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, final

import tyro

from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.scale import ScaleName
from dgvf_agents.experiments.search_grid import SearchGrid
from dgvf_agents.experiments.worlds import game_of_world, world_of_game
from dgvf_agents.runs.config import World

FigureName = Literal[
    "gridworlds",
    "questions",
    "unroll-length",
    "meta-objective",
    "joint",
    "search",
    "learning-rate",
    "low-rate",
    "convention",
    "own-tasks",
    "atari-representation",
    "atari-meta-objective",
    "atari-laptop",
]


@final
@dataclass(frozen=True)
class Reproduction:
    """Run an experiment of the paper, or what is left of it, and write its tables and its picture."""

    figure: Annotated[FigureName, tyro.conf.Positional]
    """Which one."""
    scale: ScaleName = "full"
    """`full` as in the presets, `small` a quarter of the steps and 2 seeds, `tiny` a smoke test."""
    seeds: int | None = None
    """Seeds per setting; the figure and the scale decide when left out."""
    first_seed: int = 0
    """The lowest of them."""
    steps: int | None = None
    """Environment steps of every run; the preset and the scale decide when left out."""
    worlds: tuple[World, ...] | None = None
    """Worlds; all when left out. Not on Atari."""
    tasks: tuple[str, ...] = ()
    """Tasks of own-tasks, as CartPole-v1; all when left out."""
    game: tuple[str, ...] = ()
    """Games of an experiment on Atari, as Breakout or ms_pacman."""
    jobs: int = os.cpu_count() or 1
    """Runs at a time, one thread each."""
    out: Path | None = None
    """Folder of the runs, which experiments share where settings are equal; runs/SCALE when left out."""
    results: Path | None = None
    """Tables and picture go to RESULTS/FIGURE, on Atari RESULTS/FIGURE/GAME; OUT/results when left out."""
    adopt: tuple[Path, ...] = ()
    """Folders with finished runs of `dgvf train` to take over where the configuration is the same."""
    run: bool = True
    """Whether runs that are not finished are trained."""
    partial: bool = False
    """Whether results are written although runs are missing."""
    extend: bool = False
    """Whether the runs behind the results that are there already, made elsewhere, stay part of the results."""
    search: SearchGrid = field(default_factory=SearchGrid)
    """What `search` tries."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be >= 1, got {self.jobs!r}")
        if self.worlds is not None and not self.worlds:
            raise ValueError(f"worlds must name a world, got {self.worlds!r}")
        if self.first_seed < 0:
            raise ValueError(f"first_seed must be >= 0, got {self.first_seed!r}")
        if unknown := [task for task in self.tasks if task not in OWN_TASKS]:
            raise ValueError(f"tasks must be among {', '.join(OWN_TASKS)}, got {', '.join(unknown)}")
        if self.tasks and self.figure != "own-tasks":
            raise ValueError(f"tasks must be left out for {self.figure}, got {self.tasks!r}")
        if self.worlds is not None and self.figure == "own-tasks":
            raise ValueError(f"worlds must be left out for own-tasks, which --tasks names, got {self.worlds!r}")
        if self.on_atari and not self.game:
            raise ValueError(f"game must name a game for {self.figure}, as --game Breakout, got none")
        if self.on_atari and self.worlds is not None:
            raise ValueError(f"worlds must be left out for {self.figure}, got {self.worlds!r}")
        if self.game and not self.on_atari:
            raise ValueError(f"game must be left out for {self.figure}, which is not on Atari, got {self.game!r}")

    @property
    def on_atari(self) -> bool:
        """Whether the experiment is on games."""
        return self.figure.startswith("atari-")

    @property
    def game_worlds(self) -> tuple[str, ...]:
        """What the games go by in experiments, each once.

        Raises:
            ValueError: ALE has no such game.
        """
        return tuple(dict.fromkeys(world_of_game(game) for game in self.game))

    @property
    def runs_folder(self) -> Path:
        """Where the runs lie."""
        return self.out or Path("runs") / self.scale

    @property
    def results_folder(self) -> Path:
        """Where tables and picture go."""
        folder = (self.results or self.runs_folder / "results") / self.figure
        return folder / "-".join(str(game_of_world(world)) for world in self.game_worlds) if self.on_atari else folder

    @property
    def command(self) -> str:
        """What is typed for these results, without the places of files."""
        words = ["dgvf", "reproduce", self.figure, "--scale", self.scale]
        for name in ("seeds", "steps"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name}", str(value)]
        if self.first_seed:
            words += ["--first-seed", str(self.first_seed)]
        if self.worlds is not None:
            words += ["--worlds", *self.worlds]
        if self.tasks:
            words += ["--tasks", *self.tasks]
        if self.game:
            words += ["--game", *self.game]
        for grid in dataclasses.fields(SearchGrid) if self.figure == "search" else ():
            if (values := getattr(self.search, grid.name)) != grid.default:
                words += [f"--{grid.name.replace('_', '-')}", *map(str, values)]
        return shlex.join(words)
