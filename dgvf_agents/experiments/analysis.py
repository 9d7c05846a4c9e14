"""From finished runs to result tables: a pure function of the run folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgvf_agents.experiments.catalogue import Figure
from dgvf_agents.experiments.metrics import Curve, Measure, RunMetrics
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.statistics import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    mean,
    probability_of_improvement,
)
from dgvf_agents.experiments.tables import QUANTITIES, Results, make_table, where
from dgvf_agents.experiments.worlds import game_of_world, reference_of

BAND_POINTS = 150
"""Points of a mean curve at most."""


def analyze(figure: Figure, cells: Sequence[Cell], earlier: Results | None = None) -> Results:
    """The tables of an experiment.

    Args:
        figure: what is compared and chosen.
        cells: finished ones.
        earlier: tables whose runs are added, none of them among the cells.

    Raises:
        FileNotFoundError: a cell has no metrics.
        ValueError: runs of a world have no measure of return in common.
    """
    earlier = earlier or Results()
    worlds = list(dict.fromkeys([*earlier.worlds(), *(cell.setting.world for cell in cells)]))
    runs, curves = [make_table("cells")], [make_table("curves")]
    for world in worlds:
        runs.append(where(earlier.cells, world=world))
        curves.append(where(earlier.curves, world=world))
        if ours := [cell for cell in cells if cell.setting.world == world]:
            our_runs, our_curves = _read_runs(ours)
            runs.append(our_runs)
            curves.append(our_curves)
    runs_table, curves_table = (_joined(tables) for tables in (runs, curves))
    _check_measures(runs_table)
    by_world = [where(runs_table, world=world) for world in worlds]
    strata = list(zip(worlds, by_world, strict=True))
    if (overall := _normalized(by_world)) is not None:
        strata.append(("all", overall))
    return Results(
        runs_table,
        curves_table,
        make_table("bands", _bands(curves_table)),
        make_table("summary", [row for name, rows in strata for row in _summary(name, rows)]),
        make_table("comparisons", [row for name, rows in strata for row in _comparisons(name, rows, figure.reference)]),
        make_table("choices", [dataclasses.astuple(choice) for rows in by_world for choice in figure.choices(rows)]),
    )


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if not table.empty]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def _check_measures(runs: pd.DataFrame) -> None:
    for world, measures in runs.groupby("world", sort=False)["measure"]:
        if measures.nunique() > 1:
            found = " and ".join(sorted(measures.unique()))
            raise ValueError(f"runs on {world} must have one measure of return in common, got {found}")


def _read_runs(cells: Sequence[Cell]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cells and curves of one world."""
    metrics = [RunMetrics.read(cell.folder) for cell in cells]
    measure = _common_measure(cells, metrics)
    rows, points = [], []
    for cell, metric in zip(cells, metrics, strict=True):
        curve, key = metric.curves[measure], (cell.setting.world, cell.setting.label, cell.seed)
        total = cell.config.steps
        rows.append((*key, metric.total_steps, measure, curve.final_return(total), curve.average_return(total)))
        points += [(*key, steps, _rounded(value)) for steps, value in zip(curve.steps, curve.returns, strict=True)]
    return make_table("cells", rows), make_table("curves", points)


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _common_measure(cells: Sequence[Cell], metrics: Sequence[RunMetrics]) -> Measure:
    """Evaluation if every run of a world has it; else training, if its environments are the same.

    On Atari training comes first: its scores are those of whole games, unclipped, and evaluations are few.
    """
    on_atari = game_of_world(cells[0].setting.world) is not None
    order: tuple[Measure, ...] = ("training", "evaluation") if on_atari else ("evaluation",)
    for measure in order:
        if all(measure in metric.curves for metric in metrics):
            return measure

    def lacking(measure: Measure) -> str:
        return ", ".join(c.name for c, m in zip(cells, metrics, strict=True) if measure not in m.curves)

    if any(cell.config.env_kwargs != cell.config.evaluation_kwargs for cell in cells):
        reason = "runs must have eval/mean_reward, since training differs from evaluation"
        raise ValueError(f"{reason}, got none in {lacking('evaluation')}")
    if names := lacking("training"):
        raise ValueError(f"runs must have finished an episode, got none in {names}")
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
        points = min(BAND_POINTS, len(seeds[0].steps))
        steps = np.unique(np.linspace(first, last, points).round().astype(int))
        values = np.stack([curve.at(steps) for curve in seeds], axis=-1)
        numbers = zip(steps, values.mean(axis=-1), *bootstrap_interval(mean, [values]), strict=True)
        rows += [(world, label, step, *map(_rounded, estimate)) for step, *estimate in numbers]
    return rows


def _normalized(by_world: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    """Normalized returns of the settings that every world has; `None` if they cannot be compared."""
    references = [reference_of(runs["world"].iloc[0]) for runs in by_world]
    if len(by_world) < 2 or any(reference.random is None for reference in references):
        return None
    common = set.intersection(*(set(runs["setting"]) for runs in by_world))
    columns = [f"{quantity}_return" for quantity in QUANTITIES]
    kept = [runs[runs["setting"].isin(common)].copy() for runs in by_world]
    for runs, reference in zip(kept, references, strict=True):
        runs[columns] = runs[columns].map(reference.normalized)
    return pd.concat(kept) if common else None


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
            numbers = (dataclasses.astuple(estimate(s, strata)) for s in (mean, interquartile_mean))
            rows.append((name, label, quantity, sum(map(len, strata)), *(x for three in numbers for x in three)))
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
                rows.append((name, quantity, reference, other, *dataclasses.astuple(win)))
    return rows
