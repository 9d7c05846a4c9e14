"""The search for hyperparameters: learning rate and entropy on plain A2C, then the auxiliary coefficient.

The paper chose one learning rate and one entropy coefficient "according to the results of the A2C baseline" for all
agents. It says nothing of the factor on the answer loss, which only agents with a task have: that is searched next, on
discovered questions, under what A2C chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np

from dgvf_agents.experiments.cell import Setting, method_in, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_search
from dgvf_agents.experiments.results import CellRow, ChoiceRow, Results
from dgvf_agents.experiments.search_grid import SearchGrid

TOLERANCE = 0.02
"""Final returns that differ by less than this fraction of the best count as equal."""


def best_setting(rows: Sequence[CellRow]) -> ChoiceRow:
    """The setting to choose on one world.

    The mean final return over seeds decides. Settings within `TOLERANCE` of the best one's magnitude count as equally
    good, and among them the mean average return decides, that is, how fast they learned; then the order of `rows`.

    Raises:
        ValueError: `rows` is empty or of several worlds.
    """
    if len({row.world for row in rows}) != 1:
        raise ValueError(f"rows must be of one world, got {len(rows)} of {sorted({row.world for row in rows})}")
    seeds: dict[str, list[CellRow]] = defaultdict(list)
    for row in rows:
        seeds[row.setting].append(row)
    finals = {label: float(np.mean([row.final_return for row in group])) for label, group in seeds.items()}
    averages = {label: float(np.mean([row.average_return for row in group])) for label, group in seeds.items()}
    best = max(finals.values())
    equal = [label for label in finals if finals[label] >= best - TOLERANCE * abs(best)]
    chosen = max(equal, key=lambda label: averages[label])
    return ChoiceRow(rows[0].world, "", chosen, finals[chosen], averages[chosen])


@final
class Search(Figure):
    """Learning rate and entropy coefficient on plain A2C, then the auxiliary coefficient on discovered GVFs."""

    name = "search"
    summary = "learning rate and entropy coefficient chosen on plain A2C, then the auxiliary coefficient"

    def __init__(self, grid: SearchGrid | None = None) -> None:
        """
        Args:
            grid: what is tried; the paper's values when left out.
        """
        self.grid = grid or SearchGrid()

    def settings(self, world: str) -> list[Setting]:
        return [
            setting(
                world,
                "a2c",
                f"a2c learning_rate={rate} final_ent_coef={entropy}",
                learning_rate=rate,
                ent_coef=_at_the_start(world, entropy),
                final_ent_coef=entropy,
            )
            for rate in self.grid.learning_rates
            for entropy in self.grid.entropies
        ]

    def follow_up(self, world: str, rows: Sequence[CellRow]) -> list[Setting]:
        chosen = best_setting(_of("a2c", rows)).setting
        changes = next(dict(candidate.changes) for candidate in self.settings(world) if candidate.label == chosen)
        return [
            setting(
                world,
                "discovered",
                f"discovered auxiliary_coefficient={coefficient}",
                **changes,
                auxiliary_coefficient=coefficient,
            )
            for coefficient in self.grid.coefficients
        ]

    def choices(self, world: str, rows: Sequence[CellRow]) -> list[ChoiceRow]:
        searched = {"a2c": "learning_rate final_ent_coef", "discovered": "auxiliary_coefficient"}
        return [
            replace(best_setting(group), searched=fields)
            for method, fields in searched.items()
            if (group := _of(method, rows))
        ]

    def draw(self, results: Results, path: Path) -> None:
        draw_search(results, path)


def _at_the_start(world: str, final_ent_coef: float) -> float:
    """The entropy coefficient that is as many times the final one as in the preset."""
    usual = setting(world, "a2c").usual
    times = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
    return float(f"{times * final_ent_coef:.12g}")  # the preset's own, where the final one is: a run they share


def _of(method: str, rows: Sequence[CellRow]) -> list[CellRow]:
    return [row for row in rows if method_in(row.setting) == method]
