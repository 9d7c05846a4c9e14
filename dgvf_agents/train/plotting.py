"""Plots of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

from dgvf_agents.storage.atomic import replacing
from dgvf_agents.train.environments import ReferenceReturns

_GRAY = "#5c6270"
_RED = "#c0392b"
_LINEAR_BELOW = 10.0
"""Magnitude of returns below which a symmetric logarithmic scale is linear."""


def plot_learning_curve(
    path: Path,
    steps: Sequence[int],
    returns: Sequence[float],
    title: str,
    reference: ReferenceReturns | None = None,
    frames_per_step: int | None = None,
    evaluated: bool = False,
) -> None:
    """Write a learning curve as PNG, atomically.

    Args:
        path: the file.
        steps: environment steps.
        returns: mean return at each of the steps.
        title: title of the plot.
        reference: returns of other policies, drawn as lines; `None`: no lines.
        frames_per_step: frames per agent step on Atari, which adds an axis of frames at the top; `None` elsewhere.
        evaluated: whether the returns are of evaluations, not of training.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, returns, color="#2c69b0", linewidth=1.8)
    if reference is not None:
        _draw_reference(axes, reference, "human" if frames_per_step is not None else "optimal")
    measure = "return of the last 100 episodes" if frames_per_step is None else "score of the last 100 whole games"
    axes.set(title=title, ylabel="mean return in evaluation" if evaluated else f"mean {measure}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    _label_steps(axes, frames_per_step)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150)


def _draw_reference(axes: Axes, reference: ReferenceReturns, best: str) -> None:
    """Lines at the best return and at that of the random policy."""
    if reference.logarithmic:
        axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        lowest = min(axes.dataLim.y0, reference.random)
        axes.set_ylim(1.5 * lowest, max(reference.optimal, -_LINEAR_BELOW))
    for value, words in ((reference.optimal, best), (reference.random, "random")):
        axes.axhline(value, color=_GRAY, linewidth=1.0, linestyle="--")
        place = (axes.get_xlim()[1], value)
        axes.annotate(words, place, (-4, 3), textcoords="offset points", ha="right", color=_GRAY, fontsize=9)


def _label_steps(axes: Axes, frames_per_step: int | None) -> None:
    """Label the x axis: environment steps; on Atari agent steps, with frames at the top."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if frames_per_step is None:
        axes.set_xlabel("environment steps")
        return
    axes.set_xlabel("agent steps")
    count = frames_per_step
    both_ways = (lambda steps: np.multiply(steps, count), lambda frames: np.divide(frames, count))
    above = axes.secondary_xaxis("top", functions=both_ways)
    above.set_xlabel(f"frames, {frames_per_step} per step")
    above.xaxis.set_major_formatter(EngFormatter(sep=""))


@final
@dataclass(frozen=True, eq=False)
class Line:
    """Returns of one setting as a function of steps or of a parameter, over seeds."""

    label: str
    """Label in the legend."""
    band: np.ndarray
    """`[N, 4]`: x, ascending; mean over seeds, or the median if the panel is logarithmic; lower and upper bound of the
    mean's confidence interval, NaN if none is shown."""
    seeds: Sequence[np.ndarray]
    """`[M, 2]` each: x and return."""
    color: str = _RED
    dashed: bool = False


@final
@dataclass(frozen=True, eq=False)
class Panel:
    """Lines on one world."""

    title: str
    ylabel: str
    lines: Sequence[Line]
    optimal: float | None
    """Return of an optimal policy; `None`: no line."""
    logarithmic: bool = False
    """Whether returns are drawn on a logarithmic scale."""
    frames_per_step: int | None = None
    """Frames per agent step on Atari; `None` elsewhere."""


@final
@dataclass(frozen=True, eq=False)
class Bars:
    """A number for each of several things."""

    title: str
    names: Sequence[str]
    values: np.ndarray
    """`[N, 3]`: the number, lower and upper bound of its confidence interval, NaN if unknown."""
    color: str = _RED


@final
@dataclass(frozen=True, eq=False)
class Strip:
    """Numbers of several groups, such as the returns of every seed by setting."""

    title: str
    groups: Mapping[str, np.ndarray]
    """`[N]` numbers of each group, by its name."""
    threshold: float | None
    """Drawn as a line; the numbers at or above it are counted and filled. `None`: no line."""
    optimal: float | None
    """Return of an optimal policy; `None`: no line."""
    logarithmic: bool = False


@final
@dataclass(frozen=True, eq=False)
class HeatMap:
    """A number as a function of two parameters."""

    title: str
    values: pd.DataFrame
    """The number by the parameter on the y axis (index) and the one on the x axis (columns); NaN is not drawn."""
    marked: tuple[float, float]
    """Parameters on the x and the y axis of the cell to highlight."""
    logarithmic: bool = False
    """Whether the color scale is logarithmic."""


def plot_curves(path: Path, panels: Sequence[Panel], title: str, columns: int = 3) -> None:
    """Write learning curves: seeds as thin lines, the mean or median on top, and its interval if there is one.

    Args:
        path: the file, a PNG; a PDF is written beside it. Each is written atomically.
        panels: the panels, in rows of `columns`.
        title: title of the figure.
        columns: maximum number of panels per row.
    """
    figure, grid = _figure(len(panels), title, columns)
    for axes, panel in zip(grid, panels, strict=True):
        for line in panel.lines:
            for seed in line.seeds:
                axes.plot(*seed.T, color=line.color, linewidth=0.7, alpha=0.3)
            steps, mean, low, high = line.band.T
            axes.fill_between(steps, low, high, color=line.color, alpha=0.15, linewidth=0)
            axes.plot(steps, mean, color=line.color, linewidth=1.9, label=line.label)
        _dress(axes, panel)
        _label_steps(axes, panel.frames_per_step)
    mark, several = Line2D([], [], color=_GRAY, linewidth=0.7), any(len(line.seeds) > 1 for line in _lines(panels))
    _legend(figure, grid, _marks(panels, mark, several))
    _save(figure, path)


def plot_studies(path: Path, panels: Sequence[Panel], parameter: str) -> None:
    """Write parameter studies: seeds as faint points, the mean or median on top, and its interval if there is one.

    Args:
        path: the file, a PNG; a PDF is written beside it. Each is written atomically.
        panels: the panels.
        parameter: label of the x axis.
    """
    figure, grid = _figure(len(panels), None)
    for axes, panel in zip(grid, panels, strict=True):
        for line in panel.lines:
            style, marker = ("--", "s") if line.dashed else ("-", "o")
            for seeds in line.seeds:
                axes.scatter(seeds[:, 0], seeds[:, 1], color=line.color, marker=marker, s=14, alpha=0.3, linewidths=0)
            values, mean, low, high = line.band.T
            axes.fill_between(values, low, high, color=line.color, alpha=0.06 if line.dashed else 0.12, linewidth=0)
            axes.plot(values, mean, style, color=line.color, marker=marker, markersize=5, label=line.label)
        _dress(axes, panel)
        ticks = sorted({value for line in panel.lines for value in line.band[:, 0]})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(parameter)
    mark = Line2D([], [], color=_GRAY, linestyle="", marker="o", markersize=4, alpha=0.5)
    several = any(len(seeds) > len(line.band) for line in _lines(panels) for seeds in line.seeds)
    _legend(figure, grid, _marks(panels, mark, several))
    _save(figure, path)


def plot_bars(path: Path, panels: Sequence[Bars], title: str, ylabel: str) -> None:
    """Write bars with intervals as PNG and PDF, atomically, a panel per row. The scale is logarithmic beyond ±100 %."""
    figure, grid = _figure(len(panels), title, columns=1)
    figure.set_figwidth(max(figure.get_figwidth(), 0.2 * len(panels[0].names)))
    for axes, panel in zip(grid, panels, strict=True):
        values, low, high = panel.values.T
        places = np.arange(len(values))
        axes.bar(places, values, color=panel.color)
        axes.vlines(places, low, high, color=_GRAY, linewidth=1.0)
        axes.axhline(0.0, color=_GRAY, linewidth=0.8)
        axes.margins(x=0.01)
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xticks(places, panel.names, rotation=90, fontsize=8)
        axes.set(title=panel.title, ylabel=ylabel)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, axis="y")
    _save(figure, path)


def plot_strips(path: Path, panels: Sequence[Strip], title: str, xlabel: str) -> None:
    """Write a point for every number as PNG, atomically: a row for each group, a panel below the other."""
    figure, grid = _figure(len(panels), title, columns=1)
    rows = max(len(panel.groups) for panel in panels)
    figure.set_size_inches(9.0, 0.6 + len(panels) * (1.2 + 0.34 * rows))
    for axes, panel in zip(grid, panels, strict=True):
        for place, values in enumerate(panel.groups.values()):
            reached = values >= (-np.inf if panel.threshold is None else panel.threshold)
            jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
            faces = np.where(reached, _RED, "none")
            axes.scatter(values, place + jitter, s=26, facecolors=faces, edgecolors=_RED, linewidths=0.9)
        names = [f"{name}\n{_reached(values, panel.threshold)}" for name, values in panel.groups.items()]
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        if panel.logarithmic:
            axes.set_xscale("symlog", linthresh=_LINEAR_BELOW)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            highest = max(value for values in panel.groups.values() for value in [*values, panel.optimal or -np.inf])
            axes.set_xlim(right=max(highest / 2.0, highest * 2.0))  # matplotlib's own would be beyond zero
        for value, style in ((panel.threshold, "--"), (panel.optimal, ":")):
            if value is not None:
                axes.axvline(value, color=_GRAY, linewidth=1.0, linestyle=style)
        axes.set(title=panel.title, xlabel=xlabel)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, axis="x")
    _save(figure, path)


def _reached(values: np.ndarray, threshold: float | None) -> str:
    """How many numbers are at or above the threshold."""
    count = f"{len(values)} seeds"
    return count if threshold is None else f"{int((values >= threshold).sum())} of {count} at {threshold:g} or better"


def plot_heat_maps(path: Path, maps: Sequence[HeatMap], across: str, up: str) -> None:
    """Write heat maps with color bars.

    Args:
        path: the file, a PNG; a PDF is written beside it. Each is written atomically.
        maps: the heat maps, one panel each.
        across: label of the x axis.
        up: label of the y axis.
    """
    figure, grid = _figure(len(maps), None, columns=2)
    for axes, heat_map in zip(grid, maps, strict=True):
        values, xs, ys = heat_map.values.to_numpy(), list(heat_map.values.columns), list(heat_map.values.index)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        norm = SymLogNorm(_LINEAR_BELOW, vmin=low, vmax=high) if heat_map.logarithmic else Normalize(low, high)
        image = axes.imshow(values, origin="lower", cmap="cividis", norm=norm, aspect="auto")
        for j, i in zip(*np.nonzero(~np.isnan(values)), strict=True):
            color = "white" if norm(values[j, i]) < 0.55 else "black"
            axes.text(i, j, _shown(values[j, i]), ha="center", va="center", fontsize=7.5, color=color)
        corner = (xs.index(heat_map.marked[0]) - 0.5, ys.index(heat_map.marked[1]) - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=_RED, linewidth=2.5))
        axes.set(title=heat_map.title, xlabel=across, ylabel=up)
        axes.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        axes.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
        plain = FuncFormatter(lambda value, _: f"{value:,g}")
        figure.colorbar(image, ax=axes, label="mean return over seeds", format=plain)
    _save(figure, path)


def _shown(value: float) -> str:
    """The number in four digits, or whole if it has more."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _figure(panels: int, title: str | None, columns: int = 3) -> tuple[Figure, list[Axes]]:
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = Figure(figsize=(1.2 + 4.4 * columns, 0.4 + 3.7 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    if title is not None:
        figure.suptitle(title)
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(panels)]


def _dress(axes: Axes, panel: Panel) -> None:
    if panel.optimal is not None:
        axes.axhline(panel.optimal, color=_GRAY, linewidth=1.0, linestyle=":", label="optimal")
    if panel.logarithmic:
        axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
        if panel.optimal is not None:
            axes.set_ylim(top=max(panel.optimal, -_LINEAR_BELOW))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set(title=panel.title, ylabel=panel.ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


_INCHES_OF_AN_ENTRY = 2.9
"""Width of the longest legend entry."""

_INCHES_OF_A_ROW = 0.2
"""Height of a row of the legend."""


def _lines(panels: Sequence[Panel]) -> list[Line]:
    return [line for panel in panels for line in panel.lines]


def _marks(panels: Sequence[Panel], seed: Line2D, several: bool) -> dict[str, Artist]:
    """Legend entries on how seeds, their center and its interval are drawn.

    Args:
        panels: the panels.
        seed: how a seed is drawn.
        several: whether some line has several seeds.
    """
    marks: dict[str, Artist] = {"one seed": seed} if any(len(line.seeds) for line in _lines(panels)) else {}
    if several:
        scales = {panel.logarithmic for panel in panels}
        center = "mean; on logarithmic axes median" if len(scales) > 1 else _CENTERS[scales.pop()]
        marks[center] = Line2D([], [], color=_GRAY, linewidth=1.9)
    if any(np.isfinite(line.band[:, 2]).any() for line in _lines(panels)):
        marks["95 % bootstrap interval"] = Patch(color=_GRAY, alpha=0.15, linewidth=0)
    return marks


_CENTERS = {False: "mean of the seeds", True: "median seed"}
"""What the thick line is, by whether the axis is logarithmic."""


def _legend(figure: Figure, grid: Sequence[Axes], marks: Mapping[str, Artist]) -> None:
    """One legend for all panels, below them, where the figure grows by its height: lines, then how they are drawn."""
    entries: dict[str, Artist] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    entries |= marks
    fitting = max(1, int(figure.get_figwidth() / _INCHES_OF_AN_ENTRY))
    columns = min(len(entries), fitting)
    figure.set_figheight(figure.get_figheight() + _INCHES_OF_A_ROW * -(-len(entries) // columns))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False)


def _save(figure: Figure, path: Path) -> None:
    """PNG for pages, and PDF beside it for print, with fonts that publishers take."""
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=130)
    with replacing(path.with_suffix(".pdf")) as unfinished, rc_context({"pdf.fonttype": 42}):
        figure.savefig(unfinished, metadata={"CreationDate": None})  # equal tables give equal files
