"""What result tables say of a setting on a world, as numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dgvf_agents.experiments.figures import NAMES
from dgvf_agents.experiments.settings import method_in
from dgvf_agents.experiments.statistics import SEEDS_FOR_INTERVALS, DifferenceTest, Estimate, difference_test
from dgvf_agents.experiments.tables import Quantity, Results, only, where
from dgvf_agents.experiments.worlds import SOLVED


def returns_of(results: Results, world: str, setting: str, quantity: Quantity) -> np.ndarray:
    """[seeds] returns of a setting, by seed."""
    cells = where(results.cells, world=world, setting=setting).sort_values("seed")
    return cells[f"{quantity}_return"].to_numpy(float)


def steps_to_solve(results: Results, world: str, setting: str) -> list[int | None]:
    """For each seed, the steps of the first evaluation that counts as solved; `None` if there is none."""
    seeds = where(results.curves, world=world, setting=setting).groupby("seed")
    solved = [points.loc[points["mean_return"] >= SOLVED[world], "steps"] for _, points in seeds]
    return [int(steps.iloc[0]) if len(steps) else None for steps in solved]


def seconds_to_solve(results: Results, world: str, setting: str) -> list[float | None]:
    """For each seed, the wall time at `steps_to_solve`; `None` if it is not solved or the time is not known."""
    rows = where(results.times, world=world, setting=setting).itertuples()
    times = {(row.seed, row.steps): row.seconds for row in rows}
    seeds = sorted(where(results.curves, world=world, setting=setting)["seed"].unique())
    found = steps_to_solve(results, world, setting)
    return [times.get((seed, steps)) for seed, steps in zip(seeds, found, strict=True)]


def ends_solved(results: Results, world: str, setting: str) -> list[bool]:
    """For each seed, whether its final return counts as solved."""
    return [bool(value >= SOLVED[world]) for value in returns_of(results, world, setting, "final")]


def mean_of(results: Results, world: str, setting: str, quantity: Quantity) -> Estimate:
    """The mean return of a setting's seeds; without an interval if there are fewer than `SEEDS_FOR_INTERVALS`."""
    row = only(results.summary, world=world, setting=setting, quantity=quantity)
    return shown(Estimate(row.mean, row.mean_low, row.mean_high), row.seeds)


def shown(estimate: Estimate, seeds: int) -> Estimate:
    """An estimate as pages and pictures show it: without an interval if seeds are few."""
    return estimate if seeds >= SEEDS_FOR_INTERVALS else Estimate(estimate.value, math.nan, math.nan)


def improvement_over(results: Results, world: str, other: str, quantity: Quantity) -> Estimate:
    """Probability that a run of the experiment's reference has a larger return than one of another setting."""
    row = only(results.comparisons, world=world, other=other, quantity=quantity)
    return Estimate(row.probability, row.low, row.high)


def number(value: float) -> str:
    """Three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def p_value(p: float) -> str:
    """Two digits."""
    return f"{p:.2g}"


def interval(estimate: Estimate) -> str:
    """`value [low, high]`; the value alone if there is no interval."""
    ends = "" if math.isnan(estimate.low) else f" [{number(estimate.low)}, {number(estimate.high)}]"
    return f"{number(estimate.value)}{ends}"


def every_seed(returns: Sequence[float] | np.ndarray) -> str:
    """Each seed's return; the lowest and the highest if there are so many seeds that they have an interval."""
    if len(returns) >= SEEDS_FOR_INTERVALS:
        return f"{number(min(returns))} to {number(max(returns))}"
    return ", ".join(map(number, returns))


def count_of(flags: Sequence[bool]) -> str:
    """`2 of 5`."""
    return f"{sum(flags)} of {len(flags)}"


@final
@dataclass(frozen=True)
class Evidence:
    """The tables of one experiment on one world, as far as a claim is about them."""

    results: Results
    experiment: str
    world: str
    settings: tuple[str, ...]
    """Labels, the allegedly better one first."""

    def name(self, label: str) -> str:
        """A setting in words."""
        symbol = {"questions": "d", "unroll-length": "k"}.get(self.experiment)
        return NAMES.get(label) or NAMES.get(method_in(label), label) if symbol is None else f"{symbol} = {label}"

    @property
    def seeds(self) -> int:
        """Seeds of the setting that has the fewest."""
        return min(len(returns_of(self.results, self.world, label, "final")) for label in self.settings)

    def tests(self, quantity: Quantity) -> list[DifferenceTest]:
        """The first setting's mean return beside each of the others.

        Raises:
            ValueError: a setting has fewer than two seeds.
        """
        first, *others = (returns_of(self.results, self.world, label, quantity) for label in self.settings)
        return [difference_test(first, other) for other in others]

    @property
    def smallest_p(self) -> float | None:
        """The smallest p-value that so many seeds allow; `None` if nothing is compared."""
        return max((test.smallest for test in self.tests("final")), default=None) if self.seeds > 1 else None

    def returns(self, quantity: Quantity) -> str:
        """Mean returns in words, those of the others with the p-value of their difference from the first."""
        means = [f"{self.name(s)} {interval(mean_of(self.results, self.world, s, quantity))}" for s in self.settings]
        tests = self.tests(quantity) if self.seeds > 1 else []
        found = [f" (p = {p_value(test.p)})" for test in tests] or [""] * len(means[1:])
        first, *others = means
        return f"{quantity} return: {', '.join([first, *map(''.join, zip(others, found, strict=True))])}"

    def ended(self, label: str) -> list[bool]:
        """For each seed, whether it ends solved."""
        return ends_solved(self.results, self.world, label)

    def reached(self, label: str) -> list[bool]:
        """For each seed, whether any evaluation counts as solved."""
        return [steps is not None for steps in steps_to_solve(self.results, self.world, label)]

    def counts(self, solved: Callable[[str], Sequence[bool]]) -> str:
        """Solved seeds of each setting, in words."""
        return ", ".join(f"{self.name(label)} {count_of(solved(label))}" for label in self.settings)
