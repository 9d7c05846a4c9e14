"""Representation learning on the gridworlds (paper, figure 2): do discovered questions alone suffice?"""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results
from dgvf_agents.runs.config import METHODS


@final
class Gridworlds(Figure):
    """Discovered GVFs, random GVFs and reward prediction, alone, beside A2C whose main task trains the encoder."""

    name = "gridworlds"
    summary = "encoders trained by discovered questions, random ones or reward prediction alone, beside plain A2C"
    seeds = 5
    reference = "discovered"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, method) for method in METHODS]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Encoder trained by the auxiliary task alone")
