"""Draw the learning curves and write the tables of the page on the engine, from what `results/engine/` keeps.

With `--train [EXAMPLE ...]`, first run the examples in `examples/engine/` with every seed, where no curve is kept yet.
With `--check`, fail unless the tables are up to date.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from generated import DOCS, check, table, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

RESULTS = DOCS / "results" / "engine"
COMMAND = "python docs/generate_engine_page.py"
COMPARISON = RESULTS / "torchopt.json"
COLORS = ("#c0392b", "#2c69b0", "#868c98", "#7a54be")


@dataclass(frozen=True)
class Example:
    """An example, the variants that are compared, and what is drawn of them."""

    name: str
    """Module in `examples/engine/`."""
    variants: dict[str, dict[str, Any]]
    """Settings by the name of a variant."""
    panels: dict[str, str]
    """Labels of the columns that are drawn, over the steps."""
    seeds: int = 5
    steps: str = "environment steps"
    """Label of the horizontal axis."""
    window: int = 1
    """Rows that the curves of the first panel are averaged over."""
    lines: dict[str, float] = field(default_factory=dict)
    """Labels and heights of horizontal lines in the first panel."""

    @property
    def figure(self) -> Path:
        return RESULTS / f"{self.name}.png"

    @property
    def table(self) -> Path:
        return RESULTS / f"{self.name}.txt"

    def file(self, variant: str, seed: int) -> Path:
        return RESULTS / self.name / f"{variant.replace(' ', '-')}-{seed}.csv"

    def curves(self, variant: str) -> dict[str, np.ndarray]:
        """Every column as an array `[seeds, rows]`."""
        found = []
        for seed in range(self.seeds):
            with self.file(variant, seed).open(encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            found.append({name: np.array([float(row[name]) for row in rows]) for name in rows[0]})
        return {name: np.stack([one[name] for one in found]) for name in found[0]}


EXAMPLES = (
    Example(
        "meta_discount",
        {
            "meta-learned": {},
            "fixed at the start": {"meta_learning_rate": 0.0},
            "fixed at the outer loss": {"meta_learning_rate": 0.0, "gamma": 0.98, "lambda_": 0.999},
        },
        {"return": "mean return", "gamma": "discount γ", "lambda": "λ"},
        lines={"optimal": 3.0},
    ),
    Example(
        "intrinsic_reward",
        {
            "learned intrinsic rewards": {},
            "without": {"scale": 0.0},
        },
        {"return": "mean return", "intrinsic_reward": "mean of |intrinsic reward|"},
        lines={"optimal": 3.0},
    ),
    Example(
        "bootstrapped",
        {
            "bootstrapped": {},
            "meta-gradient": {"method": "meta-gradient"},
            "fixed at 0.05": {"method": "fixed"},
            "fixed at 0.2": {"method": "fixed", "entropy_coef": 0.2},
        },
        {"reward": "mean reward", "entropy_coef": "entropy coefficient"},
        steps="pulls",
        window=18,  # two changes of the best arm
    ),
    Example(
        "random_predictions",
        {
            "random predictions": {},
            "random GVFs": {"task": "random"},
        },
        {"return": "mean return of 100 episodes"},
        lines={"optimal": 3.0},
    ),
)


def train(names: list[str]) -> None:
    """Run the examples of these names, or all of them."""
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(DOCS.parent))
    for example in EXAMPLES:
        if names and example.name not in names:
            continue
        module = importlib.import_module(f"examples.engine.{example.name}")
        for seed in range(example.seeds):
            for variant, settings in example.variants.items():
                file = example.file(variant, seed)
                if not file.exists():
                    module.main(module.Settings(seed=seed, output=file, **settings))
                    print(file.relative_to(DOCS), flush=True)


def complete() -> list[Example]:
    """The examples whose curves are kept."""
    return [e for e in EXAMPLES if all(e.file(v, s).exists() for v in e.variants for s in range(e.seeds))]


def pages() -> dict[Path, str]:
    """The tables that the page includes."""
    found = {example.table: result_table(example) for example in complete()}
    if COMPARISON.exists():
        found[COMPARISON.with_suffix(".txt")] = comparison_table(json.loads(COMPARISON.read_text(encoding="utf-8")))
    return found


def result_table(example: Example) -> str:
    """Means over all of training and over its last tenth."""
    column, label = next(iter(example.panels.items()))
    rows = []
    for variant in example.variants:
        values = example.curves(variant)[column]
        last = values[:, -max(1, values.shape[1] // 10) :]
        spread = [np.nanmean(part, axis=1) for part in (values, last)]
        rows.append((variant, *(f"{one.mean():.2f} ({one.min():.2f} … {one.max():.2f})" for one in spread)))
    title = label[:1].upper() + label[1:]
    return table((title, "All of training", "Last tenth"), rows, right=(1, 2)) + "\n"


def comparison_table(report: dict[str, Any]) -> str:
    rows = []
    for row in report["rows"]:
        if "error" in row:
            cells = ("–", "–", "–", "–")
        else:
            difference = f"{row['difference']:.0e}" if "difference" in row else "–"
            cells = (f"{1e3 * row['seconds']:.0f}", f"{row['mebibytes']:.0f}", f"{row['first']:.1f}", difference)
        rows.append((str(row["unroll_length"]), row["case"], *cells))
    headings = ("Steps", "Case", "ms", "MiB", "First call, s", "Relative difference")
    return table(headings, rows, right=(0, 2, 3, 4, 5)) + "\n"


def draw(example: Example) -> None:
    """A panel for each column: seeds as thin lines, their mean as a thick one."""
    figure = Figure(figsize=(4.2 * len(example.panels), 3.4), layout="constrained")
    all_axes = figure.subplots(1, len(example.panels), squeeze=False)[0]
    for i, (axes, (column, label)) in enumerate(zip(all_axes, example.panels.items(), strict=True)):
        for variant, color in zip(example.variants, COLORS, strict=False):
            draw_curves(axes, example.curves(variant), column, variant, color, 1 if i else example.window)
        axes.set(xlabel=example.steps, ylabel=label)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    for label, height in example.lines.items():
        all_axes[0].axhline(height, color="#868c98", linewidth=1.0, linestyle="--", label=label)
    all_axes[0].legend(frameon=False, loc="best", fontsize=9)
    figure.savefig(example.figure, dpi=130)


def draw_curves(
    axes: Axes, curves: dict[str, np.ndarray], column: str, label: str, color: str, window: int = 1
) -> None:
    weights = np.full(window, 1.0 / window)
    steps, values = (
        np.stack([np.convolve(one, weights, "valid") for one in part]) for part in (curves["steps"], curves[column])
    )
    steps = steps[0]
    for one in values:
        axes.plot(steps, one, color=color, linewidth=0.6, alpha=0.35)
    axes.plot(steps, np.nanmean(values, axis=0), color=color, linewidth=2.0, label=label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the tables are up to date; write nothing")
    parser.add_argument("--train", nargs="*", metavar="EXAMPLE", help="first run these examples, or all of them")
    arguments = parser.parse_args()
    if arguments.check:
        check(pages(), COMMAND, [example.figure for example in EXAMPLES])
        return
    if arguments.train is not None:
        train(arguments.train)
    write(pages())
    for example in complete():
        draw(example)


if __name__ == "__main__":
    main()
