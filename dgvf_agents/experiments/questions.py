"""Parameter study over the number of questions (paper, figure 5 and appendix, left)."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_study
from dgvf_agents.experiments.results import Results

QUESTIONS = (2, 8, 32, 64, 128)
"""The paper's values of d."""


@final
class Questions(Figure):
    """Discovered GVFs with few and many questions."""

    name = "questions"
    summary = "final and average return over the number of questions"
    reference = "128"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, "discovered", str(number), questions=number) for number in QUESTIONS]

    def draw(self, results: Results, path: Path) -> None:
        draw_study(results, path, "number of questions")
