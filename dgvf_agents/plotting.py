"""Pictures of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgvf_agents.atomic import replacing


def plot_learning_curve(
    path: Path, steps: Sequence[int], returns: Sequence[float], title: str, optimal: float | None = None
) -> None:
    """Write a learning curve as PNG, atomically.

    Args:
        path: the file.
        steps: environment steps.
        returns: mean return at each.
        title: above the axes.
        optimal: return of an optimal policy, drawn as a line; none when left out.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, returns, color="#2c69b0", linewidth=1.8)
    if optimal is not None:
        axes.axhline(optimal, color="#5c6270", linewidth=1.0, linestyle="--")
        axes.annotate("optimal", (0, optimal), (4, -12), textcoords="offset points", color="#5c6270", fontsize=9)
    axes.set(title=title, xlabel="environment steps", ylabel="mean return of the last 100 episodes")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150)
