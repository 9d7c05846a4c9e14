"""The paper's experiments on Atari: what they run, their tables and pictures, and the real command at tiny scale."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dgvf_agents.cli import main
from dgvf_agents.experiments import figures
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import cells_of
from dgvf_agents.experiments.settings import SCALES, Scale
from dgvf_agents.experiments.tables import Results, only, where
from dgvf_agents.experiments.worlds import game_of_world, reference_of, world_of_game
from dgvf_agents.train.config import ATARI_METHODS, atari_config
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.plotting import Panel
from tests.run_folders import write_run


def test_every_task_is_beside_the_main_task() -> None:
    settings = EXPERIMENTS["atari-representation"].settings("atari/Pong")
    assert [setting.method for setting in settings] == [*ATARI_METHODS]
    assert [setting.label for setting in settings] == [*ATARI_METHODS[:-1], "impala"]
    for setting in settings:
        assert setting.config(SCALES["full"], 0) == dataclasses.replace(
            atari_config("Pong", setting.method), algorithm="impala", compile=True
        )
        assert setting.folder_name == f"atari/Pong/{setting.method},algorithm=impala"
    tasks = [setting.config(SCALES["full"], 0).task for setting in settings]
    assert tasks == ["discovered", "random", "reward-prediction", "pixel-control", "none"]


def test_both_meta_objectives_are_beside_the_main_task() -> None:
    settings = EXPERIMENTS["atari-meta-objective"].settings("atari/Pong")
    configs = [setting.config(SCALES["full"], 0) for setting in settings]
    assert [(config.task, config.objective) for config in configs] == [
        ("discovered", "sum"),
        ("discovered", "end"),
        ("none", "sum"),
    ]
    assert {config.algorithm for config in configs} == {"impala"}
    shared = EXPERIMENTS["atari-representation"].settings("atari/Pong")
    assert (settings[0].folder_name, settings[2].folder_name) == (shared[0].folder_name, shared[4].folder_name)


def test_a_laptop_trains_plain_a2c_for_longest() -> None:
    settings = EXPERIMENTS["atari-laptop"].settings("atari/Pong")
    configs = [setting.config(SCALES["full"], 0) for setting in settings]
    assert [(config.task, config.encoder_mode) for config in configs] == [
        ("none", "joint"),
        ("discovered", "joint"),
        ("discovered", "auxiliary"),
        ("discovered", "joint"),
        ("none", "joint"),
    ]
    assert [config.algorithm for config in configs] == ["a2c"] * 4 + ["impala"]
    assert [config.meta_learning_rate for config in configs[1:4]] == [7.5e-5, 7.5e-5, 6e-4]
    assert all(config.steps < configs[0].steps == 5_000_000 for config in configs[1:])
    assert {(config.n_envs * config.n_steps, config.loss_reduction) for config in configs} == {(80, "mean")}


def test_scales_apply_to_games() -> None:
    full = atari_config("Pong", "discovered")
    assert SCALES["small"].apply(full).steps == full.steps // 4
    assert Scale(steps=7).apply(full).steps == 7
    tiny = SCALES["tiny"].apply(full)
    assert tiny.atari is not None
    assert (tiny.atari.max_frames, tiny.env_kwargs, tiny.evaluation_kwargs, tiny.compile) == (160, {}, {}, False)


def test_games_are_normalized_by_a_random_and_a_human_player() -> None:
    assert world_of_game("ms_pacman") == "atari/MsPacman"
    assert (game_of_world("atari/MsPacman"), game_of_world("puddle-world")) == ("MsPacman", None)
    pong = reference_of("atari/Pong")
    assert (pong.env, pong.frames_per_step) == ("Pong", 4)
    assert (pong.normalized(-20.7), pong.normalized(14.6)) == (0.0, 1.0)
    assert reference_of("atari/Adventure").random is None


def results_of(tmp_path: Path, games: Sequence[str], steps: int) -> Results:
    experiment = EXPERIMENTS["atari-representation"]
    settings = [setting for game in games for setting in experiment.settings(world_of_game(game))]
    cells = cells_of(settings, Scale(steps=steps), 2, tmp_path / "-".join(games))
    for number, cell in enumerate(cells):
        write_run(cell.folder, cell.config, training={steps // 2: 1.0, steps: 2.0 + number})
    return analyze(experiment, cells)


def test_pictures_tell_how_many_frames_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(tmp_path, ["Breakout", "Pong"], 500_000)
    shown: list[Panel] = []
    monkeypatch.setattr(figures, "plot_curves", lambda path, panels, title: shown.extend(panels))
    EXPERIMENTS["atari-representation"].draw(results, tmp_path / "x.png")
    assert [panel.title for panel in shown] == [
        f"{game}, 2 seeds, 2M frames (paper: 200M)" for game in ("Breakout", "Pong")
    ]
    experiment = EXPERIMENTS["atari-laptop"]
    cells = cells_of(experiment.settings("atari/Pong"), SCALES["full"], 1, tmp_path / "laptop")
    for cell in cells:
        write_run(cell.folder, cell.config, training={cell.config.steps // 2: -20.0, cell.config.steps: -19.0})
    experiment.draw(analyze(experiment, cells), tmp_path / "y.png")
    laptop = shown.pop()
    assert laptop.title == "Pong, 1 seed, 800k to 20M frames (paper: 200M)"
    assert {panel.ylabel for panel in shown} == {"mean score of the last 100 games of training"}
    assert {(panel.frames_per_step, panel.optimal) for panel in shown} == {(4, None)}
    assert [curve.label for curve in shown[0].lines][-2:] == ["Pixel control", "IMPALA (main task)"]


def test_curves_are_of_training_even_where_every_run_was_evaluated(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["atari-meta-objective"]
    cells = cells_of(experiment.settings("atari/Pong"), Scale(steps=100), 1, tmp_path)
    for cell in cells:
        write_run(cell.folder, cell.config, {100: 9.0}, {20 * k: float(k) for k in range(1, 6)})
    results = analyze(experiment, cells)
    assert set(results.cells["measure"]) == {"training"}
    assert list(results.curves["mean_return"]) == 3 * [1.0, 2.0, 3.0, 4.0, 5.0]


def test_several_games_are_summarized_by_human_normalized_scores(tmp_path: Path) -> None:
    results = results_of(tmp_path, ["Breakout", "Pong"], 1000)
    runs = [where(results.cells, world=f"atari/{game}", setting="impala") for game in ("Breakout", "Pong")]
    breakout, pong = (sum(rows["final_return"]) / 2 for rows in runs)
    expected = ((breakout - 1.7) / (30.5 - 1.7) + (pong + 20.7) / (14.6 + 20.7)) / 2
    overall = only(results.summary, world="all", setting="impala", quantity="final")
    assert overall.mean == pytest.approx(expected)
    without = results_of(tmp_path, ["Adventure", "Pong"], 1000)  # no human has played it for a table
    assert set(without.summary["world"]) == {"atari/Adventure", "atari/Pong"}


@pytest.mark.slow
def test_the_command_writes_runs_tables_and_a_picture_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--scale", "tiny", "--seeds", "1", "--steps", "240", "--jobs", "1", "--out", str(tmp_path)]
    main(["reproduce", "atari-meta-objective", "--game", "breakout", *tiny])
    capsys.readouterr()
    tables = tmp_path / "results" / "atari-meta-objective" / "Breakout"
    assert set(Results.read(tables).cells["setting"]) == {"sum", "end", "impala"}
    assert (tables / "atari-meta-objective.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads((tables / "provenance.json").read_text())
    command = "dgvf reproduce atari-meta-objective --scale tiny --seeds 1 --steps 240 --game breakout"
    assert told["command"] == command
    assert told["configurations"]["atari/Breakout/a2c,algorithm=impala"]["atari"]["life_loss_ends"] is True
    assert RunFolder(tmp_path / "atari" / "Breakout" / "discovered,algorithm=impala" / "seed-0").is_finished()
    main(["reproduce", "atari-meta-objective", "--game", "Breakout", *tiny])
    assert "3 of 3 cells are finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": "atari-representation"}, "game must name a game for atari-representation, as --game Breakout"),
        ({"experiment": "joint", "game": ("Pong",)}, "game must be left out for joint, which is not on Atari"),
        (
            {"experiment": "atari-representation", "game": ("Pong",), "worlds": ("puddle-world",)},
            "worlds must be left out for atari-representation",
        ),
    ],
)
def test_bad_settings_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reproduction(**arguments)  # type: ignore[arg-type]


def test_results_of_different_games_lie_apart(tmp_path: Path) -> None:
    told = Reproduction("atari-representation", game=("ms_pacman", "Pong", "pong"), out=tmp_path)
    assert told.game_worlds == ("atari/MsPacman", "atari/Pong")
    assert told.results_folder == tmp_path / "results" / "atari-representation" / "MsPacman-Pong"
