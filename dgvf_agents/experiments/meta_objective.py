"""The summed meta-objective against the one at the end of the unroll (paper, figure 4, there on Atari)."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results


@final
class MetaObjective(Figure):
    """Discovered GVFs with either meta-objective."""

    name = "meta-objective"
    summary = "meta-losses summed along the unroll against the last one alone"
    reference = "sum"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, "discovered", objective, objective=objective) for objective in ("sum", "end")]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Summed and end meta-objective")
