"""The pictures of a recorded game: its frames, every question at once, and the large questions at their extremes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dgvf_agents.atlas.frame_pictures import heated
from dgvf_agents.atlas.game_atlas import GameAtlas
from dgvf_agents.atlas.pictures import png_of
from dgvf_envs.rendering import DIVERGING

_LARGE_FRAME = 320
"""Pixels that the height of a picture of one frame has at least."""
_INK, _CUMULANT, _ANSWER, _OUTCOME, _DISCOUNT = "#262c3a", "#c0392b", "#2c69b0", "#b9bfca", "#7a54be"


@final
@dataclass(frozen=True)
class GamePictures:
    """All pictures, as PNG."""

    frames: tuple[bytes, ...]
    """`[T + 1]`."""
    overview: bytes
    """Every cumulant over time: a row of pixels for each question, a column for each moment from the first step on."""
    extremes: dict[int, tuple[bytes, bytes]]
    """By question: the frames where its cumulant is greatest and least, and over them where it looks."""
    sheets: dict[int, bytes]
    """By question: its traces and extremes, for use elsewhere."""


def draw_game(atlas: GameAtlas) -> GamePictures:
    """Draw all of it."""
    extremes = {number: atlas.traces.extremes(number) for number in atlas.gradients}
    return GamePictures(
        frames=tuple(png_of(np.ascontiguousarray(frame)) for frame in atlas.episode.frames),
        overview=png_of(overview(atlas.traces.cumulants[1:, atlas.ranking.kinds_first], atlas.episode.first - 1)),
        extremes={
            number: (png_of(_heated_at(atlas, number, most)), png_of(_heated_at(atlas, number, least)))
            for number, (most, least) in extremes.items()
        },
        sheets={number: _sheet(atlas, number, *moments) for number, moments in extremes.items()},
    )


def overview(cumulants: np.ndarray, first: int = 0) -> np.ndarray:
    """Cumulants `[T, D]` as colors `[D, T, 3]`: from the least value of each question (blue) to its greatest (red).

    Args:
        cumulants: in the order of the rows.
        first: the row of `cumulants` from which on values decide the scale.
    """
    low, span = cumulants[first:].min(axis=0), np.ptp(cumulants[first:], axis=0)
    shares = np.where(span > 1e-9, (cumulants - low) / np.where(span > 1e-9, span, 1.0), 0.5).T.clip(0.0, 1.0)
    anchors = np.array(DIVERGING, dtype=np.float64)
    places = shares * (len(anchors) - 1)
    colors = [np.interp(places, np.arange(len(anchors)), anchors[:, i]) for i in range(3)]
    return np.ascontiguousarray(np.stack(colors, axis=-1).round().astype(np.uint8))


def _heated_at(atlas: GameAtlas, number: int, moment: int) -> np.ndarray:
    found, frame = atlas.gradients[number], atlas.episode.frames[moment]
    scale = -(-_LARGE_FRAME // frame.shape[0])
    return heated(frame, found.heat[found.moments.index(moment)], scale)


_BOXES = {
    "c": (0.05, 0.66, 0.56, 0.2),
    "d": (0.05, 0.39, 0.56, 0.17),
    "a": (0.05, 0.1, 0.56, 0.2),
    "h": (0.64, 0.04, 0.17, 0.82),
    "l": (0.82, 0.04, 0.17, 0.82),
}
"""Left, bottom, width and height of the parts of a sheet; laying them out by their contents takes seconds."""


def _sheet(atlas: GameAtlas, number: int, most: int, least: int) -> bytes:
    traces, figure = atlas.traces, Figure(figsize=(11.0, 4.2), facecolor="white")
    FigureCanvasAgg(figure)
    axes = {key: figure.add_axes(box) for key, box in _BOXES.items()}
    moments = np.arange(atlas.episode.first, atlas.episode.steps + 1)
    axes["c"].plot(moments, traces.cumulants[moments, number], color=_CUMULANT, linewidth=1.2)
    axes["d"].plot(moments, traces.discounts[moments, number], color=_DISCOUNT, linewidth=1.2)
    axes["a"].plot(moments, traces.outcomes[moments, number], color=_OUTCOME, linewidth=1.2, label="what came")
    axes["a"].plot(moments, traces.answers[moments, number], color=_ANSWER, linewidth=1.2, label="answer")
    axes["a"].legend(frameon=False, fontsize=8)
    axes["a"].set_xlabel("step of the game", fontsize=8.5, color=_INK)
    for key, title in (("c", "cumulant"), ("d", "discount"), ("a", "answer")):
        _dress(axes[key], title, atlas)
    for key, moment, name in (("h", most, "highest"), ("l", least, "lowest")):
        axes[key].imshow(_heated_at(atlas, number, moment))
        axes[key].set_title(f"{name}, step {moment}", fontsize=9, color=_INK, loc="left")
        axes[key].axis("off")
    figure.suptitle(
        f"Question {number}: {atlas.captions[number].headline}", fontsize=10.5, color=_INK, x=0.01, ha="left"
    )
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _dress(axes: Axes, title: str, atlas: GameAtlas) -> None:
    axes.set_title(title, fontsize=9, color=_INK, loc="left")
    axes.set_xlim(0, atlas.episode.steps)
    for moment in (np.flatnonzero(atlas.episode.terminated) + 1).tolist():
        axes.axvline(moment, color=_INK, linewidth=0.7, linestyle=":")
    axes.tick_params(labelsize=8, colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)
