"""The pictures of an atlas along an episode: frames, where questions look, and lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from matplotlib.figure import Figure

from dgvf_agents.atlas.charts import HEIGHT, Chart, chart
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.atlas.figures import INK, dress, figure_png
from dgvf_agents.atlas.maps import data_uri, png_of
from dgvf_agents.atlas.report import Checkpoint, RunReport
from dgvf_agents.atlas.saliency import GRADIENT_MOMENTS, HEAT_LEVELS, gradients_of
from dgvf_envs.rendering import DIVERGING, colors

_GLOW = ((0, 0, 0), (120, 20, 70), (240, 80, 50), (255, 190, 60), (255, 255, 210))
HEAT_COLORS = colors(_GLOW, np.linspace(0.0, 1.0, HEAT_LEVELS)).round().astype(np.uint8)
"""`[levels, 3]`: what is added to a frame, as light is ("screen"); black adds nothing."""
_DIM = 0.7
"""Brightness of a frame under heat."""
_LARGE_FRAME = 320
"""Pixels that the height of a picture of one frame has at least."""
_LARGE, _SMALL = 600, 150
"""Columns of the charts of questions shown large, and of all questions."""
_CUMULANT, _ANSWER, _OUTCOME, _DISCOUNT = "#c0392b", "#2c69b0", "#b9bfca", "#7a54be"


@final
class EpisodeFigures:
    """Frames of a recorded game, lines along it, and gradients of the questions that lead the kinds shown large."""

    template = "episode.html"

    def __init__(self, report: RunReport, others: Sequence[RunReport], kinds: int) -> None:
        assert isinstance(report.domain.layout, Episode)
        self._report, self._questions, self._domain = report, report.asked(), report.domain
        self.episode, self._values = report.domain.layout, self._questions.values
        leaders = [kind.leader for kind in self._questions.ranking.kinds[:kinds]]
        self.extremes = {one: self._domain.extremes(self._values.cumulants[:, one]) for one in leaders}
        self.gradients = {
            one: gradients_of(report.model, report.domain, self._values.cumulants[:, one], one) for one in leaders
        }
        self.frames = [png_of(frame) for frame in self.episode.frames]
        self.overview = png_of(
            overview(self._values.cumulants[1:, self._questions.ranking.kinds_first], self.episode.first - 1)
        )
        self.heated = {
            one: [png_of(self._heated_at(one, moment)) for moment in moments] for one, moments in self.extremes.items()
        }
        own, last = report.history, report.history[-1]
        self.looks = [_look("this run", one, last) for one in own]
        self.looks += [_look(f"{one.config.task}, seed {one.config.seed}", one.history[-1]) for one in others]

    @property
    def _agent_values(self) -> np.ndarray:
        """`[T + 1]`: v, NaN at the last moment."""
        return np.where(self._domain.acting, self._report.agent.values, np.nan)

    def charts(self, question: int, large: bool = False) -> dict[str, Chart]:
        """The lines of a question: cumulant, answer with outcome, and discount unless it is constant."""
        cumulant, discount, answer, outcome = self._lines(question)
        columns, first = _LARGE if large else _SMALL, self.episode.first
        lines = {"cumulant": (cumulant,), "answer": (outcome, answer), "discount": (discount,)}
        if np.ptp(discount[first:]) < 1e-6:
            del lines["discount"]
        return {name: chart(*drawn, columns=columns, first=first) for name, drawn in lines.items()}

    def files(self) -> dict[str, bytes]:
        """The pictures to write beside the page, PNG by name."""
        files = {"all-cumulants": self.overview}
        for question, moments in self.extremes.items():
            stem = f"question-{question:03d}"
            files[f"{stem}-highest"], files[f"{stem}-lowest"] = self.heated[question]
            files[stem] = self._sheet(question)
            files |= {f"frame-{moment:05d}": self.frames[moment] for moment in moments}
        return files

    def context(self) -> dict[str, Any]:
        """What only this page shows."""
        episode = self.episode
        return {
            "episode": episode,
            "value": chart(self._agent_values, first=episode.first),
            "rewards": [(int(t) + 1, float(episode.rewards[t])) for t in np.flatnonzero(episode.rewards)],
            "ends": (np.flatnonzero(episode.terminated) + 1).tolist(),
            "channels": episode.observations.shape[1],
            "height": HEIGHT,
            "every": episode.steps <= GRADIENT_MOMENTS,
        }

    def script_data(self) -> dict[str, Any]:
        """What the page's script moves through."""
        episode, questions = self.episode, {}
        for number, found in self.gradients.items():
            lines = dict(zip("ugy", (_rounded(line, 4) for line in self._lines(number)), strict=False))
            heat = {
                str(t): data_uri(png_of(one, HEAT_COLORS)) for t, one in zip(found.moments, found.heat, strict=True)
            }
            questions[str(number)] = {**lines, "heat": heat}
        return {
            "steps": episode.steps,
            "frames": [data_uri(frame) for frame in self.frames],
            "actions": episode.actions.tolist(),
            "names": list(episode.action_names),
            "rewards": episode.rewards.tolist(),
            "ends": episode.terminated.tolist(),
            "questions": questions,
        }

    def record(self) -> dict[str, Any]:
        """The fields of `atlas.json` that only this page has."""
        episode, config = self.episode, self._report.config
        return {
            "task": config.task,
            "seed": config.seed,
            "steps": self._report.steps,
            "game": {
                "seed": episode.seed,
                "steps": episode.steps,
                "score": episode.score,
                "over": episode.over,
                "rewards": episode.rewards.tolist(),
                "terminated": episode.terminated.tolist(),
                "actions": episode.actions.tolist(),
                "values": _rounded(self._agent_values),
            },
            "looks": self.looks,
        }

    def question_record(self, question: int) -> dict[str, Any]:
        """The same for one question."""
        truth, found = self._questions.truth, self.gradients.get(question)
        assert truth is not None
        return {
            "answers_explain": _rounded(truth[[question]])[0],
            **dict(zip(self._values._fields, map(_rounded, self._lines(question)), strict=True)),
            "gradient_by_channel": None if found is None else found.share.tolist(),
        }

    def _lines(self, question: int) -> list[np.ndarray]:
        """Cumulant, discount, answer and outcome of a question, `[T + 1]` each."""
        return [part[:, question] for part in self._values if part is not None]

    def _heated_at(self, question: int, moment: int) -> np.ndarray:
        found, frame = self.gradients[question], self.episode.frames[moment]
        return heated(frame, found.heat[found.moments.index(moment)], -(-_LARGE_FRAME // frame.shape[0]))

    def _sheet(self, question: int) -> bytes:
        """Lines and extremes of a question in one picture, for use elsewhere."""
        figure = Figure(figsize=(11.0, 4.2), facecolor="white")
        axes = {key: figure.add_axes(box) for key, box in _BOXES.items()}
        moments = np.arange(self.episode.first, self.episode.steps + 1)
        cumulant, discount, answer, outcome = (line[moments] for line in self._lines(question))
        axes["cumulant"].plot(moments, cumulant, color=_CUMULANT, linewidth=1.2)
        axes["discount"].plot(moments, discount, color=_DISCOUNT, linewidth=1.2)
        axes["answer"].plot(moments, outcome, color=_OUTCOME, linewidth=1.2, label="what came")
        axes["answer"].plot(moments, answer, color=_ANSWER, linewidth=1.2, label="answer")
        axes["answer"].legend(frameon=False, fontsize=8)
        axes["answer"].set_xlabel("step of the game", fontsize=8.5, color=INK)
        for title in ("cumulant", "discount", "answer"):
            dress(axes[title], title)
            axes[title].set_xlim(0, self.episode.steps)
            for moment in (np.flatnonzero(self.episode.terminated) + 1).tolist():
                axes[title].axvline(moment, color=INK, linewidth=0.7, linestyle=":")
        for name, moment in zip(("highest", "lowest"), self.extremes[question], strict=True):
            axes[name].imshow(self._heated_at(question, moment))
            axes[name].set_title(f"{name}, step {moment}", fontsize=9, color=INK, loc="left")
            axes[name].axis("off")
        headline = self._questions.captions[question].headline
        figure.suptitle(f"Question {question}: {headline}", fontsize=10.5, color=INK, x=0.01, ha="left")
        return figure_png(figure, 120)


_BOXES = {
    "cumulant": (0.05, 0.66, 0.56, 0.2),
    "discount": (0.05, 0.39, 0.56, 0.17),
    "answer": (0.05, 0.1, 0.56, 0.2),
    "highest": (0.64, 0.04, 0.17, 0.82),
    "lowest": (0.82, 0.04, 0.17, 0.82),
}
"""Left, bottom, width and height of the parts of a sheet; laying them out by their contents takes seconds."""


def _look(label: str, now: Checkpoint, last: Checkpoint | None = None) -> dict[str, Any]:
    """What an agent makes of the frames; `likeness` is that of its questions to its own latest ones."""
    asks = now.cumulants is not None
    return {
        "label": label,
        "steps": now.steps,
        "variation": now.variation if asks else None,
        "distinct": now.distinct if asks else None,
        "likeness": now.likeness(last) if asks and last else None,
        "effective_rank": now.effective_rank,
    }


def overview(cumulants: np.ndarray, first: int = 0) -> np.ndarray:
    """Cumulants `[T, D]` as colors `[D, T, 3]`, from the least of each question (blue) to its greatest (red) from time
    `first` on.
    """
    low, span = cumulants[first:].min(axis=0), np.ptp(cumulants[first:], axis=0)
    shares = np.where(span > 1e-9, (cumulants - low) / np.where(span > 1e-9, span, 1.0), 0.5).T
    return colors(DIVERGING, shares).round().astype(np.uint8)


def heated(frame: np.ndarray, levels: np.ndarray, scale: int = 1) -> np.ndarray:
    """A frame `[height, width, 3]` in grey, `scale` times as large, with heat levels `[H, W]` stretched over it."""
    grey = (frame @ np.array([0.299, 0.587, 0.114]) * _DIM / 255.0).repeat(scale, axis=0).repeat(scale, axis=1)
    rows = np.arange(grey.shape[0]) * levels.shape[0] // grey.shape[0]
    columns = np.arange(grey.shape[1]) * levels.shape[1] // grey.shape[1]
    light = HEAT_COLORS[levels[rows[:, None], columns]] / 255.0
    return (255.0 * (1.0 - (1.0 - grey[..., None]) * (1.0 - light))).round().astype(np.uint8)


def _rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """JSON has no NaN."""
    return [None if np.isnan(value) else float(f"{value:.{digits}g}") for value in values.tolist()]
