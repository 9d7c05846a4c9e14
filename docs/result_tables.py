"""The committed tables of an experiment, and how their numbers are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from generated import DOCS

from dgvf_agents.experiments.results import ComparisonRow, Quantity, Results, SummaryRow

RESULTS = DOCS / "results"

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0, "atari/Pong": 0.0}
"""Mean return that counts as solved; on Atari a score that shows learning."""


def figure_of(name: str) -> str:
    """The experiment whose tables lie in a folder of `results/`."""
    return name.split("/")[0]


@dataclass(frozen=True)
class Experiment:
    """The tables of one experiment."""

    name: str
    """Of its folder."""
    results: Results
    provenance: dict

    @classmethod
    def read(cls, name: str) -> Experiment | None:
        """The committed tables; None where there are none."""
        folder = RESULTS / name
        if not (folder / "cells.csv").exists():
            return None
        return cls(name, Results.read(folder), json.loads((folder / "provenance.json").read_text()))

    @property
    def figure(self) -> str:
        """What `dgvf reproduce` calls it."""
        return figure_of(self.name)

    @property
    def worlds(self) -> list[str]:
        """In the order of the cells."""
        return self.results.worlds()

    @property
    def pictures(self) -> list[Path]:
        """The experiment's own first."""
        return sorted((RESULTS / self.name).glob(f"{self.figure}*.png"), key=lambda path: len(path.name))

    def first_at(self, world: str, setting: str) -> list[int | None]:
        """For each seed, the steps of the first evaluation that reached what counts as solved."""
        seeds: dict[int, int | None] = {}
        for row in self.results.curves:
            if (row.world, row.setting) == (world, setting):
                seeds.setdefault(row.seed, None)
                if seeds[row.seed] is None and row.mean_return >= SOLVED[world]:
                    seeds[row.seed] = row.steps
        return [seeds[seed] for seed in sorted(seeds)]

    def gets_solved(self, world: str, setting: str) -> list[bool]:
        """For each seed, whether any evaluation counts as solved."""
        return [steps is not None for steps in self.first_at(world, setting)]

    def ends_solved(self, world: str, setting: str) -> list[bool]:
        """For each seed, whether its final return counts as solved."""
        cells = [cell for cell in self.results.cells if (cell.world, cell.setting) == (world, setting)]
        return [cell.final_return >= SOLVED[world] for cell in sorted(cells, key=lambda cell: cell.seed)]

    def summary(self, world: str, setting: str, quantity: Quantity) -> SummaryRow:
        """A row of the summary."""
        return next(
            row for row in self.results.summary if (row.world, row.setting, row.quantity) == (world, setting, quantity)
        )

    def comparison(self, world: str, other: str, quantity: Quantity) -> ComparisonRow:
        """How the experiment's reference fares against another setting."""
        return next(
            row for row in self.results.comparisons if (row.world, row.other, row.quantity) == (world, other, quantity)
        )


def number(value: float) -> str:
    """Three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def interval(middle: float, low: float | None, high: float | None) -> str:
    """`mean [low, high]`; without the brackets where one seed gives no interval."""
    return number(middle) if low is None or high is None else f"{number(middle)} [{number(low)}, {number(high)}]"


def mean_interval(row: SummaryRow) -> str:
    """Of a summary's mean."""
    return interval(row.mean, row.mean_low, row.mean_high)


def count_of(flags: list[bool]) -> str:
    """`2 of 5`."""
    return f"{sum(flags)} of {len(flags)}"
