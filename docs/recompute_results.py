"""Recompute the numbers of an experiment from its evaluation episodes, with the standard library alone.

python docs/recompute_results.py docs/results/EXPERIMENT

For every setting: mean final return (evaluations of the last tenth of training), mean average return (area under the
curve), and how many seeds end at the return that counts as solved. Then the largest deviation from `cells.csv`.
"""

from __future__ import annotations

import csv
import lzma
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0}
Run = tuple[str, str, int]
"""World, setting and seed."""


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def curves(folder: Path) -> dict[Run, list[tuple[int, float]]]:
    """Steps and mean return of every evaluation, by run."""
    found: dict[Run, list[tuple[int, float]]] = defaultdict(list)
    for part in sorted(folder.glob("evaluations*.csv.xz")):  # several, if the table is large
        with lzma.open(part, "rt", newline="") as file:
            for row in csv.DictReader(file):
                returns = [float(number) for number in row["episode_returns"].split()]
                found[row["world"], row["setting"], int(row["seed"])].append((int(row["steps"]), mean(returns)))
    return {run: sorted(curve) for run, curve in found.items()}


def final_return(curve: list[tuple[int, float]], total: int) -> float:
    """Mean over the last tenth of training."""
    return mean([value for steps, value in curve if steps > 0.9 * total])


def average_return(curve: list[tuple[int, float]], total: int) -> float:
    """Area under the curve, which is constant before its first and after its last point, divided by its length."""
    points = [(0, curve[0][1]), *curve, (total, curve[-1][1])]
    area = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))
    return area / total


def main(folder: Path) -> None:
    with (folder / "cells.csv").open(newline="") as file:
        cells = {(row["world"], row["setting"], int(row["seed"])): row for row in csv.DictReader(file)}
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    deviation = 0.0
    for run, curve in curves(folder).items():
        total = int(cells[run]["steps"])
        numbers = final_return(curve, total), average_return(curve, total)
        found[run[:2]].append(numbers)
        for name, number in zip(("final_return", "average_return"), numbers, strict=True):
            deviation = max(deviation, abs(number - float(cells[run][name])))
    for (world, setting), seeds in found.items():
        final, average = (mean([seed[i] for seed in seeds]) for i in range(2))
        ends = sum(seed[0] >= SOLVED[world] for seed in seeds) if world in SOLVED else "?"
        print(f"{world} {setting}: final {final:.4g}, average {average:.4g}, {ends} of {len(seeds)} seeds end solved")
    print(f"largest deviation from cells.csv: {deviation:.2g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
