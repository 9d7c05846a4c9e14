"""`dgvf aggregate`: statistics of human-normalized scores from tables of anyone's scores."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from dgvf_agents.cli import main
from dgvf_agents.experiments.scores import aggregate, read_scores
from dgvf_envs.atari import GAMES

RUNS = """game,seed,score
Pong,0,14.6
Pong,1,-20.7
ALE/Breakout-v5,0,30.5
BreakoutNoFrameskip-v4,1,88.1
freeway,0,59.2
Freeway-v5,1,118.4
ms_pacman,0,307.3
"""
"""Human-normalized: Pong 1 and 0, Breakout 1 and 3, Freeway 2 and 4, Ms. Pac-Man 0."""

WIDE = ""","An agent, 1 GPU",other
Pong-v5,14.60 ± 1.00,-20.70 ± 0.00
Breakout-v5,59.30 ± 30.50,1.70 ± 0.00
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_scores_are_normalized_by_game_and_agent(tmp_path: Path) -> None:
    scores = read_scores(written(tmp_path, RUNS))
    assert list(scores) == ["mine"]
    expected = {"Pong": [1.0, 0.0], "Breakout": [1.0, 3.0], "Freeway": [2.0, 4.0], "MsPacman": [0.0]}
    assert {game: seeds.tolist() for game, seeds in scores["mine"].items()} == {
        game: pytest.approx(seeds) for game, seeds in expected.items()
    }


def test_games_count_alike_whatever_their_number_of_seeds(tmp_path: Path) -> None:
    found = aggregate(read_scores(written(tmp_path, RUNS))["mine"])
    # means by game: 0.5, 2, 3, 0
    assert found["median"].value == pytest.approx(1.25)
    assert found["mean"].value == pytest.approx(5.5 / 4)
    assert found["interquartile_mean"].value == pytest.approx((0.0 + 1.0 + 1.0 + 2.0 + 3.0) / 5)  # of seven runs
    assert np.isnan(found["median"].low)  # a game with a single seed
    found = aggregate({"Pong": np.array([1.0, 0.0]), "Breakout": np.array([1.0, 3.0])})
    assert found["median"] == pytest.approx((1.25, 0.5, 2.0))


def test_agents_are_told_apart(tmp_path: Path) -> None:
    table = "agent,game,score\na,Pong,14.6\nb,Pong,-20.7\na,Breakout,30.5\n,Pong,14.6\n"
    scores = read_scores(written(tmp_path, table))
    assert {agent: list(games) for agent, games in scores.items()} == {
        "a": ["Pong", "Breakout"],
        "b": ["Pong"],
        "mine": ["Pong"],
    }


def test_tables_of_means_with_deviations_are_read(tmp_path: Path) -> None:
    scores = read_scores(written(tmp_path, WIDE))
    assert {agent: [float(s[0]) for s in games.values()] for agent, games in scores.items()} == {
        "An agent, 1 GPU": pytest.approx([1.0, 2.0]),
        "other": pytest.approx([0.0, 0.0]),
    }


def test_the_command_prints_statistics_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["aggregate", str(written(tmp_path, RUNS.rpartition("ms_pacman")[0]))])
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if "mine" in line)
    agent, games, runs, median, interquartile_mean, mean = re.findall(r"\S+ \[.+?\]|\S+", row)
    assert (agent, games, runs, median) == ("mine", "3", "6", "2.00 [1.00, 3.00]")
    assert interquartile_mean.startswith("1.75 [")  # of 1, 1, 2 and 3
    assert mean.startswith("1.83 [")
    assert "Of 57 games" in printed


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("game,points\nPong,3\n", "must have the columns game and score"),
        (",agent\nPong,3 ± 1\nBreakout,\n", "must have the columns game and score"),
        ("game,score\nPong,three\n", "score must be a finite number"),
        ("game,score\nPong,inf\n", "score must be a finite number"),
        ("game,score\nPonk,3\n", "game must be .* got 'Ponk'; did you mean Pong"),
        ("game,score\nAdventure,3\n", "game must be one of the 57 games"),
        ("game,seed,score\nPong,0,3\nPong-v5,0,4\n", "must have each run once"),
    ],
)
def test_bad_tables_are_named(table: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_scores(written(tmp_path, table))


PUBLISHED = "DGVF_CLEANBA_TABLES"
"""Environment variable: the folder `static/cleanba` of github.com/vwxyzjn/cleanba, whose tables are not copied here."""


@pytest.mark.skipif(PUBLISHED not in os.environ, reason=f"{PUBLISHED} does not name CleanBA's published tables")
@pytest.mark.parametrize(
    ("file", "agent", "published", "difference"),
    [
        ("main_10CPU", "Cleanba IMPALA, 1 A100, 10 CPU", 1.65, 0.0079),
        ("spec_out", "Moolib IMPALA, 8 A100, 80 CPU", 1.40, -0.1162),
    ],
)
def test_published_medians_follow_from_published_scores(
    file: str, agent: str, published: float, difference: float
) -> None:
    """Huang et al. (2023), "Cleanba", README: "Cleanba's IMPALA and PPO achieve about 165% median HNS in Atari",
    "matching monobeast IMPALA's 165%", "outperforming moolib IMPALA's 140%".

    The README does not say for which hardware. IMPALA on one A100 agrees to the percent. The others differ because the
    published medians (`*_aggregate.png`) are of the last logged point of every run, and the tables hold means of the
    last hundred: in the picture for one A100, IMPALA is at 1.63, PPO at 1.70, monobeast at 1.64 and moolib at 1.25; in
    that for the largest hardware, at 1.57, 1.63, 1.61 and 1.40.
    """
    games = read_scores(Path(os.environ[PUBLISHED]) / f"{file}.csv")[agent]
    assert games.keys() == GAMES.keys()
    assert aggregate(games)["median"].value - published == pytest.approx(difference, abs=1e-4)
