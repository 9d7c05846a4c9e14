"""The summed meta-objective against the one at the end of the unroll, on Atari as in the paper (figure 4)."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results


@final
class AtariMetaObjective(Figure):
    """Discovered GVFs with either meta-objective, beside A2C's main task."""

    name = "atari-meta-objective"
    summary = "on a game: meta-losses summed along the unroll against the last one alone"
    worlds = ()
    reference = "sum"

    def settings(self, world: str) -> list[Setting]:
        objectives = [setting(world, "discovered", objective, objective=objective) for objective in ("sum", "end")]
        return [*objectives, setting(world, "a2c")]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Summed and end meta-objective")
