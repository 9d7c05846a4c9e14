"""All methods at two learning rates, beyond the paper: does the rate decide which of them solve a world?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves_by
from dgvf_agents.experiments.results import Results
from dgvf_agents.runs.config import METHODS, World

TRIED: dict[World, tuple[dict[str, Any], dict[str, Any]]] = {
    "collect-objects": ({"learning_rate": 0.0005}, {"learning_rate": 0.003}),
    "collect-objects-small": ({"learning_rate": 0.0003}, {"learning_rate": 0.003}),
    "puddle-world": (
        {"learning_rate": 0.0007},
        {"learning_rate": 0.003, "ent_coef": 3.0, "final_ent_coef": 0.03},
    ),
}
"""A low rate, at which discovered questions learn, and what the search on plain A2C leads to (docs/results.md); on
`collect-objects`, which is too large for a search, the latter's learning rate alone."""


def low_rate(world: str) -> dict[str, Any]:
    """What the first of the two changes in the preset of a world."""
    return TRIED[cast("World", world)][0]


@final
class LearningRate(Figure):
    """Every method at a low learning rate and at the one that the search chooses."""

    name = "learning-rate"
    summary = "all methods at a low learning rate and at the one that the search chooses on plain A2C"

    def settings(self, world: str) -> list[Setting]:
        return [
            setting(world, method, _label(method, changes), **changes)
            for changes in TRIED[cast("World", world)]
            for method in METHODS
        ]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves_by(results, path, "learning_rate", "All methods at two learning rates")


def _label(method: str, changes: dict[str, Any]) -> str:
    """Without the entropy coefficient at the start, which follows from the one at the end."""
    return " ".join([method, *(f"{name}={value}" for name, value in changes.items() if name != "ent_coef")])
