"""Parameter study over the inner updates that a meta-gradient passes through (paper, figure 5 and appendix, right)."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_study
from dgvf_agents.experiments.results import Results

UNROLL_LENGTHS = (1, 2, 5, 10, 25, 50)
"""The paper's values of k."""


@final
class UnrollLength(Figure):
    """Discovered GVFs with short and long unrolls."""

    name = "unroll-length"
    summary = "final and average return over the number of unrolled inner updates"
    reference = "10"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, "discovered", str(length), unroll_length=length) for length in UNROLL_LENGTHS]

    def draw(self, results: Results, path: Path) -> None:
        draw_study(results, path, "unrolled inner updates")
