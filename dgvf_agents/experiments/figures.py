"""Figures from tables of runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import figure as figures
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from dgvf_agents.experiments.catalog import Figure
from dgvf_agents.experiments.settings import EXTERNAL, MINATAR, game_of_world, reference_of, title_of_world
from dgvf_agents.experiments.statistics import SEEDS_FOR_INTERVALS, Estimate, estimate, mean_of_worlds
from dgvf_agents.storage.files import replacing
from dgvf_agents.train.recorder import GRAY, LINEAR_BELOW, dress

_STYLES = pd.read_csv(Path(__file__).with_name("styles.csv"), index_col="setting")
NAMES, COLORS = (_STYLES[column].dropna().to_dict() for column in ("name", "color"))
"""Names of settings in pictures, and the paper's colors of its methods, the same in every picture."""
_RED = "#c0392b"
_OTHER_COLORS = ("#e08a1e", "#16a2b8", "#d6619e", "#8a9a2b", "#8c5a3c", "#5d6d7e")


def draw_runs(table: pd.DataFrame, path: Path, figure: Figure = "curves", title: str | None = None) -> None:
    """Draw runs as PNG and PDF, atomically: panels for each world, one if there is a title.

    Args:
        table: as by `tables_of`.
        path: the PNG file.
        figure: what is drawn.
        title: of the panels.
    """
    panels: list[tuple[str, pd.DataFrame, str]] = []
    for world, rows in table.groupby("world", sort=False):
        if figure == "studies":
            panels += [
                (str(world), rows, letter) for letter in ("k", "d") if rows["label"].str.startswith(letter).any()
            ]
        else:
            groups = rows["label"].map(_group) if title is None else pd.Series(title, rows.index)
            panels += [(str(world), of, str(group)) for group, of in rows.groupby(groups, sort=False)]
    columns = min(2, len(panels))
    height = -(-len(panels) // columns)
    canvas = figures.Figure(figsize=(0.6 + 4.4 * columns, 0.6 + 3.4 * height), layout="constrained")
    for place, (world, rows, part) in enumerate(panels, 1):
        axes = canvas.add_subplot(height, columns, place)
        if figure == "studies":
            _draw_study(axes, rows, part)
        else:
            _draw_curves(axes, rows)
        _dress(axes, world, rows, part if figure == "curves" else "")
    named = [(str(line.get_label()), line) for axes in canvas.axes for line in axes.get_lines()]
    shown = {label: line for label, line in named if not label.startswith("_")}
    if len(panels) > 1 and all(shown.get(label, line).get_color() == line.get_color() for label, line in named):
        canvas.legend(shown.values(), shown, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    else:
        for axes in canvas.axes:
            axes.legend(frameon=False, fontsize=8)
    save(canvas, path)


def _draw_curves(axes: Axes, rows: pd.DataFrame) -> None:
    """Seeds as thin lines, on top their mean, or median on a logarithmic axis, with its interval for enough seeds."""
    world = rows["world"].iloc[0]
    for i, (label, of) in enumerate(rows.groupby("label", sort=False)):
        words = str(label).removeprefix(f"{_group(str(label))}: ")
        key = words.partition(", ")[0]
        color = COLORS.get(key, _OTHER_COLORS[i % len(_OTHER_COLORS)])
        steps = max(of["curve"], key=len)[:, 0]
        seeds = np.stack([np.interp(steps, *curve.T) for curve in of["curve"]])
        for seed in seeds:
            axes.plot(steps, seed, color=color, linewidth=0.6, alpha=0.3)
        middle, low, high = np.array([_middle(world, at) for at in seeds.T]).T
        axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(steps, middle, color=color, linewidth=1.9, label=NAMES.get(key, words))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps" if game_of_world(world) is None else "agent steps of 4 frames")


def _group(label: str) -> str:
    """Settings with the same one share a panel: the part before a colon, or the one after a comma."""
    return label.partition(":")[0] if ":" in label else label.partition(", ")[2]


def _draw_study(axes: Axes, rows: pd.DataFrame, letter: str) -> None:
    """Final and average returns over the numbers in labels such as `k = 10`."""
    world = rows["world"].iloc[0]
    numbers = rows["label"].str.extract(rf"^{letter} = (\d+)$", expand=False).dropna().astype(int)
    for name, style, marker in (("average", "-", "o"), ("final", "--", "s")):
        returns = rows.loc[numbers.index, name]
        axes.scatter(numbers, returns, color=_RED, marker=marker, s=12, alpha=0.3, linewidths=0)
        middle = returns.groupby(numbers).agg(lambda seeds: _middle(world, seeds.to_numpy()).value)
        axes.plot(middle, style, color=_RED, marker=marker, markersize=5, label=name)
        myopic = rows.loc[rows["label"] == "myopic", name].to_numpy()
        if letter == "k" and len(myopic):
            level = _middle(world, myopic).value
            axes.axhline(level, color=_OTHER_COLORS[0], linewidth=1.2, linestyle=style, label=f"{name}, myopic")
    axes.set_xscale("log")
    axes.set_xticks(middle.index, middle.index.astype(str))
    axes.set_xticks([], minor=True)
    axes.set_xlabel({"k": "unrolled inner updates k", "d": "number of questions d"}[letter])


def _middle(world: str, seeds: np.ndarray) -> Estimate:
    """The mean of returns with its interval; on a logarithmic axis the median seed, without one."""
    logarithmic = reference_of(world).logarithmic
    if len(seeds) >= SEEDS_FOR_INTERVALS and not logarithmic:
        return estimate(mean_of_worlds, [seeds])
    middle = np.quantile(seeds, 0.5, method="inverted_cdf") if logarithmic else np.mean(seeds)
    return Estimate(float(middle), math.nan, math.nan)


def _dress(axes: Axes, world: str, rows: pd.DataFrame, part: str) -> None:
    reference = reference_of(world)
    if reference.optimal is not None and game_of_world(world) is None:
        label = "published actor-critic" if world in MINATAR else "threshold" if world in EXTERNAL else "optimal"
        axes.axhline(reference.optimal, color=GRAY, linewidth=1.0, linestyle=":", label=label)
    dress(axes, reference.logarithmic)
    if reference.logarithmic:
        axes.set_ylim(top=-LINEAR_BELOW)
    counts = rows.groupby("label").size()
    seeds = str(counts.min()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    counted = "run" if rows.duplicated(["label", "seed"]).any() else "seed"  # on several processors
    title = f"{title_of_world(world)}, {seeds} {counted}{'' if seeds == '1' else 's'}"
    axes.set_title(f"{title}, {part}" if part else title, fontsize=10)
    axes.set_ylabel("median return" if reference.logarithmic else "mean return")


def save(figure: figures.Figure, path: Path) -> None:
    """PNG for pages, and PDF beside it for print, with fonts that publishers take."""
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=130)
    with replacing(path.with_suffix(".pdf")) as unfinished, rc_context({"pdf.fonttype": 42}):
        figure.savefig(unfinished, metadata={"CreationDate": None})  # equal records give equal files
