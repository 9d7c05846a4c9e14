"""Joint learning on the gridworlds, beyond the paper, which shows it on Atari."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results
from dgvf_agents.runs.config import METHODS


@final
class Joint(Figure):
    """Encoders trained by main task and auxiliary task together, beside plain A2C."""

    name = "joint"
    summary = "encoders trained by the main task and an auxiliary task together, beside plain A2C"
    reference = "a2c"

    def settings(self, world: str) -> list[Setting]:
        return [
            setting(world, method) if method == "a2c" else setting(world, method, method, encoder_mode="joint")
            for method in METHODS
        ]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Encoder trained by main and auxiliary task together")
