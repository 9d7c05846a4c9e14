"""The pictures of an atlas on maps: heat maps of questions, maps over training, curves of several agents."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgvf_agents.atlas import metrics
from dgvf_agents.atlas.maps import Maps, Picture, limits_of
from dgvf_agents.atlas.report import Checkpoint, RunReport

COLORS = ("#c0392b", "#2c69b0", "#7a54be", "#3a945c", "#b7791f", "#26282c")
"""Of the agents, in their order."""
INK = "#262c3a"
_STRIP_SIDE, _STRIP_LENGTH = 110, 6
_BESIDE = 4
"""Questions shown of every agent beside."""


@final
class MapFigures:
    """Heat maps of a run's questions, some of the runs beside it, and strips of the kinds that are shown large."""

    template = "maps.html"

    def __init__(self, report: RunReport, others: Sequence[RunReport], kinds: int) -> None:
        assert isinstance(report.domain.layout, Maps)
        self._report, self._maps = report, report.domain.layout
        self._questions, self._agents = report.asked(), [report, *others]
        values, draw = self._questions.values, self._maps.draw
        self.cumulants, self.answers = ([draw(one) for one in part.T] for part in (values.cumulants, values.answers))
        self.discounts = [None if np.ptp(one) < 1e-6 else draw(one) for one in values.discounts.T]
        self.strips = {kind.leader: self._strip(kind.leader) for kind in self._questions.ranking.kinds[:kinds]}
        self.world = self._maps.draw_world()
        shown = np.where(report.domain.acting, report.agent.values, np.nan)
        self.policy = self._maps.draw_policy(shown, np.exp(report.agent.log_policy))
        self.curves = curves_png(self._agents)

    def files(self) -> dict[str, bytes]:
        """The pictures to write beside the page, PNG by name."""
        files = {"evolution": self.curves, "world": self.world.png, "policy": self.policy.png}
        for name, drawn in (("cumulant", self.cumulants), ("answer", self.answers), ("discount", self.discounts)):
            files |= {f"question-{i:03d}-{name}": one.png for i, one in enumerate(drawn) if one is not None}
        for question, strip in self.strips.items():
            for steps, picture in strip:
                files[f"question-{question:03d}-cumulant-{steps:010d}"] = picture.png
        return files

    def context(self) -> dict[str, Any]:
        """What only this page shows."""
        rows = [
            (agent.label, color, agent.history[-1], agent.exact_return)
            for agent, color in zip(self._agents, cycle(COLORS))
        ]
        untrained = (f"{self._report.label}, untrained", "#888c94", self._report.history[0], None)
        return {
            "panels": self._maps.panels,
            "rows": [*rows, untrained],
            "targets": [(one.key, one.title, one.values.dtype == bool) for one in self._report.domain.targets],
            "beside": [(one, self._some_questions(one)) for one in self._agents[1:] if one.questions is not None],
            "first_share": metrics.first_share(self._questions.values.cumulants),
            "finite": self._report.domain.table is not None,
        }

    def record(self) -> dict[str, Any]:
        """The fields of `atlas.json` that only this page has."""
        return {"agents": [_agent_record(agent) for agent in self._agents]}

    def question_record(self, question: int) -> dict[str, Any]:
        """The same for one question."""
        lost = self._questions.reliance.return_lost
        return {"return_lost": None if lost is None else float(lost[question])}

    def _strip(self, question: int) -> list[tuple[int, Picture]]:
        """A question's cumulant at checkpoints at even distances, first and last among them, with their steps.

        The color scale moves with the mean: adding a constant to a cumulant does not change the question.
        """
        history = self._report.history
        strip, last = [], self._questions.values.cumulants[:, question]
        low, high = limits_of(last)
        for i in np.unique(np.linspace(0, len(history) - 1, _STRIP_LENGTH).round().astype(int)).tolist():
            cumulants = history[i].cumulants
            assert cumulants is not None
            shift = float(cumulants[:, question].mean() - last.mean())
            limits = (low + shift, high + shift)
            strip.append((history[i].steps, self._maps.draw(cumulants[:, question], limits, _STRIP_SIDE)))
        return strip

    def _some_questions(self, agent: RunReport) -> list[tuple[int, Picture]]:
        questions = agent.asked()
        leaders = [kind.leader for kind in questions.ranking.kinds[:_BESIDE]]
        return [(one, self._maps.draw(questions.values.cumulants[:, one])) for one in leaders]


def _agent_record(agent: RunReport) -> dict[str, Any]:
    moments = []
    for one in agent.history:
        record: dict[str, Any] = {"steps": one.steps, "effective_rank": one.effective_rank, "srank": one.srank}
        record |= one.decoded
        if one.cumulants is not None:
            record |= {"variation": one.variation, "effective_questions": one.distinct}
        moments.append(record)
    return {
        "task": agent.config.task,
        "seed": agent.config.seed,
        "steps": agent.steps,
        "expected_return": agent.exact_return,
        "moments": moments,
    }


_Number = Callable[[Checkpoint, Checkpoint], float]
_CURVES: tuple[tuple[str, _Number], ...] = (
    ("how much cumulants vary over states", lambda now, last: now.variation),
    ("effective number of questions", lambda now, last: now.distinct),
    ("likeness of the questions to the last ones", lambda now, last: now.likeness(last)),
    ("effective rank of the features", lambda now, last: now.effective_rank),
)
"""A title and the number of a checkpoint, given the last one of its run."""


def _decoded(key: str) -> _Number:
    return lambda now, last: now.decoded[key]


def curves_png(agents: Sequence[RunReport]) -> bytes:
    """Numbers over training, a line for each agent, as PNG."""
    targets = [target for target in agents[0].domain.targets if target.values.dtype != bool]
    curves = [*_CURVES, *((f"{one.title} decoded linearly (R²)", _decoded(one.key)) for one in targets)]
    figure = Figure(figsize=(11.0, 2.7 * -(-len(curves) // 3)), layout="constrained", facecolor="white")
    grid = figure.subplots(-(-len(curves) // 3), 3).ravel()
    for axes, (title, number) in zip(grid, curves, strict=False):
        for agent, color in zip(agents, cycle(COLORS)):
            steps = [one.steps for one in agent.history]
            numbers = [number(one, agent.history[-1]) for one in agent.history]
            axes.plot(steps, numbers, color=color, marker="o", markersize=3.5, linewidth=1.7, label=agent.label)
        dress(axes, title)
        axes.set_xlabel("environment steps", fontsize=8.5, color=INK)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axes.grid(alpha=0.25)
        axes.margins(y=0.12)
    for axes in grid[len(curves) :]:
        axes.axis("off")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return figure_png(figure, 130)


def figure_png(figure: Figure, dpi: int) -> bytes:
    """A figure as PNG, without pyplot's global state."""
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def dress(axes: Axes, title: str) -> None:
    """The look of every chart."""
    axes.set_title(title, fontsize=9.5, color=INK, loc="left")
    axes.tick_params(labelsize=8.5, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
