"""Where the questions that are shown large look, at many moments of a game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.atlas.frame_pictures import cells, heat_levels, peak_of
from dgvf_agents.atlas.key_moments import key_moments
from dgvf_agents.atlas.saliency import cumulant_saliency
from dgvf_agents.atlas.traces import Traces


@final
class Gradients(NamedTuple):
    """Where one question looks at K moments."""

    moments: tuple[int, ...]
    """In order."""
    heat: tuple[np.ndarray, ...]
    """`[K]` of `[H, W]`: levels of `frame_pictures.HEAT_COLORS`, for the sum of |∂u/∂o| over the channels, in means
    over small cells where pictures are large."""
    peak: float
    """The gradient that is drawn brightest, in cumulant per pixel that turns from black to white."""
    share: np.ndarray
    """`[C]`: of the gradient in each channel, the oldest frame of a stack first."""


def gradients_of(
    model: DGVFA2C, episode: Episode, traces: Traces, questions: Sequence[int], even: int
) -> dict[int, Gradients]:
    """Where each of the questions looks.

    Args:
        model: the agent.
        episode: the game.
        traces: along it.
        questions: their numbers.
        even: moments at even distances ≥ 1, besides those where the cumulant is greatest and least.
    """
    return {question: _gradients(model, episode, traces, question, even) for question in questions}


def _gradients(model: DGVFA2C, episode: Episode, traces: Traces, question: int, even: int) -> Gradients:
    moments = key_moments(episode.steps, even, traces.extremes(question))
    each = cumulant_saliency(model, episode.observations[moments], question)
    summed = cells(each.sum(axis=1))
    looked_at = [place for place, moment in enumerate(moments) if moment >= episode.first]
    peak = peak_of(summed[looked_at])
    of_channels = each[looked_at].sum(axis=(0, 2, 3), dtype=np.float64)
    return Gradients(
        tuple(moments),
        tuple(heat_levels(one, peak) for one in summed),
        peak,
        of_channels / max(of_channels.sum(), 1e-30),
    )
