"""What the meta-gradient passes through, beyond the paper: the whole update procedure, or what stop-gradients leave."""

from __future__ import annotations

from pathlib import Path
from typing import cast, final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.learning_rate import TRIED
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results
from dgvf_agents.train_config import World


@final
class Convention(Figure):
    """Discovered GVFs under either convention, at the low learning rate of `learning-rate`.

    At the higher one of the preset the small rooms are solved whatever the questions are.
    """

    name = "convention"
    summary = "exact against surrogate meta-gradients, at the low learning rate of the experiment `learning-rate`"
    reference = "exact"

    def settings(self, world: str) -> list[Setting]:
        low, _ = TRIED[cast("World", world)]
        return [setting(world, "discovered", kind, **low, convention=kind) for kind in ("exact", "surrogate")]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Exact and surrogate meta-gradients")
