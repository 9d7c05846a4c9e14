"""The atlas of runs on images: a recorded game, what was asked along it, where questions look, and the page."""

from __future__ import annotations

import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.atlas.captions import explain
from dgvf_agents.atlas.game import Game, record
from dgvf_agents.atlas.page import (
    HEAT_COLORS,
    cumulant_saliency,
    draw_question,
    heat_levels,
    peak_of,
    write_atlas,
)
from dgvf_agents.atlas.report import question_values
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_envs.atari import PAPER, make_atari, make_atari_vec
from dgvf_envs.sb3_adapter import GymnasiumVecEnv
from tests.atlas.games import LENGTH, tiny_config, trained_run, untrained_run
from tests.atlas.pages import picture, record_of
from tests.atlas.runs import model_of
from tests.small_agents import small_model


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "discovered": trained_run(folder / "discovered", tiny_config()),
        "random": untrained_run(folder / "random", tiny_config("random")),
        "prediction": untrained_run(folder / "prediction", tiny_config("reward-prediction")),
        "points": untrained_run(folder / "points", tiny_config("random", env="CartPole-v1", policy="MlpPolicy")),
    }


@pytest.fixture(scope="module")
def model(runs: dict[str, Path]) -> DGVFA2C:
    return model_of(runs["discovered"])


@pytest.fixture(scope="module")
def episode(runs: dict[str, Path], model: DGVFA2C) -> Game:
    return record(model, RunFolder(runs["discovered"]).read_config(), seed=5)


@pytest.fixture(scope="module")
def page(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("atlas")
    return write_atlas(runs["discovered"], [runs["random"], runs["prediction"]], out, kinds=2, game_seed=5)


def test_the_episode_is_what_the_environment_does_with_these_actions(episode: Game) -> None:
    env = gym.make("DotGame-v0")
    seen = [env.reset(seed=5)[0]]
    for t, action in enumerate(episode.actions.tolist()):
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(observation)
        assert (reward, terminated, truncated) == (episode.rewards[t], episode.terminated[t], episode.truncated[t])
    assert terminated or truncated
    assert episode.over
    np.testing.assert_array_equal(episode.frames, np.stack(seen))
    np.testing.assert_array_equal(episode.observations, np.stack(seen).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("env", ["DotGame-v0", "CollectObjectsSmall-v0"])
def test_a_run_with_a_wrapper_is_recorded_in_it(env: str, tmp_path: Path) -> None:
    rooms = {"env_kwargs": {"observation": "rgb"}, "evaluation_kwargs": {"observation": "rgb"}}
    config = tiny_config(env=env, env_wrapper="tests.atlas.games:LowerHalf", **(rooms if env[0] == "C" else {}))
    run = untrained_run(tmp_path, config)
    assert record(model_of(run), config, max_steps=3).observations.shape[2] == 5
    assert record_of(write_atlas(run, kinds=1, game_steps=3))["steps"] == 3


def test_an_episode_of_atari_goes_on_where_a_life_is_lost() -> None:
    model = atari_model("Breakout")
    config = TrainConfig(env="Breakout", atari=PAPER)
    game = record(model, config, seed=1, max_steps=110)
    env = make_atari("Breakout", PAPER, render_mode="rgb_array")
    observation, info = env.reset(seed=1)
    lives = [info["lives"]]
    for t, action in enumerate(game.actions.tolist()):
        np.testing.assert_array_equal(game.observations[t], observation)
        np.testing.assert_array_equal(game.frames[t], env.render())
        observation, _, terminated, _, info = env.step(action)
        lives.append(info["lives"])
        assert game.terminated[t] == terminated == (lives[-1] < lives[-2])
        if terminated:
            env.reset()
    assert game.terminated.any()
    assert not game.over
    assert game.frames.shape == (111, 210, 160, 3)
    assert game.action_names == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert game.first == 3  # the first observation without black frames
    assert game.observations[game.first].reshape(4, -1).max(axis=1).min() > 0
    assert game.observations[game.first - 1, 0].max() == 0


def test_scores_are_not_clipped() -> None:
    game = record(atari_model("Alien"), TrainConfig(env="Alien", atari=PAPER), max_steps=40)
    assert game.rewards.max() >= 10.0
    assert game.score == game.rewards.sum()


def atari_model(game: str) -> DGVFA2C:
    env = GymnasiumVecEnv(make_atari_vec(game, 1, PAPER, threads=1))
    network = {"features_extractor_kwargs": {"features_dim": 16}}
    return small_model(env, "CnnPolicy", questions=3, question_discount=None, policy_kwargs=network)


@pytest.mark.parametrize("max_steps", [4, 1000])
def test_outcomes_are_what_came(runs: dict[str, Path], model: DGVFA2C, max_steps: int) -> None:
    """G_t = u + γ G, nothing after an end, and the answer where the recording stops."""
    episode = record(model, RunFolder(runs["discovered"]).read_config(), 5, max_steps)
    found = question_values(model, episode)
    last = torch.from_numpy(episode.observations[-1:])
    with torch.no_grad():
        following = model.answer_net(model.policy.extract_features(last))[0].double().numpy()
    if episode.terminated[-1]:
        following = np.zeros_like(following)
    for t in reversed(range(episode.steps)):
        following = found.cumulants[t + 1] + found.discounts[t + 1] * following
        np.testing.assert_allclose(found.outcomes[t], following, rtol=1e-4, atol=1e-6)
    assert np.isnan(found.outcomes[-1]).all()


def test_saliency_of_an_agent_is_per_full_range_of_its_pixels(model: DGVFA2C, episode: Game) -> None:
    chosen, question = episode.observations[1:4], 2
    found = cumulant_saliency(model, chosen, question)
    eta = model.learner.eta
    jacobian = torch.func.jacrev(lambda o: model.task.network.ask(eta, o[None])[0][0, :, question])(
        torch.from_numpy(chosen).float()
    )
    own = jacobian[range(3), range(3)].abs().numpy()
    np.testing.assert_allclose(found, 255.0 * own, rtol=1e-4, atol=1e-7)
    assert found.max() > 0


def test_captions_name_what_goes_along_with_a_cumulant() -> None:
    game = moving_dot()
    assert np.flatnonzero(game.evaluated).tolist() == list(range(game.first, game.steps))
    landmarks = [one._replace(values=one.values[game.counted]) for one in game.landmarks]
    for values, more in (
        (game.rewards, "score"),
        (game.terminated, "lose a life or the game"),
        (game.actions == 1, "have chosen UP"),
        (np.arange(len(game.actions)) % 7, "see things move further right"),
    ):
        words, explained = explain(np.asarray(values, dtype=float)[game.first - 1 :], landmarks)[0]
        assert words == more
        assert explained > 0.9


def moving_dot() -> Game:
    """A dot that goes right seven times over, one pixel a step; it jumps back without being seen to."""
    steps = 42
    observations = np.zeros((steps + 1, 1, 16, 16), np.uint8)
    for t in range(steps):  # what changes at step t is a pixel that comes and goes at column t % 7
        observations[t + 1] = observations[t]
        observations[t + 1, 0, 8, 2 * (t % 7)] ^= 255
    nothing = np.zeros(steps, dtype=bool)
    rewards, ends, actions = np.zeros(steps), nothing.copy(), np.zeros(steps, dtype=int)
    rewards[[9, 25]], ends[[14, 30, 41]], actions[[3, 11, 20]] = 1.0, True, 1
    actions[[5, 6, 17, 30]] = 2
    frames = observations.transpose(0, 2, 3, 1).repeat(3, axis=3)
    return Game(observations, frames, actions, rewards, ends, nothing, True, ("STAY", "UP", "DOWN"), first=2)


def test_the_page_has_every_frame_and_gradient(page: Path, model: DGVFA2C, episode: Game) -> None:
    shown = record_of(page)
    assert shown["steps"] == episode.steps <= LENGTH
    np.testing.assert_array_equal(np.stack([picture(frame) for frame in shown["frames"]]), episode.frames)
    assert 1 <= len(shown["questions"]) <= 2
    for number, question in shown["questions"].items():
        assert sorted(int(moment) for moment in question["heat"]) == list(range(1, episode.steps + 1))
        found = cumulant_saliency(model, episode.observations[1:], int(number)).sum(axis=1)
        for moment, address in question["heat"].items():
            levels = heat_levels(found[int(moment) - 1], peak_of(found))
            np.testing.assert_array_equal(picture(address), HEAT_COLORS[levels])
        assert len(question["u"]) == episode.steps + 1
        assert question["u"][0] is None


def test_points_without_a_domain_are_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="run must be on a world with a registered domain or on images"):
        write_atlas(runs["points"])
    with pytest.raises(ValueError, match="beside must be runs on DotGame-v0"):
        write_atlas(runs["discovered"], [runs["points"]])


def test_a_game_of_one_step_has_a_page_too(runs: dict[str, Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs["discovered"], tmp_path / "run")
    assert record_of(write_atlas(run, kinds=1, checkpoints=1, game_steps=1))["steps"] == 1
    draw_question(run, run / "question.png")
    assert (run / "question.png").read_bytes().startswith(b"\x89PNG")
