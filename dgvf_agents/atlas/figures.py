"""The pictures of an atlas on maps: heat maps of questions, maps over training, curves of several agents."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import cycle
from typing import Any, final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgvf_agents.atlas.charts import HEIGHT, chart, rounded
from dgvf_agents.atlas.following import follow
from dgvf_agents.atlas.maps import Maps, Picture, scale_of
from dgvf_agents.atlas.probe import lines_of
from dgvf_agents.atlas.report import RunReport

COLORS = ("#c0392b", "#2c69b0", "#7a54be", "#3a945c", "#b7791f", "#26282c")
"""Of the agents, in their order."""
_INK = "#262c3a"
_STRIP_SIDE, _STRIP_LENGTH = 110, 6
_BESIDE = 4
"""Questions shown of every agent beside."""


@final
class MapFigures:
    """Heat maps of a run's questions and principal questions, and of some questions of the runs beside it; strips over
    training of the kinds that are shown large; the first question along an episode.
    """

    template = "maps.html"

    def __init__(self, report: RunReport, others: Sequence[RunReport], kinds: int) -> None:
        assert isinstance(report.domain.layout, Maps)
        self._report, self.maps = report, report.domain.layout
        self._questions, self._agents = report.asked(), [report, *others]
        values, draw = self._questions.values, self.maps.draw
        self.cumulants, self.answers = (
            [draw(name, one) for one in part.T]
            for name, part in (("cumulant", values.cumulants), ("answer", values.answers))
        )
        self.discounts = [draw("discount", one) if np.ptp(one) >= 1e-6 else None for one in values.discounts.T]
        self.principal = [draw("cumulant", one) for one in self._questions.principal.values.T]
        self.strips = {kind.leader: self._strip(kind.leader) for kind in self._questions.ranking.kinds[:kinds]}
        self.world = self.maps.draw_world()
        self.policy = self.maps.draw_policy(report.values, np.exp(report.agent.log_policy))
        self.curves = curves_png(self._agents)
        self._followed = follow(report.model, report.config, report.domain)

    def files(self) -> dict[str, bytes]:
        """The pictures to write beside the page, PNG by name."""
        files = {"evolution": self.curves, "world": self.world.png, "policy": self.policy.png}
        files |= {f"principal-{i}": one.png for i, one in enumerate(self.principal, start=1)}
        for name, drawn in (("cumulant", self.cumulants), ("answer", self.answers), ("discount", self.discounts)):
            files |= {f"question-{i:03d}-{name}": one.png for i, one in enumerate(drawn) if one is not None}
        for question, strip in self.strips.items():
            for steps, picture in strip:
                files[f"question-{question:03d}-cumulant-{steps:010d}"] = picture.png
        return files

    def context(self) -> dict[str, Any]:
        """What only this page shows."""
        rows = [
            (agent.label, color, agent.history[-1].numbers, agent.exact_return)
            for agent, color in zip(self._agents, cycle(COLORS))
        ]
        untrained = (f"{self._report.label}, untrained", "#888c94", self._report.history[0].numbers, None)
        return {
            "maps": self.maps,
            "panels": self.maps.panels,
            "rows": [*rows, untrained],
            "targets": [(one.key, one.title, one.values.dtype == bool) for one in self._report.domain.targets],
            "beside": [(one, self._some_questions(one)) for one in self._agents[1:] if one.questions is not None],
            "finite": self._report.domain.table is not None,
            **self._episode_context(),
        }

    def _episode_context(self) -> dict[str, Any]:
        """The first question along the episode."""
        episode, question = self._followed.episode, self._questions.ranking.kinds_first[0]
        cumulant, _, answer, outcome = lines_of(self._followed.values, question)
        return {
            "episode": episode,
            "ends": (np.flatnonzero(episode.terminated) + 1).tolist(),
            "height": HEIGHT,
            "followed": question,
            "charts": {"cumulant": chart(cumulant), "answer": chart(outcome, answer)},
            "path": self.maps.path(self._followed.points.tolist()),
        }

    def script_data(self) -> dict[str, Any]:
        """What the page's script shows: the values behind the maps, and the episode."""
        values, episode = self._questions.values, self._followed.episode
        quantities = {
            "cumulant": values.cumulants,
            "answer": values.answers,
            "discount": values.discounts if any(self.discounts) else values.discounts[:, :0],
            "principal": self._questions.principal.values,
            "value": self._report.values[:, None],
        }
        lines = lines_of(self._followed.values, self._questions.ranking.kinds_first[0])
        return {
            "x": rounded(self.maps.positions[:, 1]),
            "y": rounded(self.maps.positions[:, 2]),
            "names": [self._report.domain.name(i) for i in range(len(self._report.values))],
            "values": {name: [rounded(one, 3) for one in part.T] for name, part in quantities.items()},
            "points": self._followed.points.tolist(),
            "rewards": episode.rewards.tolist(),
            "lines": dict(zip(("u", "g", "y", "came"), (rounded(line, 3) for line in lines), strict=True)),
        }

    def record(self) -> dict[str, Any]:
        """The fields of `atlas.json` that only this page has."""
        return {
            "agents": [
                {
                    "task": agent.config.task,
                    "seed": agent.config.seed,
                    "steps": agent.steps,
                    "expected_return": agent.exact_return,
                    "moments": [one.numbers for one in agent.history],
                }
                for agent in self._agents
            ]
        }

    def question_record(self, question: int) -> dict[str, Any]:
        """The same for one question."""
        lost = self._questions.reliance.return_lost
        return {"return_lost": None if lost is None else float(lost[question])}

    def _strip(self, question: int) -> list[tuple[int, Picture]]:
        """A question's cumulant at checkpoints at even distances, first and last among them, with their steps, on one
        color scale.
        """
        history = self._report.history
        chosen = np.unique(np.linspace(0, len(history) - 1, _STRIP_LENGTH).round().astype(int)).tolist()
        cumulants = [(one.steps, one.cumulants[:, question]) for one in history if one.cumulants is not None]
        scale = scale_of("cumulant", np.concatenate([values for _, values in cumulants]))
        drawn = (cumulants[i] for i in chosen)
        return [(steps, self.maps.draw("cumulant", values, scale, _STRIP_SIDE)) for steps, values in drawn]

    def _some_questions(self, agent: RunReport) -> list[tuple[int, Picture]]:
        questions = agent.asked()
        leaders = [kind.leader for kind in questions.ranking.kinds[:_BESIDE]]
        return [(one, self.maps.draw("cumulant", questions.values.cumulants[:, one])) for one in leaders]


_CURVES = {
    "variation": "how much cumulants vary over states",
    "effective_questions": "effective number of questions",
    "likeness": "likeness of the questions to the last ones",
    "effective_rank": "effective rank of the features",
}
"""Titles of numbers of a checkpoint."""


def curves_png(agents: Sequence[RunReport]) -> bytes:
    """Numbers over training, a line for each agent, as PNG."""
    targets = [target for target in agents[0].domain.targets if target.values.dtype != bool]
    curves = _CURVES | {one.key: f"{one.title} decoded linearly (R²)" for one in targets}
    figure = Figure(figsize=(11.0, 2.7 * -(-len(curves) // 3)), layout="constrained", facecolor="white")
    grid = figure.subplots(-(-len(curves) // 3), 3).ravel()
    for axes, (key, title) in zip(grid, curves.items(), strict=False):
        for agent, color in zip(agents, cycle(COLORS)):
            steps, values = (
                np.array([one.numbers[name] for one in agent.history], dtype=float)  # None becomes NaN
                for name in ("steps", key)
            )
            axes.plot(steps, values, "o-", color=color, markersize=3.5, linewidth=1.7, label=agent.label)
        axes.set_title(title, fontsize=9.5, color=_INK, loc="left")
        axes.tick_params(labelsize=8.5, colors=_INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("environment steps", fontsize=8.5, color=_INK)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axes.grid(alpha=0.25)
        axes.margins(y=0.12)
    for axes in grid[len(curves) :]:
        axes.axis("off")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    FigureCanvasAgg(figure)  # without pyplot's global state
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
