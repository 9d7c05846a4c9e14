"""Draw the learning curves of `engine.md` and `one_file.md`, and write their tables, from what `results/` keeps.

With `--train [EXAMPLE ...]`, first run these examples of the engine, or all, with every seed whose curve is not kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

RESULTS = Path(__file__).resolve().parent / "results"
COLORS = ("#c0392b", "#2c69b0", "#868c98", "#7a54be")


@dataclass(frozen=True)
class Example:
    """An example, the variants that are compared, and what is drawn of them."""

    name: str
    """Module in `examples/`."""
    variants: dict[str, str]
    """Command-line options by the name of a variant."""
    panels: dict[str, str]
    """Labels of the columns that are drawn, over the steps; the table is on the first."""
    steps: str = "environment steps"
    """Label of the horizontal axis."""
    window: int = 1
    """Rows that the curves of the first panel are averaged over."""
    optimal: float | None = None
    """Height of a line in the first panel."""
    seeds: int = 5

    @property
    def folder(self) -> Path:
        return RESULTS / self.name.replace(".", "/")

    def file(self, variant: str, seed: int) -> Path:
        return self.folder / f"{variant.replace(' ', '-')}-{seed}.csv"

    def curves(self, variant: str) -> list[pd.DataFrame]:
        """A frame per seed."""
        return [pd.read_csv(self.file(variant, seed)) for seed in range(self.seeds)]


EXAMPLES = (
    Example(
        "engine.meta_discount",
        {
            "meta-learned": "",
            "fixed at the start": "--meta-learning-rate 0",
            "fixed at the outer loss": "--meta-learning-rate 0 --gamma 0.98 --lambda_ 0.999",
        },
        {"return": "mean return", "gamma": "discount γ", "lambda": "λ"},
        optimal=3.0,
    ),
    Example(
        "engine.intrinsic_reward",
        {"learned intrinsic rewards": "", "without": "--scale 0"},
        {"return": "mean return", "intrinsic_reward": "mean of |intrinsic reward|"},
        optimal=3.0,
    ),
    Example(
        "engine.bootstrapped",
        {
            "bootstrapped": "",
            "meta-gradient": "--method meta-gradient",
            "fixed at 0.05": "--method fixed",
            "fixed at 0.2": "--method fixed --entropy-coef 0.2",
        },
        {"reward": "mean reward", "entropy_coef": "entropy coefficient"},
        steps="pulls",
        window=18,  # two changes of the best arm
    ),
    Example(
        "engine.random_predictions",
        {"random predictions": "", "random GVFs": "--task random"},
        {"return": "mean return of 100 episodes"},
        optimal=3.0,
    ),
    Example(
        "discovery_in_one_file",
        {"one file": ""},
        {"sampled": "mean return, sampled actions", "greedy": "mean return, most likely actions"},
        optimal=3.0,
        seeds=3,
    ),
)


def train(example: Example) -> None:
    """Run an example with every variant and seed whose curve is not kept."""
    for seed in range(example.seeds):
        for variant, options in example.variants.items():
            file = example.file(variant, seed)
            if not file.exists():
                words = f"-m examples.{example.name} --seed {seed} --output {file} {options}".split()
                subprocess.run([sys.executable, *words], check=True, cwd=RESULTS.parents[1])


def write_table(example: Example) -> None:
    """Means over all of training and over its last tenth, with the lowest and the highest seed."""
    column, label = next(iter(example.panels.items()))
    rows = {}
    for variant in example.variants:
        values = [curve[column] for curve in example.curves(variant)]
        parts = values, [one.tail(max(1, len(one) // 10)) for one in values]
        means = [np.array([one.mean() for one in part]) for part in parts]
        rows[variant] = [f"{one.mean():.2f} ({one.min():.2f} … {one.max():.2f})" for one in means]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["All of training", "Last tenth"])
    table.to_csv(example.folder.with_suffix(".csv"), index_label=label[:1].upper() + label[1:])


def draw(example: Example) -> None:
    """A panel for each column: seeds as thin lines, their mean as a thick one."""
    figure = Figure(figsize=(4.2 * len(example.panels), 3.4), layout="constrained")
    panels = figure.subplots(1, len(example.panels), squeeze=False)[0]
    for axes, (column, label) in zip(panels, example.panels.items(), strict=True):
        window = example.window if axes is panels[0] else 1
        for variant, color in zip(example.variants, COLORS, strict=False):
            curves = [one.rolling(window).mean().dropna(subset="steps") for one in example.curves(variant)]
            for one in curves:
                axes.plot(one["steps"], one[column], color=color, linewidth=0.6, alpha=0.35)
            rows = min(map(len, curves))  # some runs were stopped earlier
            mean = np.nanmean([one[column].to_numpy()[:rows] for one in curves], axis=0)
            axes.plot(curves[0]["steps"][:rows], mean, color=color, linewidth=2.0, label=variant)
        axes.set(xlabel=example.steps, ylabel=label)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    if example.optimal is not None:
        panels[0].axhline(example.optimal, color=COLORS[2], linewidth=1.0, linestyle="--", label="optimal")
    panels[0].legend(frameon=False, loc="best", fontsize=9)
    figure.savefig(example.folder.with_suffix(".png"), dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", nargs="*", metavar="EXAMPLE", help="first run these, such as engine.bootstrapped")
    wanted = parser.parse_args().train
    for example in EXAMPLES:
        if wanted is not None and example.name.startswith("engine.") and (not wanted or example.name in wanted):
            train(example)
        if len(example.variants) > 1:
            write_table(example)
        draw(example)


if __name__ == "__main__":
    main()
