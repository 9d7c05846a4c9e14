"""Representation learning on Atari (paper, figure 3 and appendix): do discovered questions alone suffice?"""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results
from dgvf_agents.runs.atari_config import ATARI_METHODS


@final
class AtariRepresentation(Figure):
    """Discovered and random GVFs, reward prediction and pixel control, alone, beside A2C's main task."""

    name = "atari-representation"
    summary = "on a game: encoders trained by discovered or random questions, rewards or pixels alone, beside plain A2C"
    worlds = ()
    reference = "discovered"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, method) for method in ATARI_METHODS]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Encoder trained by the auxiliary task alone")
