"""The short unrolls and the few questions that fail in the paper, at a low learning rate; beyond the paper.

At the learning rate of the preset random questions solve the small rooms as well (`learning-rate`), so how questions
are found cannot matter much there. At the low one it can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.learning_rate import low_rate
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results

USUAL = "k=10, d=128"
"""Label of the preset's unroll length and number of questions."""

_VARIED: dict[str, dict[str, Any]] = {
    USUAL: {},
    "k=1": {"unroll_length": 1},
    "k=2": {"unroll_length": 2},
    "d=2": {"questions": 2},
}


@final
class LowRate(Figure):
    """Discovered GVFs with k = 1 and k = 2 updates and with d = 2 questions, at the low rate of `learning-rate`."""

    name = "low-rate"
    summary = "unrolls of 1 and 2 updates, and 2 questions, at the low learning rate of the experiment `learning-rate`"
    reference = USUAL

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, "discovered", label, **low_rate(world), **changes) for label, changes in _VARIED.items()]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Short unrolls and few questions at a low learning rate")
