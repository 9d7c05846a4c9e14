"""From finished run folders to result tables: a pure function of the folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgvf_agents.experiments.cell import Cell
from dgvf_agents.experiments.cell_folder import read_config, read_mark
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.results import (
    QUANTITIES,
    BandRow,
    CellRow,
    ComparisonRow,
    CurveRow,
    Quantity,
    Results,
    SummaryRow,
)
from dgvf_agents.experiments.run_metrics import Curve, Measure, RunMetrics
from dgvf_agents.experiments.statistics import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    mean,
    probability_of_improvement,
)
from dgvf_agents.experiments.worlds import game_of_world, reference_of

BAND_POINTS = 150
"""Points of a mean curve at most."""


def analyze(figure: Figure, cells: Sequence[Cell], earlier: Results | None = None) -> Results:
    """The tables of an experiment.

    Args:
        figure: says what is compared and chosen.
        cells: finished ones.
        earlier: tables whose runs are to be in these as well, none of them among the cells.

    Raises:
        FileNotFoundError: a cell has no metrics.
        ValueError: runs of a world have no measure of return in common.
    """
    earlier = earlier or Results()
    results = Results()
    for world in dict.fromkeys([*earlier.worlds(), *(cell.setting.world for cell in cells)]):
        results.cells.extend(row for row in earlier.cells if row.world == world)
        results.curves.extend(row for row in earlier.curves if row.world == world)
        if ours := [cell for cell in cells if cell.setting.world == world]:
            _add_runs(results, ours)
        _check_measures(results, world)
        _add_bands(results, world)
        rows = [row for row in results.cells if row.world == world]
        _add_statistics(results, world, figure.reference, {world: rows}, CellRow.value)
        results.choices.extend(figure.choices(world, rows))
    if len(results.worlds()) > 1:
        _add_overall(results, figure.reference)
    return results


def provenance(command: str, cells: Sequence[Cell], missing: Sequence[Cell]) -> dict[str, Any]:
    """Where results come from: command, machines, wall times and configurations.

    Args:
        command: what is typed to get these results.
        cells: those that the results hold.
        missing: those that they lack.
    """
    marks = [read_mark(cell.folder) for cell in cells]
    first: dict[str, Cell] = {}
    for cell in cells:
        first.setdefault(cell.setting.folder_name, cell)
    made: list[dict[str, Any]] = []
    for mark in marks:
        machine = {"versions": mark.versions, "hardware": mark.hardware}
        known = next((m for m in made if {k: m[k] for k in machine} == machine), None)
        if known is None:
            made.append(known := {**machine, "runs": 0})
        known["runs"] += 1
    return {
        "command": command,
        "wall_seconds": sum(mark.wall_seconds for mark in marks),
        "made_with": made,
        "missing": [cell.name for cell in missing],
        "runs": [
            {
                "run": cell.name,
                "command": mark.command,
                "wall_seconds": mark.wall_seconds,
            }
            for cell, mark in zip(cells, marks, strict=True)
        ],
        "configurations": {name: dataclasses.asdict(read_config(cell.folder)) for name, cell in first.items()},
    }


def joined_provenance(earlier: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Where results come from that hold the runs of two provenances.

    Raises:
        ValueError: a run is in both, or a setting has another configuration in each.
    """
    both = sorted({run["run"] for run in earlier["runs"]} & {run["run"] for run in ours["runs"]})
    if both:
        raise ValueError(f"results to be extended must not hold these runs already, got {both[0]} in both")
    configurations = dict(earlier["configurations"])
    for name, config in ours["configurations"].items():
        known = {**configurations.setdefault(name, config), "seed": config["seed"]}
        if differing := [field for field in config if known.get(field) != config[field]]:
            raise ValueError(
                f"results to be extended must have the configuration of {name}, got another {differing[0]}"
            )
    held = {run["run"] for run in ours["runs"]}
    return {
        "command": " && ".join(dict.fromkeys([earlier["command"], ours["command"]])),
        "wall_seconds": earlier["wall_seconds"] + ours["wall_seconds"],
        "made_with": [*earlier["made_with"], *ours["made_with"]],
        "missing": [*(name for name in earlier["missing"] if name not in held), *ours["missing"]],
        "runs": [*earlier["runs"], *ours["runs"]],
        "configurations": configurations,
    }


def _check_measures(results: Results, world: str) -> None:
    measures = sorted({row.measure for row in results.cells if row.world == world})
    if len(measures) > 1:
        raise ValueError(f"runs on {world} must have one measure of return in common, got {' and '.join(measures)}")


def _add_runs(results: Results, cells: Sequence[Cell]) -> None:
    """Cells and curves of one world."""
    metrics = [RunMetrics.read(cell.folder) for cell in cells]
    measure = _common_measure(cells, metrics)
    for cell, metric in zip(cells, metrics, strict=True):
        curve, key = metric.curves[measure], (cell.setting.world, cell.setting.label, cell.seed)
        total = cell.config.steps
        results.cells.append(
            CellRow(*key, metric.total_steps, measure, curve.final_return(total), curve.average_return(total))
        )
        results.curves.extend(
            CurveRow(*key, int(steps), float(f"{value:.6g}"))
            for steps, value in zip(curve.steps, curve.returns, strict=True)
        )


def _common_measure(cells: Sequence[Cell], metrics: Sequence[RunMetrics]) -> Measure:
    """Evaluation where every run of a world has it; training where they are one world and the same rewards.

    On Atari the other way around: training's scores are those of whole games, unclipped, and evaluations are few.
    """
    on_atari = game_of_world(cells[0].setting.world) is not None
    order: tuple[Measure, ...] = ("training", "evaluation") if on_atari else ("evaluation",)
    for measure in order:
        if all(measure in metric.curves for metric in metrics):
            return measure
    lacking = [c.name for c, m in zip(cells, metrics, strict=True) if "evaluation" not in m.curves]
    if any(cell.config.env_kwargs != cell.config.evaluation_kwargs for cell in cells):
        raise ValueError(
            f"runs must have eval/mean_reward, since training differs from evaluation, got none in {', '.join(lacking)}"
        )
    silent = [c.name for c, m in zip(cells, metrics, strict=True) if "training" not in m.curves]
    if silent:
        raise ValueError(f"runs must have finished an episode, got none in {', '.join(silent)}")
    return "training"


def _add_bands(results: Results, world: str) -> None:
    """The mean curve of each setting, where all of its seeds have values."""
    for label in results.settings(world):
        seeds: dict[int, list[CurveRow]] = {}
        for row in results.curves:
            if (row.world, row.setting) == (world, label):
                seeds.setdefault(row.seed, []).append(row)
        curves = [
            Curve(np.array([row.steps for row in rows]), np.array([row.mean_return for row in rows]))
            for rows in seeds.values()
        ]
        first, last = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
        points = min(BAND_POINTS, len(curves[0].steps))
        steps = np.unique(np.linspace(first, last, points).round().astype(int))
        values = np.stack([curve.at(steps) for curve in curves], axis=-1)
        low, high = bootstrap_interval(mean, [values])
        numbers = zip(steps, values.mean(axis=-1), low, high, strict=True)
        results.bands.extend(BandRow(world, label, int(s), *(_rounded(x) for x in row)) for s, *row in numbers)


def _rounded(number: float) -> Any:
    return None if np.isnan(number) else float(f"{number:.6g}")


def _add_overall(results: Results, reference: str | None) -> None:
    """All worlds together, normalized, for settings that every world has."""
    worlds = results.worlds()
    common = [label for label in results.settings(worlds[0]) if all(label in results.settings(w) for w in worlds)]
    rows = {w: [row for row in results.cells if row.world == w and row.setting in common] for w in worlds}

    def value(row: CellRow, quantity: Quantity) -> float:
        return reference_of(row.world).normalized(row.value(quantity))

    if common and all(reference_of(world).random is not None for world in worlds):
        _add_statistics(results, "all", reference, rows, value)


def _add_statistics(
    results: Results,
    name: str,
    reference: str | None,
    rows: dict[str, list[CellRow]],
    value: Callable[[CellRow, Quantity], float],
) -> None:
    """Summary and comparisons of settings, whose strata are worlds."""
    labels = list(dict.fromkeys(row.setting for group in rows.values() for row in group))
    for quantity in QUANTITIES:
        strata = {
            label: [
                np.array([value(row, quantity) for row in group if row.setting == label]) for group in rows.values()
            ]
            for label in labels
        }
        for label in labels:
            middle, quartiles = (estimate(s, strata[label]) for s in (mean, interquartile_mean))
            results.summary.append(
                SummaryRow(
                    name,
                    label,
                    quantity,
                    sum(len(stratum) for stratum in strata[label]),
                    *(middle.value, middle.low, middle.high),
                    *(quartiles.value, quartiles.low, quartiles.high),
                )
            )
        for other in labels:
            if reference is not None and reference in labels and other != reference:
                win = estimate(probability_of_improvement, [*strata[reference], *strata[other]])
                results.comparisons.append(
                    ComparisonRow(name, quantity, reference, other, win.value, win.low, win.high)
                )
