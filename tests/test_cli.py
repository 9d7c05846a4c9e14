"""The `dgvf` command, through its real main with tiny settings."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pygame
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from dgvf_agents import commands
from dgvf_agents.atlas import page
from dgvf_agents.atlas.page import GAME_STEPS
from dgvf_agents.cli import main
from dgvf_agents.command_help import COMMANDS
from dgvf_agents.command_names import NAMES, Names, check_names
from dgvf_agents.command_tree import CommandGroup
from dgvf_agents.exit_status import INTERRUPTED, PIPE_CLOSED
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.train import recorder, train
from dgvf_agents.train import watch as watching
from dgvf_agents.train.config import METHODS, WORLDS, TrainConfig, preset
from dgvf_agents.train.environments import window
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.plotting import plot_learning_curve

TINY = ["--steps", "1600", "--compile", "False", "--log-every", "400", "--checkpoint-every", "800", "--questions", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "puddle"
    main(["train", "puddle-world", "discovered", *TINY, "--out", str(path)])
    return path


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    often = ["--evaluate-every", "800", "--evaluation-episodes", "2"]
    main(["train", "collect-objects-small", "a2c", *TINY[:-2], *often, "--out", str(tmp_path / "run")])
    with (tmp_path / "run" / "progress.csv").open() as file:
        evaluated = [float(row["eval/mean_reward"]) for row in csv.DictReader(file) if row["eval/mean_reward"]]
    line = r"^([\d,]+) of 1,600 steps, [\d,]+ steps/s, return .+, return in evaluation (.+)$"
    told = re.findall(line, capsys.readouterr().out, re.M)
    assert told == [("800", f"{evaluated[0]:.2f}"), ("1,600", f"{evaluated[1]:.2f}")]


def test_a_run_leaves_configuration_metrics_checkpoints_and_a_curve(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["task"], config["questions"]) == ("PuddleWorld-v0", "discovered", 4)
    assert RunFolder(run).read_config() == TrainConfig(**config)
    assert [file.name for file in sorted((run / "checkpoints").iterdir())] == ["0000000800.zip", "0000001600.zip"]
    with (run / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["time/total_timesteps"]) for row in rows] == [400, 800, 1200, 1600]
    assert (run / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert list(run.glob("events.out.tfevents*"))
    assert not list(run.rglob("*.tmp*"))


def test_training_is_evaluated_on_the_way_and_not_changed_by_it(tmp_path: Path) -> None:
    arguments = ["train", "collect-objects-small", "a2c", "--steps", "1600", "--compile", "False", "--log-every", "400"]
    rows, evaluation = {}, ["--evaluate-every", "800", "--evaluation-episodes", "3"]
    for name, more in (("with", evaluation), ("without", [])):
        main([*arguments, *more, "--out", str(tmp_path / name)])
        with (tmp_path / name / "progress.csv").open() as file:
            rows[name] = list(csv.DictReader(file))
    evaluated = [bool(row["eval/mean_reward"]) for row in rows["with"]]
    assert evaluated == [False, True, False, True]
    mean, _ = evaluate(tmp_path / "with", episodes=3)  # of the last checkpoint, from the same seed
    assert float(rows["with"][-1]["eval/mean_reward"]) == pytest.approx(mean, abs=1e-6)
    for name in ("train/policy_loss", "train/gradient_norm", "rollout/ep_rew_mean"):
        assert [row[name] for row in rows["with"]] == [row[name] for row in rows["without"]]


def test_a_run_is_evaluated_and_watched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(run), "--episodes", "2"])
    shown = capsys.readouterr().out
    usual, as_trained = evaluate(run, episodes=2), evaluate(run, episodes=2, as_trained=True)
    assert f"return {usual[0]:.3f} ± {usual[1]:.3f} (standard deviation) over 2 episodes\n" in shown
    assert f"return {as_trained[0]:.3f} ± {as_trained[1]:.3f}" in shown
    assert usual[0] < as_trained[0]  # longer episodes, whose rewards are not halved


@pytest.mark.parametrize(
    ("world", "evaluated", "reference"),
    [("puddle-world", True, (-36.7, -12_888.0)), ("collect-objects-small", False, (3.0, 0.331))],
)
def test_a_learning_curve_is_comparable_with_the_optimal_and_the_random_return(
    world: str, evaluated: bool, reference: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, Any]] = []

    def record(*arguments: Any, **options: Any) -> None:
        drawn.append((arguments, options))
        plot_learning_curve(*arguments, **options)

    monkeypatch.setattr(recorder, "plot_learning_curve", record)
    often = ["--log-every", "80", "--evaluate-every", "80", "--evaluation-episodes", "1", "--n-envs", "8"]
    main(["train", world, "a2c", "--steps", "160", "--compile", "False", *often, "--out", str(tmp_path / "run")])
    (_, steps, returns, _), options = drawn[-1]
    column = "eval/mean_reward" if evaluated else "rollout/ep_rew_mean"
    with (tmp_path / "run" / "progress.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get(column)]
    assert steps == [int(row["time/total_timesteps"]) for row in rows]
    assert returns == [float(row[column]) for row in rows]
    assert options["evaluated"] == evaluated
    assert (options["reference"].optimal, options["reference"].random) == reference


def test_training_says_how_its_worlds_differ_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for world, method in (("puddle-world", "discovered"), ("collect-objects-small", "a2c")):
        tiny = ["--steps", "80", "--compile", "False", "--questions", "4", "--out", str(tmp_path / world)]
        main(["train", world, method, *tiny])
        shown[world] = " ".join(capsys.readouterr().out.split())
    puddles, rooms = shown["puddle-world"], shown["collect-objects-small"]
    assert "training: reward_scale=0.5, start=random, max_episode_steps=100; evaluation: the environment's" in puddles
    for command in ("evaluate {}", "watch {} --questions", "atlas {}"):
        assert f"dgvf {command.format(tmp_path / 'puddle-world')}" in puddles
    assert "evaluation:" not in rooms
    assert f"dgvf watch {tmp_path / 'collect-objects-small'}" in rooms
    assert "--questions" not in rooms
    assert "atlas" not in rooms


def test_what_questions_of_features_cannot_be_asked_is_not_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--steps", "80", "--compile", "False", "--questions", "4", "--question-encoder", "shared"]
    main(["train", "collect-objects-small", "discovered", *tiny, "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert "dgvf watch" in shown
    assert "atlas" not in shown
    assert "--questions" not in shown


def test_paths_are_told_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x[" / "bold]"
    tiny = ["--steps", "80", "--compile", "False", "--out", str(path)]
    main(["train", "collect-objects-small", "a2c", *tiny])
    assert f"The run lies in {path}," in "".join(capsys.readouterr().out.split("\n"))


def test_divergence_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = ["--learning-rate", "1e30", "--final-learning-rate", "1e30"]
    with pytest.raises(SystemExit) as stop:
        main(["train", "collect-objects-small", "a2c", *TINY, *rate, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert re.search(r"dgvf: \w+ must be finite, got", capsys.readouterr().err)


@pytest.mark.parametrize("episodes", ["0", "-1"])
def test_no_episodes_cannot_be_watched(episodes: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["watch", str(run), "--episodes", episodes])
    assert f"episodes must be >= 1, got {episodes}" in capsys.readouterr().err


def test_a_device_that_evaluates_nothing_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", str(run), "--device", "meta"])
    assert "device must be 'auto', 'cpu', 'cuda' or 'cuda:<index>', got 'meta'" in capsys.readouterr().err


def test_actors_without_ray_are_refused_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dgvf_agents.train.train.find_spec", lambda name: None)
    impala = ["--algorithm", "impala", "--actors", "2", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit):
        main(["train", "collect-objects-small", "a2c", *TINY, *impala])
    assert "actors must be 0 without Ray" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_is_watched_in_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small"
    arguments = ["--steps", "80", "--compile", "False", "--threads", "1", "--out", str(path)]
    main(["train", "collect-objects-small", "a2c", *arguments])
    windows: list[RecordEpisodeStatistics] = []
    monkeypatch.setattr(
        watching, "window", lambda config: windows.append(RecordEpisodeStatistics(window(config))) or windows[0]
    )
    told: list[str] = []
    watching.watch(path, episodes=2, seed=0, tell=told.append)
    assert windows[0].render_mode == "human"
    assert len(windows[0].length_queue) == windows[0].episode_count == 2
    returns, lengths = windows[0].return_queue, windows[0].length_queue
    assert told == [f"episode {k + 1}: return {returns[k]:g} in {lengths[k]:,} steps" for k in range(2)]


def test_videos_need_no_display_and_a_window_says_that_it_does(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = pytest.importorskip("moviepy.video.io.VideoFileClip")
    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "none of these")
    monkeypatch.setattr(watching, "window", lambda config, mode="human": TimeLimit(window(config, mode), 3))
    with pytest.raises(SystemExit):
        main(["watch", str(run)])
    assert "dgvf: watch needs a display" in capsys.readouterr().err
    monkeypatch.setenv("SDL_VIDEODRIVER", "offscreen")
    main(["watch", str(run), "--episodes", "1"])
    monkeypatch.delenv("SDL_VIDEODRIVER")
    for display in ("", ":0"):
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setattr(pygame.display, "init", lambda: None)  # some builds of SDL draw into memory by themselves
        monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
        with pytest.raises(SystemExit):
            main(["watch", str(run)])
        assert "dgvf: watch needs a display (none was found)" in " ".join(capsys.readouterr().err.split())
    pygame.display.quit()
    main(["watch", str(run), "--episodes", "2", "--video", str(tmp_path / "videos")])
    assert len(list((tmp_path / "videos").glob("PuddleWorld-v0*.mp4"))) == 2
    main(["watch", str(run), "--episodes", "2", "--video", str(tmp_path / "one.mp4")])
    assert [path.name for path in tmp_path.glob("*.mp4")] == ["one.mp4"]
    with reader.VideoFileClip(str(tmp_path / "one.mp4")) as video:
        assert round(video.duration * video.fps) == 2 * (1 + 3)


def test_a_video_with_questions_is_as_slow_as_the_window(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = pytest.importorskip("moviepy.video.io.VideoFileClip")
    monkeypatch.setattr(watching, "window", lambda config, mode="human": TimeLimit(window(config, mode), 3))
    rates = []
    for name, more in (("fast.mp4", []), ("slow.mp4", ["--questions"])):
        main(["watch", str(run), "--episodes", "1", *more, "--video", str(tmp_path / name)])
        with reader.VideoFileClip(str(tmp_path / name)) as video:
            rates.append(video.fps)
    assert rates[0] == 6 * rates[1]


def test_a_video_that_cannot_be_written_is_refused_before_anything_is_loaded(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "load_model", lambda *given, **options: pytest.fail("loaded"))
    with pytest.raises(SystemExit):
        main(["watch", str(run), "--video", str(tmp_path / "one.avi")])
    assert "video must end in .mp4 or be a folder" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(watching, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["watch", str(run), "--video", str(tmp_path / "one.mp4")])
    assert "a video needs MoviePy: pip install moviepy" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


WORLD = """
import gymnasium as gym
from dgvf_envs.puddle_world.env import PuddleWorldEnv

gym.register("Mine-v0", entry_point=PuddleWorldEnv, max_episode_steps=20)
"""


def test_worlds_are_found_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "my_world.py").write_text(WORLD, encoding="utf-8")
    tiny = ["--steps", "80", "--compile", "False", "--questions", "4", "--out", "mine"]
    train = ["train", "puddle-world", "discovered", "--env", "my_world:Mine-v0"]

    def dgvf(*arguments: str, where: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("dgvf"), *arguments]
        return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)

    assert dgvf(*train, *tiny).returncode == 0
    assert "return " in dgvf("evaluate", "mine", "--episodes", "2").stdout
    again = dgvf("train", "--resume", "mine")
    assert (again.returncode, "The run has its 80 steps already." in again.stdout) == (0, True)
    (tmp_path / "elsewhere").mkdir()
    failed = dgvf("evaluate", str(tmp_path / "mine"), where=tmp_path / "elsewhere")
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert "env must name a module on Python's path before the colon" in " ".join(failed.stderr.split())


def test_ctrl_c_ends_watching_quietly(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Interrupted(TimeLimit):
        def step(self, action: Any) -> Any:
            raise KeyboardInterrupt

        def close(self) -> None:
            closed.append(True)
            super().close()

    monkeypatch.setattr(watching, "window", lambda config: Interrupted(window(config), 3))
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(run)])
    assert ended.value.code == INTERRUPTED
    assert closed


def test_a_run_is_never_written_over(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "puddle-world", "a2c", *TINY, "--out", str(run)])
    assert stop.value.code == 2
    assert "path must not hold a run already" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_a_missing_run_is_named(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, str(tmp_path / "nothing")])
    assert stop.value.code == 2
    assert "run must be a folder" in capsys.readouterr().err.replace("\n", " ")


def test_an_unknown_environment_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "puddle-world", "a2c", "--env", "NoSuchWorld-v0", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "`NoSuchWorld` doesn't exist" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "CartPole-v1"], "env_kwargs must be keyword arguments of CartPole-v1, got {'reward_scale': 0.5"),
        (["--ent-coef", "0"], "ent_coef and final_ent_coef must be > 0, since the schedule is geometric, got 0.0 and"),
    ],
)
def test_what_does_not_fit_the_rest_of_a_preset_is_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "puddle-world", "a2c", *arguments, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_is_named_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "train", lambda *arguments, **options: pytest.fail("it trained"))
    file = tmp_path / "file"
    file.write_text("")
    for path, reason in ((tmp_path / ("x" * 300), "File name too long"), (file / "run", "Not a directory")):
        with pytest.raises(SystemExit) as stop:
            main(["train", "puddle-world", "a2c", *TINY, "--out", str(path)])
        assert stop.value.code == 2
        error = " ".join(capsys.readouterr().err.split())
        assert error.startswith("dgvf: out must be the path of a folder, got ")
        assert reason in error


def test_the_overview_lists_every_command_as_its_own_help_does(capsys: pytest.CaptureFixture[str]) -> None:
    for name, summary in COMMANDS.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        lines = capsys.readouterr().out.replace("\u2502", " ").split()
        assert summary in " ".join(lines), name
    with pytest.raises(SystemExit):
        commands.app.cli(prog="dgvf", args=["--help"])
    listed = re.findall(r"\u2022 (\S+)", capsys.readouterr().out)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("program", ["import dgvf_agents", "from dgvf_agents.cli import main; main(['--help'])"])
def test_first_steps_do_not_wait_for_pytorch(program: str) -> None:
    told = f"import sys, atexit; atexit.register(lambda: print('torch' in sys.modules)); {program}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["trian"], "dgvf must be followed by one of train, warm-up, evaluate,"),
        (["train", "puddleworld", "a2c"], "dgvf train must be followed by"),
        (["train", "puddle-world", "discoverd", "--seed", "1"], "got discoverd; did you mean discovered?"),
        (["train", "atari", "Breakout"], "one of discovered, random, reward-prediction, pixel-control, a2c, got Break"),
        (["reproduce", "figure2"], "got figure2; did you mean figure-2?"),
    ],
)
def test_a_mistyped_word_is_answered_without_pytorch(given: list[str], expected: str) -> None:
    told = "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules))"
    program = [sys.executable, "-c", f"{told}; from dgvf_agents.cli import main; main({given!r})"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert expected in " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (2, "False\n")


def test_the_words_that_are_known_are_those_of_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    def words(group: CommandGroup) -> Names:
        return {name: words(to) if isinstance(to, CommandGroup) else {} for name, to in group.targets.items()}

    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    benchmarks = re.findall(r"\u2022 (\S+)", capsys.readouterr().out)
    on_worlds = {world: {method: {} for method in METHODS} for world in WORLDS}
    figures: Names = {figure: {} for figure in EXPERIMENTS}
    positional = {"warm-up": on_worlds, "sweep": on_worlds, "reproduce": figures, "draw": figures}
    assert {**words(commands.app), **positional, "bench": {name: {} for name in benchmarks}} == NAMES
    check_names(["train", "puddle_world", "a2c", "anything"])
    check_names(["train", "--resume", "run"])


def test_a_mistyped_option_is_answered_with_options_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "puddle-world", "a2c", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    with pytest.raises(SystemExit) as stop:
        main(["train", "puddle-world", "a2c", "--learning-rat", "0.1"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    suggested = set(re.findall(r"--[a-z-]+", error)) - {"--learning-rat", "--help"}
    assert "--learning-rate" in suggested
    assert suggested <= known
    assert "--learning-rates" not in suggested  # of `dgvf reproduce`
    assert "dgvf train puddle-world a2c --help" in " ".join(error.replace("\u2502", " ").split())


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"dgvf {importlib.metadata.version('dgvf')}\n"


def test_help_ends_quietly_where_nobody_reads_it() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-c", "from dgvf_agents.cli import main; main()", "train", "--help"]
    done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == PIPE_CLOSED


def test_the_atlas_takes_another_game_and_another_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = []
    RunFolder(tmp_path).write_config(preset("puddle-world", "discovered"))
    monkeypatch.setattr(page, "write_atlas", lambda *arguments: given.append(arguments) or tmp_path)
    main(["atlas", str(tmp_path)])
    main(["atlas", str(tmp_path), "--game-seed", "3", "--game-steps", "7"])
    usual = (tmp_path, (), None, 8, 8)
    assert given == [(*usual, 0, GAME_STEPS), (*usual, 3, 7)]


def test_presets_of_a_world_differ_in_the_task_alone() -> None:
    for world in WORLDS:
        configs = [vars(preset(world, method)) for method in METHODS]
        assert len({config.pop("task") for config in configs}) == len(METHODS)
        assert [config.pop("encoder_mode") for config in configs] == [*["auxiliary"] * 3, "joint"]  # the last has none
        assert all(config == configs[0] for config in configs)


@pytest.mark.parametrize("name", ["steps", "threads", "checkpoint_every", "log_every", "evaluate_every"])
def test_configurations_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be >= 1, got 0"):
        TrainConfig(**{name: 0})
