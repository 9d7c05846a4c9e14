"""What the meta-gradient passes through, beyond the paper: the whole update procedure, or what stop-gradients leave."""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results


@final
class Convention(Figure):
    """Discovered GVFs under either convention."""

    name = "convention"
    summary = "exact against surrogate meta-gradients"
    reference = "exact"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, "discovered", kind, convention=kind) for kind in ("exact", "surrogate")]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Exact and surrogate meta-gradients")
