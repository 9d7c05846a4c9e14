"""`dgvf aggregate`: human-normalized scores on Atari from tables of scores, of agents trained anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from dgvf_agents.experiments.statistics import AGGREGATES, Estimate, estimate
from dgvf_envs.atari.games import human_normalized_score, title_of

_ENVIRONMENT_ID = re.compile(r"(?:ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?(?:-v\d+)?")
"""A game in an environment id of ALE, Gymnasium or EnvPool: `ALE/Pong-v5`, `PongNoFrameskip-v4`."""


def read_scores(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Human-normalized scores [seeds] by agent and game.

    Args:
        path: a CSV file with a row per run and the columns `game`, `score` and, optionally, `seed` and `agent`. Or a
            table of Open RL Benchmark: games in the first column, then a column per agent with `mean ± deviation` over
            its seeds. The mean then counts as one run. Games are names or environment ids.

    Raises:
        ValueError: the file has other columns, a run twice, a score that is not a finite number, or a game without a
            human score.
        FileNotFoundError: there is no such file.
    """
    table = pd.read_csv(path, dtype=object, keep_default_na=False, na_values=[""])  # a label such as NA is not missing
    runs = table if {"game", "score"} <= set(table) else _of_wide_table(table, path)
    runs = runs.assign(agent=runs["agent"].fillna(path.stem) if "agent" in runs else path.stem)
    scores = pd.to_numeric(runs["score"], errors="coerce")
    if len(wrong := runs[~np.isfinite(scores)]):
        raise ValueError(f"score must be a finite number in every row of {path}, got {wrong['score'].iloc[0]!r}")
    runs = runs.assign(game=[_game_of(str(name)) for name in runs["game"]], score=scores)
    if "seed" in runs and (again := runs.duplicated(["agent", "game", "seed"])).any():
        row = runs[again].iloc[0]
        raise ValueError(f"{path} must have each run once, got {row.agent} on {row.game} with seed {row.seed} again")
    runs["normalized"] = [human_normalized_score(*run) for run in zip(runs["game"], runs["score"], strict=True)]
    return {
        str(agent): {game: seeds["normalized"].to_numpy() for game, seeds in rows.groupby("game", sort=False)}
        for agent, rows in runs.groupby("agent", sort=False)
    }


def aggregate(games: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Each of `AGGREGATES` of one agent, with its interval over seeds.

    Args:
        games: human-normalized scores [seeds] by game.
    """
    return {name: estimate(statistic, list(games.values())) for name, statistic in AGGREGATES.items()}


def _of_wide_table(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Game, agent and score from cells `mean ± deviation`."""
    runs = table.melt(id_vars=table.columns[0], var_name="agent", value_name="score")
    parts = runs["score"].astype(str).str.split(" ± ", expand=True)
    if runs.empty or parts.shape[1] != 2 or parts.isna().any(axis=None):
        raise ValueError(
            f"{path} must have the columns game and score, or a column per agent with mean ± deviation, got columns "
            f"{', '.join(map(str, table.columns))}"
        )
    return runs.rename(columns={table.columns[0]: "game"}).assign(score=parts[0])


def _game_of(name: str) -> str:
    """Gymnasium's name of a game."""
    match = _ENVIRONMENT_ID.fullmatch(name)
    return title_of(name if match is None else match[1])
