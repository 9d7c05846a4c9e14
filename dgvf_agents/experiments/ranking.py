"""Agents over many games: improvements over a baseline, and statistics over the games that gain most.

The paper ranks the games by the gain of pixel control over plain IMPALA, shows the relative improvement of discovered
questions on the first ten, and the median human-normalized score of every agent on the first 5, 10, 20, 40 and 57. It
averages the score at the end of training over 3 seeds and does not define its relative improvement; see
`statistics.median_improvement`.

Intervals resample the seeds of each game. They keep the games and their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments.statistics import AGGREGATES, estimate, mean, median_improvement
from dgvf_agents.experiments.worlds import reference_of

TOP_GAMES = (5, 10, 20, 40, 57)
"""Numbers of games over which the paper shows medians."""

Rows = list[tuple[Any, ...]]


@final
@dataclass(frozen=True)
class Ranking:
    """The order of games."""

    by: str
    """Label of the setting whose gain orders the games."""
    baseline: str
    """Label of the setting over which improvements are measured."""


def ranking_rows(runs: pd.DataFrame, ranking: Ranking | None) -> tuple[Rows, Rows]:
    """Rows of the tables `improvements` and `top_games`.

    Args:
        runs: cells of all games. Games without a human score, and those that some setting has not been run on, are left
            out.
        ranking: the order. Without a run of its two settings there are no rows.
    """
    if ranking is None or not {ranking.by, ranking.baseline} <= set(runs["setting"]):
        return [], []
    scores = _ranked_scores(runs, ranking)
    return _improvements(scores, ranking.baseline), _top_games(scores, ranking.baseline)


def _ranked_scores(runs: pd.DataFrame, ranking: Ranking) -> dict[str, dict[str, np.ndarray]]:
    """Human-normalized scores [seeds] by game, the largest gain first, and by setting."""
    settings = set(runs["setting"])
    scores = {
        world: {
            label: seeds["final_return"].map(reference_of(world).normalized).to_numpy()
            for label, seeds in rows.groupby("setting", sort=False)
        }
        for world, rows in runs.groupby("world", sort=False)
        if set(rows["setting"]) == settings and reference_of(world).random is not None
    }
    gains = {world: float(median_improvement(s[ranking.by], s[ranking.baseline])) for world, s in scores.items()}
    return {world: scores[world] for world in sorted(scores, key=gains.__getitem__, reverse=True)}


def _improvements(scores: Mapping[str, Mapping[str, np.ndarray]], baseline: str) -> Rows:
    """The baseline has a score and no improvement."""
    rows: Rows = []
    for world, settings in scores.items():
        for label, seeds in settings.items():
            gain: Sequence[float] = 3 * (math.nan,)
            if label != baseline:
                gain = estimate(median_improvement, [seeds, settings[baseline]])
            rows.append((world, label, *estimate(mean, [seeds]), *gain))
    return rows


def _top_games(scores: Mapping[str, Mapping[str, np.ndarray]], baseline: str) -> Rows:
    """The paper's numbers of games, as far as there are so many, and all games."""
    rows: Rows = []
    games = list(scores.values())
    for number in sorted({*(n for n in TOP_GAMES if n < len(games)), len(games)} - {0}):
        for label in games[0]:
            strata = [settings[label] for settings in games[:number]]
            rows += [(number, label, name, *estimate(statistic, strata)) for name, statistic in AGGREGATES.items()]
            if label != baseline:
                pairs = [*strata, *(settings[baseline] for settings in games[:number])]
                rows.append((number, label, "median_improvement", *estimate(median_improvement, pairs)))
    return rows
