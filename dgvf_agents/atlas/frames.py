"""The pictures of an atlas along a game: frames, where questions look, and lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from dgvf_agents.atlas.charts import HEIGHT, Chart, chart, rounded
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.atlas.maps import data_uri, png_of
from dgvf_agents.atlas.probe import lines_of
from dgvf_agents.atlas.report import RunReport
from dgvf_agents.atlas.saliency import GRADIENT_MOMENTS, HEAT_LEVELS, gradients_of
from dgvf_envs.rendering import DIVERGING, colors

_GLOW = ((0, 0, 0), (120, 20, 70), (240, 80, 50), (255, 190, 60), (255, 255, 210))
HEAT_COLORS = colors(_GLOW, np.linspace(0.0, 1.0, HEAT_LEVELS)).round().astype(np.uint8)
"""`[levels, 3]`: what is added to a frame, as light is ("screen"); black adds nothing."""
_DIM = 0.7
"""Brightness of a frame under heat."""
_LARGE_FRAME = 320
"""Pixels that the height of a picture of one frame has at least."""


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
        self.looks: list[dict[str, Any]] = [{"label": "this run", **one.numbers} for one in report.history]
        for one in others:
            last = {**one.history[-1].numbers, "likeness": None}
            self.looks.append({"label": f"{one.config.task}, seed {one.config.seed}", **last})

    def charts(self, question: int) -> dict[str, Chart]:
        """The lines of a question: cumulant, answer with outcome, and discount unless it is constant."""
        cumulant, discount, answer, outcome = lines_of(self._values, question)
        first = self.episode.first
        lines = {"cumulant": (cumulant,), "answer": (outcome, answer), "discount": (discount,)}
        if np.ptp(discount[first:]) < 1e-6:
            del lines["discount"]
        return {name: chart(*drawn, first=first) for name, drawn in lines.items()}

    def files(self) -> dict[str, bytes]:
        """The pictures to write beside the page, PNG by name."""
        files = {"all-cumulants": self.overview}
        for question, moments in self.extremes.items():
            stem = f"question-{question:03d}"
            files[f"{stem}-highest"], files[f"{stem}-lowest"] = self.heated[question]
            files |= {f"frame-{moment:05d}": self.frames[moment] for moment in moments}
        return files

    def context(self) -> dict[str, Any]:
        """What only this page shows."""
        episode = self.episode
        return {
            "episode": episode,
            "value": chart(self._report.values, first=episode.first),
            "charts_of_principal": [chart(one, first=episode.first) for one in self._questions.principal.values.T],
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
            lines = dict(zip("ugy", (rounded(line, 4) for line in lines_of(self._values, number)), strict=False))
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
                "values": rounded(self._report.values),
            },
            "looks": self.looks,
        }

    def question_record(self, question: int) -> dict[str, Any]:
        """The same for one question."""
        truth, found = self._questions.truth, self.gradients.get(question)
        assert truth is not None
        return {
            "answers_explain": rounded(truth[[question]])[0],
            **dict(zip(self._values._fields, map(rounded, lines_of(self._values, question)), strict=True)),
            "gradient_by_channel": None if found is None else found.share.tolist(),
        }

    def _heated_at(self, question: int, moment: int) -> np.ndarray:
        found, frame = self.gradients[question], self.episode.frames[moment]
        return heated(frame, found.heat[found.moments.index(moment)], -(-_LARGE_FRAME // frame.shape[0]))


def overview(cumulants: np.ndarray, first: int = 0) -> np.ndarray:
    """Cumulants `[T, D]` as colors `[D, T, 3]`: white is zero, and the full red or blue of a question is its greatest
    magnitude from time `first` on.
    """
    reach = np.maximum(np.abs(cumulants[first:]).max(axis=0), 1e-9)
    return colors(DIVERGING, 0.5 + 0.5 * (cumulants / reach).T).round().astype(np.uint8)


def heated(frame: np.ndarray, levels: np.ndarray, scale: int = 1) -> np.ndarray:
    """A frame `[height, width, 3]` in grey, `scale` times as large, with heat levels `[H, W]` stretched over it."""
    grey = (frame @ np.array([0.299, 0.587, 0.114]) * _DIM / 255.0).repeat(scale, axis=0).repeat(scale, axis=1)
    rows = np.arange(grey.shape[0]) * levels.shape[0] // grey.shape[0]
    columns = np.arange(grey.shape[1]) * levels.shape[1] // grey.shape[1]
    light = HEAT_COLORS[levels[rows[:, None], columns]] / 255.0
    return (255.0 * (1.0 - (1.0 - grey[..., None]) * (1.0 - light))).round().astype(np.uint8)
