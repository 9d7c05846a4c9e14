"""What the meta-gradient passes through, beyond the paper: the whole update procedure, or what stop-gradients leave."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.learning_rate import low_rate
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results


@final
class Convention(Figure):
    """Discovered GVFs under either convention, at the low learning rate of `learning-rate`.

    At the higher one of the preset the small rooms are solved whatever the questions are.
    """

    name = "convention"
    summary = "exact against surrogate meta-gradients, at the low learning rate of the experiment `learning-rate`"
    reference = "exact"

    def settings(self, world: str) -> list[Setting]:
        return [
            setting(world, "discovered", kind, **low_rate(world), convention=kind) for kind in ("exact", "surrogate")
        ]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Exact and surrogate meta-gradients")
