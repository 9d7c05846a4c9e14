"""Joint learning on many games: which are run, how they are ranked, and statistics over the first of them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from dgvf_agents.cli import main
from dgvf_agents.experiments import figures, runs
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import CellState, cells_of, run_cell, state_of
from dgvf_agents.experiments.settings import SCALES, Scale
from dgvf_agents.experiments.tables import Results, only, where
from dgvf_agents.experiments.worlds import GAME_ORDER, world_of_game
from dgvf_agents.train.config import TrainConfig, impala_config
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.plotting import Bars, Panel
from dgvf_envs.atari import GAMES
from tests.run_folders import write_run

JOINT = EXPERIMENTS["atari-joint"]
AGENTS = ("discovered", "random", "reward-prediction", "pixel-control", "impala")

NORMALIZED: dict[str, dict[str, tuple[float, float]]] = {
    "Pong": {
        "discovered": (1.0, 1.4), "random": (0.0, 0.0), "reward-prediction": (0.5, 0.7),
        "pixel-control": (0.7, 0.9), "impala": (0.5, 0.7),
    },
    "Breakout": {
        "discovered": (9.0, 11.0), "random": (1.0, 1.0), "reward-prediction": (4.0, 4.0),
        "pixel-control": (7.0, 9.0), "impala": (3.0, 5.0),
    },
    "Freeway": {
        "discovered": (0.0, 0.0), "random": (0.2, 0.4), "reward-prediction": (0.9, 1.1),
        "pixel-control": (0.4, 0.8), "impala": (0.8, 1.2),
    },
}  # fmt: skip
"""Human-normalized scores of two seeds."""

IMPROVEMENTS = {
    "Breakout": {"discovered": 6 / 4, "random": -3 / 4, "reward-prediction": 0.0, "pixel-control": 4 / 4},
    "Pong": {"discovered": 0.6, "random": -0.6, "reward-prediction": 0.0, "pixel-control": 0.2},
    "Freeway": {"discovered": -1.0, "random": -0.7, "reward-prediction": 0.0, "pixel-control": -0.4},
}
"""By hand: the difference of means over seeds, divided by IMPALA's if that is more than the human's 1."""

Scores = Mapping[str, Mapping[str, Sequence[float]]]


def results_of(normalized: Scores, out: Path) -> Results:
    """The tables of runs with these human-normalized scores by game and agent; `{}` for a game: it has not been run."""
    seeds = max(len(scores) for agents in normalized.values() for scores in agents.values())
    settings = [setting for game in normalized for setting in JOINT.settings(world_of_game(game))]
    cells = []
    for cell in cells_of(settings, Scale(steps=100), seeds, out):
        game = cell.setting.world.removeprefix("atari/")
        if cell.setting.label in normalized[game]:
            random, human = GAMES.get(game, (0.0, 1.0))
            score = random + normalized[game][cell.setting.label][cell.seed] * (human - random)
            write_run(cell.folder, cell.config, training={50: 0.0, 95: score, 100: score})
            cells.append(cell)
    return analyze(JOINT, cells)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(NORMALIZED, tmp_path_factory.mktemp("runs"))


def test_joint_learning_is_that_of_the_paper_with_every_auxiliary_task() -> None:
    settings = JOINT.settings("atari/Pong")
    assert tuple(setting.label for setting in settings) == AGENTS
    for setting in settings:
        expected = dataclasses.replace(impala_config("Pong", setting.method), compile="auto", seed=3)  # type: ignore[arg-type]
        assert setting.config(SCALES["full"], 3) == expected
    assert JOINT.seeds == 3


def test_games_are_ranked_by_the_gain_of_pixel_control(results: Results) -> None:
    assert list(results.improvements["world"].unique()) == ["atari/Breakout", "atari/Pong", "atari/Freeway"]


def test_improvements_are_relative_to_the_better_of_impala_and_human(results: Results) -> None:
    for game, by_agent in IMPROVEMENTS.items():
        for agent, expected in by_agent.items():
            row = only(results.improvements, world=f"atari/{game}", setting=agent)
            assert row.improvement == pytest.approx(expected, abs=1e-12)
            assert row.low <= row.improvement <= row.high
            assert (row.score_low, row.score_high) == pytest.approx(NORMALIZED[game][agent])
    rows = where(results.improvements, setting="impala")
    assert list(rows["score"]) == pytest.approx([4.0, 0.6, 1.0])
    assert rows["improvement"].isna().all()
    pong = only(results.improvements, world="atari/Pong", setting="discovered")
    # two seeds each: the interval reaches from the worst pair of seeds to the best
    assert (pong.low, pong.high) == pytest.approx((1.0 - 0.7, 1.4 - 0.5))


def test_statistics_over_all_games_are_those_by_hand(results: Results) -> None:
    assert set(results.top_games["games"]) == {3}
    found = {(row.setting, row.statistic): row.value for row in results.top_games.itertuples()}
    assert found["discovered", "median"] == pytest.approx(1.2)
    assert found["discovered", "mean"] == pytest.approx((1.2 + 10.0 + 0.0) / 3)
    assert found["discovered", "interquartile_mean"] == pytest.approx((0.0 + 1.0 + 1.4 + 9.0) / 4)  # of six runs
    assert found["discovered", "median_improvement"] == pytest.approx(0.6)
    assert found["random", "median_improvement"] == pytest.approx(-0.7)
    assert ("impala", "median_improvement") not in found


def test_the_first_games_are_those_that_gain_most(tmp_path: Path) -> None:
    """Against a slow transcription of the definitions, on seven games with random scores."""
    random = np.random.default_rng(0)
    games = GAME_ORDER[:7]
    normalized = {game: {agent: random.gamma(1.0, 2.0, 2).tolist() for agent in AGENTS} for game in games}
    results = results_of(normalized, tmp_path)

    def improvement(game: str, agent: str) -> float:
        ours, baseline = (statistics.mean(normalized[game][name]) for name in (agent, "impala"))
        return (ours - baseline) / (baseline if baseline > 1 else 1)

    order = sorted(games, key=lambda game: -improvement(game, "pixel-control"))
    assert order != list(games)
    assert [world.removeprefix("atari/") for world in results.improvements["world"].unique()] == order
    assert list(results.top_games["games"].unique()) == [5, 7]
    for number in (5, 7):
        for agent in AGENTS:
            means = [statistics.mean(normalized[game][agent]) for game in order[:number]]
            median = only(results.top_games, games=number, setting=agent, statistic="median")
            assert median.value == pytest.approx(statistics.median(means))
            assert median.low <= median.value <= median.high
        gains = [improvement(game, "discovered") for game in order[:number]]
        found = only(results.top_games, games=number, setting="discovered", statistic="median_improvement")
        assert found.value == pytest.approx(statistics.median(gains))


def test_games_that_some_agent_or_no_human_has_played_are_left_out(tmp_path: Path) -> None:
    partial = {agent: scores for agent, scores in NORMALIZED["Pong"].items() if agent != "random"}
    adventure = NORMALIZED["Freeway"]
    played = {"Breakout": NORMALIZED["Breakout"], "Pong": partial, "Adventure": adventure}
    results = results_of(played, tmp_path / "some")
    assert set(results.improvements["world"]) == {"atari/Breakout"}
    assert set(results.top_games["games"]) == {1}
    assert set(results.cells["world"]) == {"atari/Breakout", "atari/Pong", "atari/Adventure"}
    none = results_of({"Adventure": adventure}, tmp_path / "none")
    assert none.improvements.empty
    assert none.top_games.empty
    without = results_of({"Pong": {"discovered": (1.0,), "impala": (1.0,)}}, tmp_path / "unranked")
    assert without.improvements.empty


def test_pictures_show_improvements_and_medians(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Bars] = []
    panels: list[Panel] = []
    monkeypatch.setattr(figures, "plot_bars", lambda path, shown, title, ylabel: bars.extend(shown))
    monkeypatch.setattr(figures, "plot_studies", lambda path, shown, parameter: panels.extend(shown))
    JOINT.draw(results, tmp_path / "atari-joint.png")
    assert [panel.title for panel in bars] == ["Discovered GVFs", "Random GVFs", "Reward prediction", "Pixel control"]
    assert bars[0].names == ["Breakout", "Pong", "Freeway"]
    assert bars[1].names == ["Pong", "Freeway", "Breakout"]  # each panel in its own order, the largest first
    assert bars[1].values[:, 0] == pytest.approx([-0.6, -0.7, -0.75])
    (panel,) = panels
    assert {line.label: line.band[:, :2].tolist() for line in panel.lines}["IMPALA (main task)"] == [[3.0, 1.0]]


def test_two_pictures_are_drawn_from_tables_alone(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path, {})
    main(["draw", "atari-joint", str(tmp_path)])
    for name in ("atari-joint.png", "atari-joint-median.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    unranked = dataclasses.replace(results, improvements=Results().improvements)
    JOINT.draw(unranked, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").is_file()


def test_a_number_of_games_is_taken_in_a_known_order(tmp_path: Path) -> None:
    assert sorted(GAME_ORDER) == sorted(GAMES)
    assert GAME_ORDER[:3] == ("ChopperCommand", "Breakout", "Seaquest")  # the paper's search, in its order
    assert GAME_ORDER[9:12] == ("BeamRider", "Alien", "Amidar")
    told = Reproduction("atari-joint", games=2, actors=8, address="auto", out=tmp_path)
    assert told.game_worlds == ("atari/ChopperCommand", "atari/Breakout")
    assert told.results_folder == tmp_path / "results" / "atari-joint" / "2-games"
    assert told.command == "dgvf reproduce atari-joint --scale full --games 2 --actors 8"
    assert len(Reproduction("atari-representation", games=57).game_worlds) == 57


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"experiment": "atari-joint"},
            "game must name a game for atari-joint, as --game Breakout, or --games must be",
        ),
        ({"experiment": "atari-joint", "game": ("Pong",), "games": 3}, r"got game \('Pong',\) and games 3"),
        ({"experiment": "atari-joint", "games": 0}, r"games must be in 1 ... 57, got 0"),
        ({"experiment": "atari-joint", "games": 58}, r"games must be in 1 ... 57, got 58"),
        ({"experiment": "joint", "games": 3}, "games must be left out for joint, which is not on Atari, got 3"),
        ({"experiment": "atari-joint", "games": 1, "address": "auto"}, "address must be left out without actors"),
    ],
)
def test_bad_numbers_of_games_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reproduction(**arguments)  # type: ignore[arg-type]


def test_actors_may_differ_when_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (setting,) = (setting for setting in JOINT.settings("atari/Pong") if setting.label == "discovered")
    here, cluster = Scale(steps=100), Scale(steps=100, actors=4, address="auto")
    config = setting.config(cluster, seed=0)
    assert (config.actors, config.address) == (4, "auto")
    with pytest.raises(ValueError, match="actors must be 0 unless the algorithm is impala, got 4"):
        EXPERIMENTS["atari-laptop"].settings("atari/Pong")[0].config(cluster, seed=0)
    RunFolder(tmp_path / "run").write_config(dataclasses.replace(setting.config(here, seed=0), log_every=7))
    assert state_of(tmp_path / "run", config) is CellState.UNFINISHED

    trained: list[TrainConfig] = []

    def train(config: TrainConfig, folder: Path, show_progress: bool, resume: bool) -> None:
        trained.append(config)
        write_run(folder, config, training={100: 1.0})

    monkeypatch.setattr(runs, "train", train)
    run_cell(config, tmp_path / "run", "dgvf reproduce")
    assert trained == [dataclasses.replace(config, log_every=7)]
    assert state_of(tmp_path / "run", setting.config(here, seed=0)) is CellState.FINISHED


@pytest.mark.slow
def test_the_command_trains_every_agent_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--scale", "tiny", "--seeds", "1", "--steps", "240", "--jobs", "1", "--out", str(tmp_path)]
    main(["reproduce", "atari-joint", "--games", "1", *tiny])
    assert "top 1" in capsys.readouterr().out
    tables = tmp_path / "results" / "atari-joint" / "1-games"
    results = Results.read(tables)
    assert set(results.improvements["setting"]) == set(AGENTS)
    assert (tables / "atari-joint-median.png").is_file()
    made = json.loads((tables / "provenance.json").read_text())["configurations"]
    assert {config["algorithm"] for config in made.values()} == {"impala"}
    assert {config["policy"] for config in made.values()} == {"ResNetPolicy"}
    main(["reproduce", "atari-joint", "--games", "1", *tiny])
    assert "5 of 5 cells are finished already" in capsys.readouterr().out
