"""The plot of a run's learning curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from dgvf_agents.storage.files import replacing
from dgvf_agents.train.environments import ReferenceReturns

_GRAY = "#5c6270"
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
    """Lines at the best return and at the random policy's."""
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
