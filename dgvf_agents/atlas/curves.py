"""How the numbers of several agents change as they train."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgvf_agents.atlas.agent_atlas import AgentAtlas
from dgvf_agents.atlas.evolution import Moment

COLORS = ("#c0392b", "#2c69b0", "#7a54be", "#3a945c", "#b7791f", "#26282c")
"""Of the agents, in their order."""
_INK = "#262c3a"

_Number = Callable[[Moment, Moment], float | None]
_PANELS: tuple[tuple[str, _Number], ...] = (
    ("how much cumulants vary over states", lambda now, last: now.variation),
    ("effective number of questions", lambda now, last: now.distinct),
    ("likeness of the questions to the last ones", lambda now, last: now.likeness(last)),
    ("effective rank of the features", lambda now, last: now.representation.effective_rank),
    ("position read off linearly (R²)", lambda now, last: now.representation.position),
    ("distance to the goal read off linearly (R²)", lambda now, last: now.representation.distance),
)
"""A title and the number of a moment, given the last one of its run."""


def curves_png(agents: Sequence[AgentAtlas]) -> bytes:
    """Six numbers over training, a line for each agent, as PNG."""
    figure = Figure(figsize=(11.0, 5.4), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 3)
    for axes, (title, number) in zip(grid.ravel(), _PANELS, strict=True):
        for agent, color in zip(agents, cycle(COLORS)):
            last = agent.moments[-1]
            steps = [moment.steps for moment in agent.moments]
            numbers = [number(moment, last) for moment in agent.moments]
            axes.plot(steps, numbers, color=color, marker="o", markersize=3.5, linewidth=1.7, label=agent.label)
        _dress(axes, title)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, color=_INK, loc="left")
    axes.set_xlabel("environment steps", fontsize=8.5, color=_INK)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    axes.tick_params(labelsize=8.5, colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.margins(y=0.12)
