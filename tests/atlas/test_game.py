"""The atlas of runs on images: a recorded game, what was asked along it, where questions look, and the page."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.atlas.captions import describe_question, explain
from dgvf_agents.atlas.episode import Episode, first_full_moment, picture_of, record, recorded_env
from dgvf_agents.atlas.frames import HEAT_COLORS
from dgvf_agents.atlas.games import Game
from dgvf_agents.atlas.metrics import explained
from dgvf_agents.atlas.page import write_atlas
from dgvf_agents.atlas.probe import question_values
from dgvf_agents.atlas.saliency import cumulant_saliency, heat_levels, peak_of
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_envs.atari import MODERN, PAPER, make_atari, make_atari_vec
from dgvf_envs.sb3_adapter import GymnasiumVecEnv
from tests.atlas.games import LENGTH, QUESTIONS, tiny_config, trained_run, untrained_run
from tests.atlas.pages import (
    CHROMIUM,
    Reader,
    decoded,
    opened,
    picture,
    record_of,
    refusal,
    self_contained,
    usable,
    widths,
)
from tests.atlas.runs import model_of


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
def episode(runs: dict[str, Path], model: DGVFA2C) -> Episode:
    return record(model, recorded_env(RunFolder(runs["discovered"]).read_config()), seed=5)


@pytest.fixture(scope="module")
def page(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("atlas")
    return write_atlas(runs["discovered"], [runs["random"], runs["prediction"]], out, kinds=2, game_seed=5)


class TestEpisode:
    def test_is_what_the_environment_does_with_these_actions(self, episode: Episode) -> None:
        env = gym.make("DotGame-v0")
        seen = [env.reset(seed=5)[0]]
        for t, action in enumerate(episode.actions.tolist()):
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append(observation)
            assert (reward, terminated, truncated) == (
                episode.rewards[t],
                episode.terminated[t],
                episode.truncated[t],
            )
        assert terminated or truncated
        assert episode.over
        np.testing.assert_array_equal(episode.frames, np.stack(seen))
        np.testing.assert_array_equal(episode.observations, np.stack(seen).transpose(0, 3, 1, 2))

    def test_is_the_same_for_the_same_seed(self, runs: dict[str, Path], model: DGVFA2C, episode: Episode) -> None:
        config = RunFolder(runs["discovered"]).read_config()
        torch.manual_seed(123)
        again, other = (record(model, recorded_env(config), seed) for seed in (5, 6))
        np.testing.assert_array_equal(again.observations, episode.observations)
        assert other.observations.shape != episode.observations.shape or (other.actions != episode.actions).any()

    def test_stops_where_told(self, runs: dict[str, Path], model: DGVFA2C, episode: Episode) -> None:
        env = recorded_env(RunFolder(runs["discovered"]).read_config())
        short = record(model, env, seed=5, max_steps=3)
        assert (short.steps, short.over, short.segment_end.tolist()) == (3, False, [False, False, True])
        np.testing.assert_array_equal(short.observations, episode.observations[:4])

    def test_of_atari_goes_on_where_a_life_is_lost(self) -> None:
        model = atari_model("Breakout")
        config = TrainConfig(env="Breakout", atari=PAPER)
        game = record(model, recorded_env(config), seed=1, max_steps=110, first=first_full_moment(config))
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

    def test_scores_are_not_clipped(self) -> None:
        game = record(atari_model("Alien"), recorded_env(TrainConfig(env="Alien", atari=PAPER)), max_steps=40)
        assert game.rewards.max() >= 10.0
        assert game.score == game.rewards.sum()

    def test_is_played_under_the_rules_of_the_run(self) -> None:
        assert recorded_env(TrainConfig(env="Breakout", atari=MODERN)).action_space == gym.spaces.Discrete(18)
        assert recorded_env(TrainConfig(env="Breakout", atari=PAPER)).action_space == gym.spaces.Discrete(4)

    def test_pictures_are_colors_or_the_latest_channel(self) -> None:
        observation = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(4, 2, 3)
        assert (picture_of(observation) == observation[3][..., None]).all()
        np.testing.assert_array_equal(picture_of(observation[:3])[1, 2], observation[:3, 1, 2])


def atari_model(game: str) -> DGVFA2C:
    env = GymnasiumVecEnv(make_atari_vec(game, 1, PAPER, threads=1))
    return DGVFA2C(
        "CnnPolicy",
        env,
        seed=0,
        device="cpu",
        questions=3,
        question_discount=None,
        compile=False,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 16}},
    )


class TestTraces:
    def test_are_the_networks_moment_by_moment(self, model: DGVFA2C, episode: Episode) -> None:
        found = question_values(model, Game(episode))
        for moment, observation in enumerate(torch.from_numpy(episode.observations)):
            with torch.no_grad():
                u, g = model.task.network.ask(model.learner.eta, observation[None, None])
                y = model.answer_net(model.policy.extract_features(observation[None]))
            if moment:
                np.testing.assert_allclose(found.cumulants[moment], u[0, 0].numpy(), rtol=1e-4, atol=1e-6)
                np.testing.assert_allclose(found.discounts[moment], g[0, 0].numpy(), rtol=1e-4, atol=1e-6)
            if moment < episode.steps:
                np.testing.assert_allclose(found.answers[moment], y[0].numpy(), rtol=1e-4, atol=1e-6)
        assert np.isnan(found.cumulants[0]).all()
        assert np.isnan(found.discounts[0]).all()
        assert np.isnan(found.answers[-1]).all()

    @pytest.mark.parametrize("max_steps", [4, 1000])
    def test_outcomes_are_what_came(self, runs: dict[str, Path], model: DGVFA2C, max_steps: int) -> None:
        """G_t = u + γ G, nothing after an end, and the answer where the recording stops."""
        episode = record(model, recorded_env(RunFolder(runs["discovered"]).read_config()), 5, max_steps)
        found = question_values(model, Game(episode))
        last = torch.from_numpy(episode.observations[-1:])
        with torch.no_grad():
            following = model.answer_net(model.policy.extract_features(last))[0].double().numpy()
        if episode.terminated[-1]:
            following = np.zeros_like(following)
        for t in reversed(range(episode.steps)):
            following = found.cumulants[t + 1] + found.discounts[t + 1] * following
            np.testing.assert_allclose(found.outcomes[t], following, rtol=1e-4, atol=1e-6)
        assert np.isnan(found.outcomes[-1]).all()

    def test_outcomes_end_with_each_life(self, model: DGVFA2C, episode: Episode) -> None:
        ends = episode.terminated.copy()
        ends[1] = True
        found = question_values(model, Game(dataclasses.replace(episode, terminated=ends)))
        np.testing.assert_allclose(found.outcomes[1], found.cumulants[2])

    def test_truth_is_the_share_of_the_outcomes_that_answers_explain(self) -> None:
        outcomes = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 2.0], [2.0, 5.0, 2.0]])
        answers = np.where(np.arange(3) == 1, 3.0, outcomes)
        np.testing.assert_allclose(explained(answers, outcomes), [1.0, 0.0, np.nan])
        assert np.isnan(explained(answers[:0], outcomes[:0])).all()

    def test_extremes_are_among_the_moments_that_count(self, episode: Episode) -> None:
        cumulant = np.zeros(episode.steps + 1)
        cumulant[[0, 1, 2, 3]] = 9.0, 8.0, 1.0, -1.0
        assert Game(dataclasses.replace(episode, first=2)).extremes(cumulant) == (2, 3)

    def test_need_questions(self, runs: dict[str, Path], episode: Episode) -> None:
        with pytest.raises(ValueError, match="run must have questions"):
            question_values(model_of(runs["prediction"]), Game(episode))


class TestSaliency:
    def test_of_an_agent_is_per_full_range_of_its_pixels(self, model: DGVFA2C, episode: Episode) -> None:
        chosen, question = episode.observations[1:4], 2
        found = cumulant_saliency(model, chosen, question)
        eta = model.learner.eta
        jacobian = torch.func.jacrev(lambda o: model.task.network.ask(eta, o[None])[0][0, :, question])(
            torch.from_numpy(chosen).float()
        )
        own = jacobian[range(3), range(3)].abs().numpy()
        np.testing.assert_allclose(found, 255.0 * own, rtol=1e-4, atol=1e-7)
        assert found.max() > 0

    @pytest.mark.parametrize("question", [-1, QUESTIONS])
    def test_question_must_be_there(self, question: int, model: DGVFA2C, episode: Episode) -> None:
        with pytest.raises(ValueError, match=rf"question must lie in \[0, {QUESTIONS - 1}\], got {question}"):
            cumulant_saliency(model, episode.observations, question)


class TestCaptions:
    def test_name_what_goes_along_with_a_cumulant(self) -> None:
        game = moving_dot()
        domain = Game(game)
        landmarks = [one._replace(values=one.values[domain.counted]) for one in domain.landmarks]
        for values, more in (
            (game.rewards, "score"),
            (game.terminated, "lose a life or the game"),
            (game.actions == 1, "have chosen UP"),
            (np.arange(len(game.actions)) % 7, "see things move further right"),
        ):
            term = explain(np.asarray(values, dtype=float)[game.first - 1 :], landmarks)[0]
            assert term.words == more
            assert term.explained > 0.9
        caption = describe_question(np.append(np.nan, -game.rewards), np.full(43, 0.9), domain, 0.25)
        assert caption.headline == "Will I not score?"
        assert "Highest at step 2 (-0), lowest at step 10 (-1)." in caption.facts
        assert "Its answers explain 25% of how what came varies." in caption.facts

    def test_a_cumulant_that_stays_asks_nothing(self) -> None:
        game = moving_dot()
        caption = describe_question(np.full(43, 0.3), np.full(43, 0.9), Game(game), float("nan"))
        assert caption.headline.startswith("Nothing")


def moving_dot() -> Episode:
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
    return Episode(observations, frames, actions, rewards, ends, nothing, True, ("STAY", "UP", "DOWN"), first=2)


class TestPage:
    def test_is_whole_in_itself(self, page: Path) -> None:
        assert len(self_contained(page).pictures) > 2

    def test_has_every_frame_and_gradient(self, page: Path, model: DGVFA2C, episode: Episode) -> None:
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

    def test_shows_every_question_and_every_agent(self, page: Path, model: DGVFA2C, episode: Episode) -> None:
        reader = Reader(page.read_text())
        numbers = [found["data-number"] for found in reader.attributes if "data-number" in found]
        assert sorted(map(int, filter(None, numbers))) == list(range(QUESTIONS))
        record = json.loads((page.parent / "atlas.json").read_text())
        found = question_values(model, Game(episode))
        for question in record["questions"]:
            assert question["headline"] in reader.text
            assert question["cumulants"][1:] == pytest.approx(found.cumulants[1:, question["question"]], rel=1e-4)
            assert question["answers"][:-1] == pytest.approx(found.answers[:-1, question["question"]], rel=1e-4)
        assert [(look["label"], look["steps"]) for look in record["looks"]] == [
            ("this run", 40),
            ("this run", 80),
            ("random, seed 0", 0),
            ("reward-prediction, seed 0", 0),
        ]
        assert record["looks"][1]["likeness"] == pytest.approx(1.0)
        assert record["looks"][0]["likeness"] < 1.0
        assert record["game"]["score"] == episode.score

    def test_is_usable_without_a_mouse_and_on_small_screens(self, page: Path) -> None:
        usable(Reader(page.read_text()))

    def test_begins_with_words_and_principal_questions(self, page: Path) -> None:
        record, text = json.loads((page.parent / "atlas.json").read_text()), Reader(page.read_text()).text
        assert record["lead"] in text
        assert record["principal"]
        for one in record["principal"]:
            assert f"{100 * one['share']:.1f}%" in text

    def test_pictures_lie_beside_it(self, page: Path) -> None:
        files = {file.name: file.read_bytes() for file in (page.parent / "pictures").iterdir()}
        assert "all-cumulants.png" in files
        for number in record_of(page)["questions"]:
            stem = f"question-{int(number):03d}"
            assert {f"{stem}-highest.png", f"{stem}-lowest.png"} <= files.keys()
        assert all(decoded(png).size > 0 for png in files.values())

    def test_is_written_by_the_command_for_an_atari_run(self, tmp_path: Path) -> None:
        run = RunFolder(tmp_path / "run")
        (run.path / "checkpoints").mkdir(parents=True)
        run.write_config(TrainConfig(env="Breakout", atari=PAPER, steps=0 + 1))
        atari_model("Breakout").save(run.checkpoint_file(1))
        page = write_atlas(run.path, kinds=1, game_steps=8)
        assert page == run.path / "atlas" / "index.html"
        shown = record_of(page)
        assert len(shown["frames"]) == 9
        assert picture(shown["frames"][0]).shape == (210, 160, 3)
        (question,) = shown["questions"].values()
        assert picture(question["heat"]["8"]).shape == (42, 42, 3)
        text = Reader(page.read_text()).text
        assert "4 frames of the observation" in text
        assert "The console's screen at the agent's step" in text

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["prediction"], "run must have questions"),
            (["points"], "run must be on a world with a registered domain or on images"),
            (["discovered", "--beside", "points"], "beside must be runs on DotGame-v0"),
            (["discovered", "--kinds", "0"], "kinds must be >= 1, got 0"),
        ],
    )
    def test_bad_input_is_named(
        self, arguments: list[str], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert message in refusal(arguments, runs, capsys)

    def test_a_game_of_one_step_has_a_page_too(self, runs: dict[str, Path], tmp_path: Path) -> None:
        run = shutil.copytree(runs["discovered"], tmp_path / "run")
        assert record_of(write_atlas(run, kinds=1, checkpoints=1, game_steps=1))["steps"] == 1

    @pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
    @pytest.mark.parametrize("width", [400, 1400])
    def test_fits_the_width_of_the_screen(self, page: Path, tmp_path: Path, width: int) -> None:
        assert widths(page, tmp_path, width) <= width

    @pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
    def test_opens_in_a_browser_without_an_error(self, page: Path, tmp_path: Path) -> None:
        """The script runs too: an address that names a step shows it, with the first question's gradient over it."""
        shown = opened(f"{page.as_uri()}#step-3", tmp_path)
        assert re.search(r'<b id="step">3</b>', shown)
        heat = re.search(r'<img class="heat"[^>]*>', shown)
        assert heat is not None
        assert "hidden" not in heat.group()
        record = record_of(page)
        first = json.loads((page.parent / "atlas.json").read_text())["kinds"][0]["leader"]
        assert record["questions"][str(first)]["heat"]["3"] in heat.group()
        assert record["frames"][3] in shown[: shown.index('class="heat"')]
