"""An experiment as data: what it varies, on which worlds, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pandas as pd

from dgvf_agents.experiments.ranking import Ranking
from dgvf_agents.experiments.search import COEFFICIENT, Choice, Stages
from dgvf_agents.experiments.settings import SearchGrid, Setting
from dgvf_agents.experiments.tables import Results
from dgvf_agents.train.config import WORLDS


@final
@dataclass(frozen=True)
class Experiment:
    """What an experiment of the paper, or one beyond it, varies, and how it is drawn."""

    name: str
    """Its name in `dgvf reproduce`."""
    summary: str
    """One line."""
    variants: Callable[[str], list[Setting]]
    """What is compared on a world."""
    draw: Callable[[Results, Path], None]
    """Writes the picture as PNG, atomically, from tables alone."""
    worlds: tuple[str, ...] = WORLDS
    """Worlds at full size; none on Atari, where the command names games."""
    seeds: int = 3
    """Seeds per setting at full size (paper: 3)."""
    reference: str | None = None
    """Label of the setting that all others are compared with; no comparisons if `None`."""
    ranking: Ranking | None = None
    """How games are ordered for statistics over the first of them; no such statistics if `None`."""
    grid: SearchGrid | None = None
    """What a search tries, in place of variants; no search if `None`."""
    stages: Stages = COEFFICIENT
    """The stages of a search."""
    first: Callable[[str], list[Setting]] | None = None
    """What is trained before, since other settings take its questions; it is in the tables if it is a variant too."""

    def settings(self, world: str) -> list[Setting]:
        """What is run on a world."""
        return self.variants(world) if self.grid is None else self.stages.first(self.grid, world)

    def follow_up(self, world: str, cells: pd.DataFrame) -> list[Setting]:
        """What is run on a world given the cells of `settings`; nothing unless it is a search."""
        return [] if self.grid is None else self.stages.second(self.grid, world, cells)

    def choices(self, cells: pd.DataFrame) -> list[Choice]:
        """What the cells of one world lead a search to choose."""
        return [] if self.grid is None else self.stages.choices(cells)

    @property
    def chooses_with_trials(self) -> bool:
        """Whether its first stage is trials, with seeds that its second stage has not."""
        return self.grid is not None and self.stages.fresh_seeds
