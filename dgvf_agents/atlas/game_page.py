"""The atlas of a run on images as one HTML page with everything in it."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from dgvf_agents.atlas.captions import Caption
from dgvf_agents.atlas.frame_pictures import heat_png
from dgvf_agents.atlas.game_atlas import GRADIENT_MOMENTS, GameAtlas
from dgvf_agents.atlas.game_pictures import GamePictures
from dgvf_agents.atlas.line_charts import HEIGHT, Chart, chart
from dgvf_agents.atlas.page import data_uri, environment
from dgvf_agents.atlas.ranking import SAME_KIND

_NAMES = {"discovered": "discovered questions", "random": "random questions"}
_SMALL = 150
"""Columns of the charts of all questions."""


@final
class Entry(NamedTuple):
    """What the page says of one question."""

    number: int
    rank: int
    kind: int
    caption: Caption
    variation: float
    policy: float
    value: float
    truth: float | None
    """`None` where outcomes do not vary."""
    cumulant: Chart
    answer: Chart
    """Outcome and answer."""
    discount: Chart | None
    """`None` where it is the same throughout."""


@final
class Large(NamedTuple):
    """A question that the page shows large."""

    place: int
    entry: Entry
    others: tuple[int, ...]
    """Questions of its kind."""
    frames: tuple[float, ...]
    """Share of the gradient in each channel, the oldest first."""
    highest: bytes
    """PNG."""
    lowest: bytes
    """PNG."""
    highest_at: int
    lowest_at: int
    peak: float


def render_game_page(atlas: GameAtlas, pictures: GamePictures) -> str:
    """The page.

    Args:
        atlas: the run and its game.
        pictures: of it.
    """
    entries = [_entry(atlas, number, _SMALL) for number in atlas.ranking.kinds_first]
    return (
        environment()
        .get_template("game.html")
        .render(
            atlas=atlas,
            label=f"{_NAMES.get(atlas.config.task, atlas.config.task)}, seed {atlas.config.seed}",
            episode=atlas.episode,
            entries=entries,
            large=[_large(atlas, pictures, place, number) for place, number in enumerate(atlas.gradients)],
            value=chart(atlas.traces.values, first=atlas.episode.first),
            rewards=[(int(t) + 1, float(atlas.episode.rewards[t])) for t in np.flatnonzero(atlas.episode.rewards)],
            ends=(np.flatnonzero(atlas.episode.terminated) + 1).tolist(),
            kind_count=len(atlas.ranking.kinds),
            last=atlas.looks[[look.label for look in atlas.looks].count("this run") - 1],
            pictures=pictures,
            channels=atlas.episode.observations.shape[1],
            height=HEIGHT,
            same_kind=SAME_KIND,
            every=atlas.episode.steps <= GRADIENT_MOMENTS,
            record=_record(atlas, pictures),
        )
    )


def _entry(atlas: GameAtlas, number: int, columns: int) -> Entry:
    traces, first = atlas.traces, atlas.episode.first
    kind = next(i + 1 for i, kind in enumerate(atlas.ranking.kinds) if number in kind.members)
    discount = traces.discounts[:, number]
    truth = float(traces.truth[number])
    return Entry(
        number,
        atlas.ranking.order.tolist().index(number) + 1,
        kind,
        atlas.captions[number],
        float(atlas.ranking.variation[number]),
        float(atlas.reliance.policy[number]),
        float(atlas.reliance.value[number]),
        None if np.isnan(truth) else truth,
        chart(traces.cumulants[:, number], columns=columns, first=first),
        chart(traces.outcomes[:, number], traces.answers[:, number], columns=columns, first=first),
        chart(discount, columns=columns, first=first) if np.ptp(discount[first:]) > 1e-6 else None,
    )


def _large(atlas: GameAtlas, pictures: GamePictures, place: int, number: int) -> Large:
    kind = atlas.ranking.kinds[place]
    return Large(
        place + 1,
        _entry(atlas, number, 600),
        kind.members[1:],
        tuple(atlas.gradients[number].share.tolist()),
        *pictures.extremes[number],
        *atlas.traces.extremes(number),
        atlas.gradients[number].peak,
    )


def _record(atlas: GameAtlas, pictures: GamePictures) -> dict[str, Any]:
    """What the page's script moves through."""
    episode, traces = atlas.episode, atlas.traces
    return {
        "steps": episode.steps,
        "frames": [data_uri(frame) for frame in pictures.frames],
        "actions": episode.actions.tolist(),
        "names": list(episode.action_names),
        "rewards": episode.rewards.tolist(),
        "ends": episode.terminated.tolist(),
        "values": _rounded(traces.values),
        "questions": {
            str(number): {
                "u": _rounded(traces.cumulants[:, number]),
                "g": _rounded(traces.discounts[:, number]),
                "y": _rounded(traces.answers[:, number]),
                "heat": dict(zip(map(str, found.moments), map(_heat_uri, found.heat), strict=True)),
            }
            for number, found in atlas.gradients.items()
        },
    }


def _heat_uri(levels: np.ndarray) -> str:
    return data_uri(heat_png(levels))


def _rounded(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values.tolist()]
