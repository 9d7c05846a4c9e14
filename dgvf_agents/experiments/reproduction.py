"""What `dgvf reproduce` is told."""

from __future__ import annotations

import dataclasses
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, final

import tyro

from dgvf_agents.experiments.scale import ScaleName
from dgvf_agents.experiments.search_grid import SearchGrid
from dgvf_agents.train_config import World

FigureName = Literal["gridworlds", "questions", "unroll-length", "meta-objective", "joint", "search", "convention"]


@final
@dataclass(frozen=True)
class Reproduction:
    """Run an experiment of the paper, or what is left of it, and write its tables and its picture."""

    figure: Annotated[FigureName, tyro.conf.Positional]
    """Which one."""
    scale: ScaleName = "full"
    """`full` as in the presets, `small` a quarter of the steps and 2 seeds, `tiny` a smoke test."""
    seeds: int | None = None
    """Seeds per setting, 0 and up; the figure and the scale decide when left out."""
    steps: int | None = None
    """Environment steps of every run; the preset and the scale decide when left out."""
    worlds: tuple[World, ...] | None = None
    """Worlds; all when left out."""
    jobs: int = os.cpu_count() or 1
    """Runs at a time, one thread each."""
    out: Path | None = None
    """Folder of the runs, which experiments share where settings are equal; runs/SCALE when left out."""
    results: Path | None = None
    """Tables and picture go to RESULTS/FIGURE; OUT/results when left out."""
    adopt: tuple[Path, ...] = ()
    """Folders with finished runs of `dgvf train` to take over where the configuration is the same."""
    run: bool = True
    """Whether runs that are not finished are trained."""
    partial: bool = False
    """Whether results are written although runs are missing."""
    search: SearchGrid = field(default_factory=SearchGrid)
    """What `search` tries."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be >= 1, got {self.jobs!r}")
        if self.worlds is not None and not self.worlds:
            raise ValueError(f"worlds must name a world, got {self.worlds!r}")

    @property
    def runs_folder(self) -> Path:
        """Where the runs lie."""
        return self.out or Path("runs") / self.scale

    @property
    def results_folder(self) -> Path:
        """Where tables and picture go."""
        return (self.results or self.runs_folder / "results") / self.figure

    @property
    def command(self) -> str:
        """What is typed for these results, without the places of files."""
        words = ["dgvf", "reproduce", self.figure, "--scale", self.scale]
        for name in ("seeds", "steps"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name}", str(value)]
        if self.worlds is not None:
            words += ["--worlds", *self.worlds]
        for grid in dataclasses.fields(SearchGrid) if self.figure == "search" else ():
            if (values := getattr(self.search, grid.name)) != grid.default:
                words += [f"--{grid.name.replace('_', '-')}", *map(str, values)]
        return shlex.join(words)
