"""Training on Atari with `dgvf train`: all tasks, run folders, scores of whole games, resuming."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.atlas.live import live_questions
from dgvf_agents.cli import main
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train import watch as watching
from dgvf_agents.train.config import atari_config
from dgvf_agents.train.environments import evaluation_environments, training_environments
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import train
from dgvf_envs.atari import MODERN, PAPER, AtariPreset, make_atari
from tests.run_folders import rows_of

TINY = [
    *("--n-envs", "4", "--n-steps", "10", "--unroll-length", "2", "--questions", "4", "--steps", "240"),
    *("--compile", "False", "--log-every", "120", "--evaluation-episodes", "1"),
]
"""Six batches of 40 steps."""


def test_pixel_control_trains_on_a_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    main(["train", "atari", "pixel-control", "--game", "Breakout", *TINY, "--out", str(run)])
    assert "Breakout: Atari preset 'paper'" in capsys.readouterr().out
    config = RunFolder(run).read_config()
    assert (config.env, config.atari, config.max_grad_norm) == ("Breakout", PAPER, 40.0)
    rows = rows_of(run)
    assert [(row["time/total_timesteps"], row["time/frames"]) for row in rows] == [("120", "480"), ("240", "960")]
    assert all(np.isfinite(float(row["train/gradient_norm"])) for row in rows)
    assert all(0.0 < float(row["train/answer_loss"]) < np.inf for row in rows)
    assert float(rows[-1]["train/learning_rate"]) == pytest.approx(6e-4 * (1 - 200 / 240))  # of the update before
    assert RunFolder(run).is_finished()


def test_discovered_questions_are_the_default_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is optional; the name of the run folder holds rules and encoder mode."""
    monkeypatch.chdir(tmp_path)
    main(["train", "atari", "--game", "ms_pacman", "--preset", "modern", "--encoder-mode", "joint", *TINY])
    run = Path("runs/MsPacman-discovered-joint-modern-0")
    config = RunFolder(run).read_config()
    assert (config.task, config.atari, config.encoder_mode) == ("discovered", MODERN, "joint")
    rows = rows_of(run)
    assert [row["meta/updates"] for row in rows] == ["0", "2"]
    assert float(rows[-1]["meta/gradient_norm"]) > 0
    assert 0 < float(rows[0]["questions/discount_min"]) < float(rows[0]["questions/discount_max"]) < 1


# --- scores and resuming, in games that are cut off after 40 steps ----------------------------------------------------

SHORT = dataclasses.replace(SCALES["tiny"].apply(atari_config("Breakout", "discovered")), steps=480, seed=1)
GAME_STEPS = 40


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("atari") / "run"
    config = dataclasses.replace(SHORT, checkpoint_every=240, evaluate_every=240, evaluation_episodes=3)
    train(config, path, show_progress=False)
    return path


def test_training_curves_and_evaluation_are_of_whole_games(short_run: Path) -> None:
    for row in rows_of(short_run):
        assert float(row["rollout/ep_len_mean"]) == GAME_STEPS
        assert float(row["eval/mean_ep_length"]) == GAME_STEPS
        total = 3 * float(row["eval/mean_reward"])  # of three games, whose scores are whole numbers
        assert total == pytest.approx(round(total), abs=1e-3)


def test_a_run_is_evaluated_on_whole_games(short_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(short_run), "--episodes", "2"])
    shown = capsys.readouterr().out
    assert "score" in shown
    assert "over 2 whole games" in shown
    assert "human-normalized" in shown
    assert evaluate(short_run, episodes=2) == evaluate(short_run, episodes=2)


def test_a_killed_run_continues_with_new_games(short_run: Path, tmp_path: Path) -> None:
    """Emulators cannot save their state; parameters, schedules and metrics continue.

    The unroll restarts with the games, so its batches are not in the file.
    """
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    folder, before = RunFolder(run), rows_of(run)
    assert [path.stem.lstrip("0") for path in folder.checkpoints()] == ["240", "480"]
    folder.checkpoints()[-1].unlink()
    document = ModelFile.from_bytes(folder.checkpoints()[0].read_bytes()).document
    training, learner = document["training"], document["learner"]
    assert (training["environment"], learner["unroll"]) == (None, None)
    with pytest.warns(UserWarning, match="Breakout cannot save its state: the run continues with new episodes"):
        model = train(folder.read_config(), run, show_progress=False, resume=True)
    assert model.num_timesteps == 480
    assert folder.is_finished()
    after = rows_of(run)
    assert after[:1] == before[:1]
    for name in ("time/total_timesteps", "time/frames", "train/learning_rate", "train/n_updates"):
        assert [row[name] for row in after] == [row[name] for row in before], name


def rewards_until_all_are_over(env: VecEnv) -> list[tuple[int, float, float]]:
    """For every game: number of lives played, sum of clipped rewards, and score."""
    env.reset()
    games, pieces, sums = [], np.zeros(env.num_envs, int), np.zeros(env.num_envs)
    rng = np.random.default_rng(0)
    while len(games) < env.num_envs:
        _, rewards, dones, infos = env.step(rng.integers(env.action_space.n, size=env.num_envs))  # type: ignore[attr-defined]
        pieces, sums = pieces + dones, sums + rewards
        for i, info in enumerate(infos):
            if "episode" in info:
                games.append((int(pieces[i]), float(sums[i]), info["episode"]["r"]))
                pieces[i] = sums[i] = 0
    return games


@pytest.mark.parametrize("training", [True, False])
def test_scores_are_unclipped_and_lives_are_no_games(training: bool) -> None:
    config = dataclasses.replace(
        atari_config("MsPacman", "a2c"), n_envs=2, atari=dataclasses.replace(PAPER, frame_size=36)
    )
    env = training_environments(config) if training else evaluation_environments(config, 2, 7)
    for pieces, reward, score in rewards_until_all_are_over(env):
        assert pieces > 1  # lives
        assert score >= 10 * reward > 0  # every pill scores 10 and is clipped to 1
    env.close()


def test_watching_plays_whole_games(
    monkeypatch: pytest.MonkeyPatch, short_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[gym.Env] = []

    def make(game: str, preset: AtariPreset, render_mode: str) -> gym.Env:
        assert (game, preset.life_loss_ends, render_mode) == ("Breakout", False, "human")
        shown.append(make_atari(game, preset))  # ALE's window plays in real time
        return shown[-1]

    monkeypatch.setattr("dgvf_agents.train.environments.make_atari", make)
    main(["watch", str(short_run), "--episodes", "2"])
    assert shown[0].get_wrapper_attr("get_episode_lengths")() == [GAME_STEPS] * 2
    assert "Atari preset" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"overlay must be drawn .* with a map, got a run on the game Breakout"):
        watching.watch(short_run, make_overlay=live_questions)
