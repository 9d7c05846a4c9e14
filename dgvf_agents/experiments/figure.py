"""What an experiment is: settings, what is compared, and a picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from dgvf_agents.experiments.cell import Setting
from dgvf_agents.experiments.results import CellRow, ChoiceRow, Results
from dgvf_agents.runs.config import WORLDS


class Figure(ABC):
    """One figure of the paper, or one beyond it."""

    name: str
    """What `dgvf reproduce` calls it."""
    summary: str
    """One line."""
    seeds: int = 3
    """Seeds per setting at full size (paper: 3)."""
    worlds: tuple[str, ...] = WORLDS
    """Worlds at full size; none where games are to be named."""
    reference: str | None = None
    """Label of the setting that all others are compared with; none when left out."""

    @abstractmethod
    def settings(self, world: str) -> list[Setting]:
        """What is run on a world."""

    def follow_up(self, world: str, rows: Sequence[CellRow]) -> list[Setting]:
        """What is run on a world once the results of `settings` are known; usually nothing."""
        return []

    def choices(self, world: str, rows: Sequence[CellRow]) -> list[ChoiceRow]:
        """What results on a world lead to choose; usually nothing is chosen."""
        return []

    @abstractmethod
    def draw(self, results: Results, path: Path) -> None:
        """Write the picture as PNG, atomically, from results alone."""
