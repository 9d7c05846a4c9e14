"""The `dgvf` command, through its real main with tiny settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pygame
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from dgvf_agents import DGVFA2C, cli
from dgvf_agents.bench import BENCHMARKS
from dgvf_agents.cli import PIPE_CLOSED, main
from dgvf_agents.cli.train import INTERRUPTED
from dgvf_agents.cli.words import COMMANDS
from dgvf_agents.train import train
from dgvf_agents.train import watch as watching
from dgvf_agents.train.config import METHODS, WORLDS, TrainConfig
from dgvf_agents.train.environments import window
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from tests.helpers import refused, run_python
from tests.run_folders import rows_of
from tests.small_agents import Samples

TINY = ["--steps", "1600", "--compile", "False", "--log-every", "400", "--checkpoint-every", "800", "--questions", "4"]
QUICK = ["--steps", "80", "--compile", "False", "--questions", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "puddle"
    main(["train", "puddle-world", "discovered", *TINY, "--out", str(path)])
    return path


def test_a_run_leaves_configuration_metrics_checkpoints_and_a_curve(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["task"], config["questions"]) == ("PuddleWorld-v0", "discovered", 4)
    assert RunFolder(run).read_config() == TrainConfig(**config)
    assert [file.name for file in sorted((run / "checkpoints").iterdir())] == ["0000000800.zip", "0000001600.zip"]
    assert [int(row["time/total_timesteps"]) for row in rows_of(run)] == [400, 800, 1200, 1600]
    assert (run / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert list(run.glob("events.out.tfevents*"))
    assert not list(run.rglob("*.tmp*"))


def test_a_run_is_evaluated_and_watched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(run), "--episodes", "2"])
    shown = capsys.readouterr().out
    usual, as_trained = evaluate(run, episodes=2), evaluate(run, episodes=2, as_trained=True)
    assert f"return {usual[0]:.3f} ± {usual[1]:.3f} (standard deviation) over 2 episodes\n" in shown
    assert f"return {as_trained[0]:.3f} ± {as_trained[1]:.3f}" in shown
    assert usual[0] < as_trained[0]  # longer episodes, whose rewards are not halved


def test_actors_without_ray_are_refused_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dgvf_agents.train.train.find_spec", lambda name: None)
    impala = ["--algorithm", "impala", "--actors", "2", "--out", str(tmp_path / "run")]
    assert "actors must be 0 without Ray" in refused(capsys, "train", "collect-objects-small", "a2c", *TINY, *impala)
    assert not (tmp_path / "run").exists()


def test_videos_need_no_display_and_a_window_says_that_it_does(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = pytest.importorskip("moviepy.video.io.VideoFileClip")
    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "none of these")
    monkeypatch.setattr(watching, "window", lambda config, mode: TimeLimit(window(config, mode), 3))
    assert "dgvf: watch needs a display" in refused(capsys, "watch", str(run))
    monkeypatch.setenv("SDL_VIDEODRIVER", "offscreen")
    main(["watch", str(run), "--episodes", "1"])
    monkeypatch.delenv("SDL_VIDEODRIVER")
    for display in ("", ":0"):
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setattr(pygame.display, "init", lambda: None)  # some builds of SDL draw into memory by themselves
        monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
        assert "dgvf: watch needs a display (none was found)" in refused(capsys, "watch", str(run))
    pygame.display.quit()
    main(["watch", str(run), "--episodes", "2", "--video", str(tmp_path / "videos")])
    assert len(list((tmp_path / "videos").glob("PuddleWorld-v0*.mp4"))) == 2
    main(["watch", str(run), "--episodes", "2", "--video", str(tmp_path / "one.mp4")])
    assert [path.name for path in tmp_path.glob("*.mp4")] == ["one.mp4"]
    with reader.VideoFileClip(str(tmp_path / "one.mp4")) as video:
        assert round(video.duration * video.fps) == 2 * (1 + 3)


def test_a_video_that_cannot_be_written_is_refused_before_anything_is_loaded(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "load_model", lambda *given, **options: pytest.fail("loaded"))
    monkeypatch.setattr(watching, "find_spec", lambda name: None)
    for name, message in (("one.avi", "video must end in .mp4 or be a folder"), ("one.mp4", "a video needs MoviePy")):
        assert message in refused(capsys, "watch", str(run), "--video", str(tmp_path / name))
    assert not list(tmp_path.iterdir())


gym.register(
    "Unseen-v0", lambda: Samples(gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(2))
)  # nobody draws it

WORLD = """
import gymnasium as gym
from dgvf_envs.puddle_world.env import PuddleWorldEnv

gym.register("Mine-v0", entry_point=PuddleWorldEnv, max_episode_steps=20)
"""


def test_worlds_are_found_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def as_in_a_new_process(where: Path) -> None:
        monkeypatch.chdir(where)
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
        monkeypatch.delitem(sys.modules, "my_world", raising=False)
        gym.registry.pop("Mine-v0", None)

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "my_world.py").write_text(WORLD, encoding="utf-8")
    as_in_a_new_process(tmp_path)
    main(["train", "puddle-world", "discovered", "--env", "my_world:Mine-v0", *QUICK, "--out", "mine"])
    assert "dgvf evaluate mine --import my_world\n" in capsys.readouterr().out
    as_in_a_new_process(tmp_path)
    main(["train", "--resume", "mine", "--import", "my_world"])
    assert "The run has its 80 steps already." in capsys.readouterr().out
    as_in_a_new_process(tmp_path / "elsewhere")
    refusal = refused(capsys, "evaluate", str(tmp_path / "mine"), "--import", "my_world")
    assert "import must be a module on Python's path, got my_world" in refusal


def test_a_folder_that_cannot_be_is_named_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "build", lambda *arguments, **options: pytest.fail("it trained"))
    file = tmp_path / "file"
    file.write_text("")
    for path, reason in ((tmp_path / ("x" * 300), "File name too long"), (file / "run", "Not a directory")):
        error = refused(capsys, "train", "puddle-world", "a2c", *TINY, "--out", str(path))
        assert reason in error
        assert str(path) in error


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `--help` prints."""
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_mistyped_option_is_answered_with_options_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(re.findall(r"--[a-z-]+", helped(capsys, "train", "puddle-world", "a2c")))
    error = refused(capsys, "train", "puddle-world", "a2c", "--learning-rat", "0.1")
    suggested = set(re.findall(r"--[a-z-]+", error)) - {"--learning-rat", "--help"}
    assert "--learning-rate" in suggested
    assert suggested <= known
    assert "--learning-rates" not in suggested  # of `dgvf reproduce`
    assert "dgvf train puddle-world a2c --help" in error


def test_help_ends_quietly_where_nobody_reads_it() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-c", "from dgvf_agents.cli import main; main()", "--help"]
    done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == PIPE_CLOSED


# --- training ---------------------------------------------------------------------------------------------------------


def test_training_is_evaluated_on_the_way_and_not_changed_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "collect-objects-small", "a2c", "--steps", "1600", "--compile", "False", "--log-every", "400"]
    rows, shown, evaluation = {}, {}, ["--evaluate-every", "800", "--evaluation-episodes", "3"]
    for name, more in (("with", evaluation), ("without", [])):
        main([*arguments, *more, "--out", str(tmp_path / name)])
        shown[name] = capsys.readouterr().out
        rows[name] = rows_of(tmp_path / name)
    evaluated = [row["eval/mean_reward"] for row in rows["with"]]
    assert [bool(value) for value in evaluated] == [False, True, False, True]
    mean, _ = evaluate(tmp_path / "with", episodes=3)  # of the last checkpoint, from the same seed
    assert float(evaluated[-1]) == pytest.approx(mean, abs=1e-6)
    for name in ("train/policy_loss", "train/gradient_norm", "rollout/ep_rew_mean"):
        assert [row[name] for row in rows["with"]] == [row[name] for row in rows["without"]]
    line = r"^([\d,]+) of 1,600 steps, [\d,]+ steps/s, return .+, return in evaluation (.+)$"  # there is no terminal
    printed = [(steps, f"{float(value):.2f}") for steps, value in zip(("800", "1,600"), evaluated[1::2], strict=True)]
    assert re.findall(line, shown["with"], re.M) == printed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["puddle-world", "discovered"], ["evaluate {}", "watch {} --questions", "atlas {}"]),
        (["collect-objects-small", "a2c"], ["evaluate {}", "watch {}"]),
        (["own", "tests.test_cli:Unseen-v0"], ["evaluate {} --import tests.test_cli"]),
        (
            ["own", "CartPole-v1", "--algorithm", "ppo", "--n-steps", "8"],
            ["evaluate {}", "watch {} --video watch.mp4"],
        ),
        (["collect-objects-small", "discovered", "--question-encoder", "shared"], ["evaluate {}", "watch {}"]),
        (
            ["collect-objects-small", "discovered", "--algorithm", "ppo", "--n-steps", "5", "--batch-size", "40"],
            ["evaluate {}", "watch {} --questions", "atlas {}"],
        ),
    ],
)
def test_what_is_printed_as_next_can_be_run(
    arguments: list[str],
    expected: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "x[" / "bold] y"
    monkeypatch.setattr(watching, "may_have_display", lambda: arguments[0] != "own")
    main(["train", *arguments, *QUICK, "--out", str(path)])
    before, following = capsys.readouterr().out.split("Next:\n")
    assert f"The run lies in {path}," in before
    task = RunFolder(path).read_config().task
    assert task == ("discovered" if "discovered" in arguments else "none")  # where no method is named, too
    differs = "training: reward_scale=0.5, start=random, max_episode_steps=100; evaluation: the environment's" in before
    assert differs == (arguments[0] == "puddle-world")
    assert [line.strip() for line in following.splitlines()] == [
        f"dgvf {line.format(repr(str(path)))}" for line in expected
    ]
    monkeypatch.setattr(watching, "window", lambda config, *mode: TimeLimit(window(config, *mode), 3))
    monkeypatch.chdir(tmp_path)
    for line in following.splitlines():
        words = shlex.split(line)[1:]
        main(words if words[0] == "atlas" else [*words, "--episodes", "1"])
    if not any("watch" in line for line in expected):
        assert "env must take render_mode to be shown, got" in refused(capsys, "watch", str(path), "--video", "v.mp4")


def test_a_finished_run_goes_on_to_another_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = ["--learning-rate", "0.01", "--final-learning-rate", "0"]
    path = str(tmp_path / "run")
    main(["train", "collect-objects-small", "a2c", *QUICK[:4], *rate, "--log-every", "80", "--out", path])
    assert "steps must be >= 80, which the run" in refused(capsys, "train", "--resume", path, "--steps", "40")
    main(["train", "--resume", path, "--steps", "320"])
    assert "320 steps in place of 80; annealed over all of them: learning_rate, ent_coef" in capsys.readouterr().out
    folder = RunFolder(Path(path))
    model = DGVFA2C.load(folder.latest_checkpoint())
    assert (folder.read_config().steps, model.num_timesteps, folder.is_finished()) == (320, 320, True)
    steps, rates = folder.learning_curve("train/learning_rate")
    assert steps == [160, 240, 320]  # rows before the update that follows
    assert rates == pytest.approx([0.0, 0.005, 0.0025])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "RUN", "--device", "meta"], "device must be 'auto', 'cpu', 'cuda' or 'cuda:<index>', got 'meta'"),
        (["watch", "RUN", "--episodes", "0"], "episodes must be >= 1, got 0"),
        (["evaluate", "NEW"], "run must be a folder"),
        (["watch", "NEW"], "run must be a folder"),
        (["train", "puddle-world", "a2c", "--out", "RUN"], "must not hold a run already"),
        (["train", "puddle-world", "a2c", "--out", "NEW", "--restarts", "-1"], "restarts must be >= 0, got -1"),
        (["train", "puddle-world", "a2c", "--out", "NEW", "--env", "NoSuchWorld-v0"], "`NoSuchWorld` doesn't exist"),
        (
            ["train", "puddle-world", "a2c", "--out", "NEW", "--env", "CartPole-v1"],
            "env_kwargs must be keyword arguments of CartPole-v1, got {'reward_scale': 0.5",
        ),
        (["train", "puddle-world", "a2c", "--out", "NEW", "--ent-coef", "0"], "ent_coef must be > 0, since"),
        (["train", "puddleworld", "a2c"], "dgvf train must be followed by"),
        (["train", "CartPole-v1"], "an environment of your own: dgvf train own CartPole-v1"),
        (["train", "own", "CartPole-v1", "a2d"], "got a2d; did you mean a2c?"),
        (["train", "own", "CartPole-v1", "--algorithm", "pop"], "got pop; did you mean ppo?"),
        (
            ["train", "own", "CartPole-v1", "--algorithm", "ppo", "--rms-prop", "tensorflow", "--out", "NEW"],
            "rms_prop must be left out for the algorithm ppo, got 'tensorflow'",
        ),
        (
            ["train", "own", "CartPole-v1", "--algorithm", "ppo", "--compile", "True", "--out", "NEW"],
            "compile must be left out for the algorithm ppo, got True",
        ),
        (["train", "puddle_world", "discoverd", "--seed", "1"], "got discoverd; did you mean discovered?"),
        (["train", "atari", "Breakout"], "one of discovered, random, reward-prediction, pixel-control, a2c, got Break"),
        (["train", "atari", "--game", "Breakuot"], "did you mean Breakout"),
        (["train", "atari", "a2c", "--game", "Pong", "--env", "Pong"], "env must be left out on Atari"),
        (["sweep", "puddle-world", "a2d"], "got a2d; did you mean a2c?"),
        (["bench", "agnets"], "got agnets; did you mean agents?"),
        (["bench", "envs", "--copies", "16", "0"], "copies must"),
        (["bench", "atari", "--game", "Breakuot"], "did you mean Breakout"),
        (["draw", "figure-4", "NEW"], "results must be"),
        (["reproduce", "figure-2", "--settings", "nothing"], "settings must be"),
        (["reproduce", "figure-2", "--jobs", "0"], "jobs must be"),
        (["reproduce", "figure2"], "got figure2; did you mean figure-2?"),
    ],
)
def test_bad_input_ends_with_one_line(
    arguments: list[str], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"RUN": str(run), "NEW": str(tmp_path / "run")}
    assert message in refused(capsys, *(paths.get(word, word) for word in arguments))
    assert not (tmp_path / "run").exists()


# --- watching ---------------------------------------------------------------------------------------------------------


def test_a_run_is_watched_in_a_window(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[RecordEpisodeStatistics] = []

    def recorded(config: TrainConfig, mode: str) -> RecordEpisodeStatistics:
        shown.append(RecordEpisodeStatistics(TimeLimit(window(config, mode), 3)))
        return shown[-1]

    monkeypatch.setattr(watching, "window", recorded)
    printed: list[str] = []
    watching.watch(run, 2, False, 0, tell=printed.append)
    (env,) = shown
    assert (env.render_mode, env.episode_count) == ("human", 2)
    assert printed == [
        f"episode {k + 1}: return {env.return_queue[k]:g} in {env.length_queue[k]:,} steps" for k in range(2)
    ]


def test_ctrl_c_ends_watching_quietly(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Interrupted(TimeLimit):
        def step(self, action: Any) -> Any:
            raise KeyboardInterrupt

        def close(self) -> None:
            closed.append(True)
            super().close()

    monkeypatch.setattr(watching, "window", lambda config, mode: Interrupted(window(config, mode), 3))
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(run)])
    assert ended.value.code == INTERRUPTED
    assert closed


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_help_lists_commands_worlds_and_methods(capsys: pytest.CaptureFixture[str]) -> None:
    for given, names in (([], COMMANDS), (["train"], WORLDS), (["train", "puddle-world"], METHODS)):
        assert {*names} <= {*re.findall(r"\u2022 (\S+)", helped(capsys, *given))}
    for name in COMMANDS:
        assert COMMANDS[name] in " ".join(helped(capsys, name).replace("\u2502", " ").split())


@pytest.mark.parametrize(
    ("program", "status", "expected"),
    [
        ("import dgvf_agents, dgvf_agents.hyperparameters", 0, ""),
        ("from dgvf_agents.cli import main; main(['--help'])", 0, "Train an agent and write a run folder."),
        ("from dgvf_agents.cli import main; main(['train', 'puddle-world', 'a2c', '--help'])", 0, "Train a2c on"),
        ("from dgvf_agents.cli import main; main(['trian'])", 2, "got trian; did you mean train?"),
    ],
)
def test_first_steps_do_not_wait_for_pytorch(program: str, status: int, expected: str) -> None:
    code = f"import sys, atexit; atexit.register(lambda: print('torch' in sys.modules)); {program}"
    done = run_python("-c", code, timeout=120)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (status, "False")
    assert expected in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "command",
    [
        *("evaluate", "watch", "atlas", "probe", "train resume", "train collect-objects-small a2c"),
        *("train own CartPole-v1", "reproduce", "sweep", *(f"bench {name}" for name in BENCHMARKS)),
    ],
)
def test_every_option_has_a_help_text(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(line.strip(" \u2502|") for line in helped(capsys, *command.split()).splitlines())
    options = [re.split(r" {2,}|\n", option, maxsplit=1) for option in re.split(r"(?m)^(?=--[a-z])", text)[1:]]
    assert options
    assert [option for option, helped in options if helped.startswith("(")] == []


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(given: list[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            monkeypatch.setattr(warnings, "showwarning", showwarning)  # as outside of pytest
            warnings.warn("storage='recompute' is chosen", stacklevel=1)

    showwarning: Any = lambda *given: sys.stderr.write(warnings.formatwarning(*given[:4]))  # noqa: E731
    monkeypatch.setattr(cli, "_run", run)
    main(["evaluate", "run"])
    assert capsys.readouterr().err == "dgvf: storage='recompute' is chosen\n"


def test_divergence_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = ["--learning-rate", "1e30", "--final-learning-rate", "1e30"]
    error = refused(capsys, "train", "collect-objects-small", "a2c", *TINY, *rate, "--out", str(tmp_path / "run"))
    assert re.search(r"dgvf: \w+ must be finite, got", error)
