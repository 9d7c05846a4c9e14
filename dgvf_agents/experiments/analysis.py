"""From finished runs to result tables: a pure function of the run folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.metrics import MEASURES, Curve, Measure, RunMetrics
from dgvf_agents.experiments.ranking import ranking_rows
from dgvf_agents.experiments.runs import Cell, read_mark
from dgvf_agents.experiments.settings import is_trial
from dgvf_agents.experiments.statistics import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    mean,
    probability_of_improvement,
)
from dgvf_agents.experiments.tables import QUANTITIES, Results, make_table
from dgvf_agents.experiments.worlds import game_of_world, reference_of
from dgvf_agents.train.folder import RunFolder, read_evaluations

BAND_POINTS = 150
"""Points of a mean curve at most."""


def analyze(experiment: Experiment, cells: Sequence[Cell], earlier: Results | None = None) -> Results:
    """The tables of an experiment.

    Args:
        experiment: what is compared and chosen.
        cells: finished ones.
        earlier: tables whose runs are added, none of them among the cells.

    Raises:
        FileNotFoundError: a cell has no metrics.
        ValueError: runs of a world have no measure of return in common.
    """
    earlier = earlier or Results()
    worlds = dict.fromkeys(cell.setting.world for cell in cells)
    read = [run for world in worlds for run in _read_runs([cell for cell in cells if cell.setting.world == world])]
    runs = _joined([earlier.cells, make_table("cells", [run.cell_row() for run in read])])
    curves = _joined([earlier.curves, make_table("curves", [row for run in read for row in run.curve_rows()])])
    times = make_table("times", [row for run in read for row in run.time_rows()])
    encoder_steps = make_table("encoder_steps", [row for run in read for row in run.encoder_step_rows()])
    evaluations = make_table("evaluations", [row for run in read for row in run.evaluation_rows()])
    strata = dict(tuple(runs.groupby("world", sort=False)))
    for world, rows in strata.items():
        if rows["measure"].nunique() > 1:
            found = " and ".join(sorted(rows["measure"].unique()))
            raise ValueError(f"runs on {world} must have one measure of return in common, got {found}")
    improvements, top_games = ranking_rows(runs, experiment.ranking)
    choices = [choice for rows in strata.values() for choice in experiment.choices(rows)]
    strata |= _normalized(list(strata.values()))
    compared = (
        strata if not experiment.chooses_with_trials else {name: _without_trials(s) for name, s in strata.items()}
    )
    return Results(
        runs,
        curves,
        _stacked([earlier.times, times]),
        _stacked([earlier.encoder_steps, encoder_steps]),
        make_table("bands", _bands(curves)),
        make_table("summary", [row for name, rows in strata.items() for row in _summary(name, rows)]),
        make_table(
            "comparisons",
            [row for name, rows in compared.items() for row in _comparisons(name, rows, experiment.reference)],
        ),
        make_table("improvements", improvements),
        make_table("top_games", top_games),
        make_table("choices", choices),
        _stacked([earlier.evaluations, evaluations]),
    )


def _stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows; concatenating empty tables is deprecated in pandas."""
    return pd.concat([table for table in tables if not table.empty] or tables[:1], ignore_index=True)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows, those of a world together."""
    rows = _stacked(tables)
    return _stacked([of_world for _, of_world in rows.groupby("world", sort=False)] or [rows])


@final
@dataclass(frozen=True)
class _Run:
    """A finished cell and its metrics."""

    cell: Cell
    metrics: RunMetrics
    measure: Measure

    @property
    def key(self) -> tuple[str, str, int]:
        """World, setting and seed."""
        return self.cell.setting.world, self.cell.setting.label, self.cell.seed

    @property
    def curve(self) -> Curve:
        return self.metrics.curves[self.measure]

    def cell_row(self) -> tuple[Any, ...]:
        total = self.cell.config.steps
        returns = self.curve.final_return(total), self.curve.average_return(total)
        return (*self.key, self.metrics.total_steps, self.measure, *returns)

    def curve_rows(self) -> list[tuple[Any, ...]]:
        return [(*self.key, s, _rounded(value)) for s, value in zip(self.curve.steps, self.curve.returns, strict=True)]

    def time_rows(self) -> list[tuple[Any, ...]]:
        """Of a population's member, its share of the population's wall time."""
        steps = self.curve.steps
        seconds = self.metrics.seconds_at(steps) / read_mark(self.cell.folder).members
        return [(*self.key, *time) for time in zip(steps, np.round(seconds, 2), strict=True)]

    def encoder_step_rows(self) -> list[tuple[Any, ...]]:
        """One row; none if the run did not record the length of its updates."""
        steps, lengths = self.metrics.encoder_steps.T
        early = lengths[steps <= self.cell.config.steps / 10]
        return [(*self.key, *(_rounded(float(np.mean(of))) for of in (early, lengths)))] if len(early) else []

    def evaluation_rows(self) -> list[tuple[Any, ...]]:
        """None if the run did not record its evaluation episodes."""
        found = read_evaluations(RunFolder(self.cell.folder).evaluations_file)
        return [
            (*self.key, one.steps, _spaced(map(_rounded, one.returns.tolist())), _spaced(one.lengths.tolist()))
            for one in found
        ]


def _read_runs(cells: Sequence[Cell]) -> list[_Run]:
    """The runs of one world."""
    metrics = [RunMetrics.read(cell.folder) for cell in cells]
    measure = _common_measure(cells, metrics)
    return [_Run(cell, of_cell, measure) for cell, of_cell in zip(cells, metrics, strict=True)]


def _spaced(numbers: Iterable[float]) -> str:
    return " ".join(str(number).removesuffix(".0") for number in numbers)


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _common_measure(cells: Sequence[Cell], metrics: Sequence[RunMetrics]) -> Measure:
    """Evaluation if every run of a world has it; else training, if its environments are the same.

    On Atari training comes first: its scores are those of whole games, unclipped, and evaluations are few.
    """
    lacking = {m: [c.name for c, known in zip(cells, metrics, strict=True) if m not in known.curves] for m in MEASURES}
    on_atari = game_of_world(cells[0].setting.world) is not None
    order: tuple[Measure, ...] = ("training", "evaluation") if on_atari else ("evaluation",)
    if best := next((measure for measure in order if not lacking[measure]), None):
        return best
    if any(cell.config.env_kwargs != cell.config.evaluation_kwargs for cell in cells):
        reason = "runs must have eval/mean_reward, since training differs from evaluation"
        raise ValueError(f"{reason}, got none in {', '.join(lacking['evaluation'])}")
    if lacking["training"]:
        raise ValueError(f"runs must have finished an episode, got none in {', '.join(lacking['training'])}")
    return "training"


def _bands(curves: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The mean curve of each setting over the steps that all of its seeds have reached."""
    rows = []
    for (world, label), of_setting in curves.groupby(["world", "setting"], sort=False):
        seeds = [
            Curve(points["steps"].to_numpy(), points["mean_return"].to_numpy())
            for _, points in of_setting.groupby("seed", sort=False)
        ]
        first, last = max(curve.steps[0] for curve in seeds), min(curve.steps[-1] for curve in seeds)
        points = min(BAND_POINTS, max(len(curve.steps) for curve in seeds))
        steps = np.unique(np.linspace(first, last, points).round().astype(int))
        values = np.stack([curve.at(steps) for curve in seeds], axis=-1)
        numbers = zip(steps, values.mean(axis=-1), *bootstrap_interval(mean, [values]), strict=True)
        rows += [(world, label, step, *map(_rounded, estimate)) for step, *estimate in numbers]
    return rows


def _without_trials(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[~runs["setting"].map(is_trial).astype(bool)]


def _normalized(by_world: Sequence[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Normalized returns of the settings that every world has, as `all`; nothing if they cannot be compared."""
    if len(by_world) < 2:
        return {}
    references = [reference_of(runs["world"].iloc[0]) for runs in by_world]
    common = set.intersection(*(set(runs["setting"]) for runs in by_world))
    if not common or any(reference.random is None for reference in references):
        return {}
    columns = [f"{quantity}_return" for quantity in QUANTITIES]
    kept = [runs[runs["setting"].isin(common)].copy() for runs in by_world]
    for runs, reference in zip(kept, references, strict=True):
        runs[columns] = runs[columns].map(reference.normalized)
    return {"all": pd.concat(kept)}


def _strata(runs: pd.DataFrame, quantity: str) -> dict[str, list[np.ndarray]]:
    """Returns by setting, an array of seeds for each world."""
    return {
        label: [seeds.to_numpy() for _, seeds in rows.groupby("world", sort=False)[f"{quantity}_return"]]
        for label, rows in runs.groupby("setting", sort=False)
    }


def _summary(name: str, runs: pd.DataFrame) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for quantity in QUANTITIES:
        for label, strata in _strata(runs, quantity).items():
            count = sum(map(len, strata))
            rows.append((name, label, quantity, count, *estimate(mean, strata), *estimate(interquartile_mean, strata)))
    return rows


def _comparisons(name: str, runs: pd.DataFrame, reference: str | None) -> list[tuple[Any, ...]]:
    """Each setting beside the reference, if that was run."""
    rows: list[tuple[Any, ...]] = []
    for quantity in QUANTITIES:
        strata = _strata(runs, quantity)
        if reference is None or reference not in strata:
            continue
        for other in strata:
            if other != reference:
                win = estimate(probability_of_improvement, [*strata[reference], *strata[other]])
                rows.append((name, quantity, reference, other, *win))
    return rows
