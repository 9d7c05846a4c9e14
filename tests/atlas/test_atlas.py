"""The atlas of tiny trained runs, from its maps to its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import dgvf_envs  # noqa: F401, registers the environments
from dgvf_agents.atlas.maps import SIDE, Scale, scale_of
from dgvf_agents.atlas.page import draw_question, follow, write_atlas
from dgvf_agents.atlas.report import (
    AgentValues,
    Checkpoint,
    agent_values,
    erased,
    policy_return,
    question_values,
    read_run,
    reliance,
)
from dgvf_agents.train.folder import RunFolder
from dgvf_envs.planning import expected_return
from dgvf_envs.rendering import DIVERGING, INK, SEQUENTIAL, Canvas
from tests.atlas.pages import CHROMIUM, Reader, decoded, opened, record_of, self_contained
from tests.atlas.runs import QUESTIONS, domain, model_of, tiny_run
from tests.helpers import refused
from tests.small_agents import small_model

SMALL, SQUARE = "CollectObjectsSmall-v0", "PuddleWorld-v0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "discovered": tiny_run(folder / "discovered", "collect-objects-small", "discovered"),
        "random": tiny_run(folder / "random", "collect-objects-small", "random"),
        "prediction": tiny_run(folder / "prediction", "collect-objects-small", "reward-prediction"),
        "square": tiny_run(folder / "square", "puddle-world", "discovered"),
    }


@pytest.fixture(scope="module")
def page(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("atlas")
    return write_atlas(runs["discovered"], [runs["random"], runs["prediction"]], out, kinds=3, checkpoints=2)


def test_maps_are_the_networks_of_what_the_environment_shows(runs: dict[str, Path]) -> None:
    """Walk at random; every number on the maps belongs to the observation met there."""
    model, states = model_of(runs["discovered"]), domain(SMALL)
    asked, agent = question_values(model, states), agent_values(model, states.observations)
    env = gym.make(SMALL)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    met = set()
    for _ in range(400):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        row, column = np.argwhere(observation[0])[0]
        state = states.layout.panels[0 if observation[1].any() else 1].layout[row, column]
        if int(state) not in met:
            met.add(int(state))
            check(model, observation, asked, agent, state, terminated)
        if terminated or truncated:
            observation, _ = env.reset()
    assert len(met) > 40


def check(model, observation, asked, agent, state, terminated) -> None:
    seen = torch.from_numpy(observation)[None]
    with torch.no_grad():
        cumulants, _ = model.task.network.ask(model.learner.eta, seen[None])
        policy, value = model.policy.get_distribution(seen).distribution, model.policy.predict_values(seen)
        answers = model.answer_net(model.policy.extract_features(seen))
    np.testing.assert_allclose(asked.cumulants[state], cumulants[0, 0].numpy(), rtol=1e-4, atol=1e-5)
    assert (asked.discounts[state] == 0.9).all()
    assert np.isnan(asked.answers[state]).all() == terminated
    if not terminated:
        np.testing.assert_allclose(asked.answers[state], answers[0].numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.exp(agent.log_policy[state]), policy.probs[0].numpy(), rtol=1e-4, atol=1e-5)
        assert agent.values[state] == pytest.approx(value.item(), rel=1e-4, abs=1e-5)


def test_discounts_that_are_learned_are_the_networks_of_each_state() -> None:
    model = small_model(SQUARE, "MlpPolicy", n_envs=1, questions=4, question_discount=None)
    states = domain(SQUARE)
    eta = model.learner.eta
    encoder = {name.removeprefix("encoder."): value for name, value in eta.items() if name.startswith("encoder.")}
    observed = torch.from_numpy(states.observations)
    features = torch.func.functional_call(model.task.network.encoder, encoder, (observed,))
    logits = features @ eta["discounts.weight"].T + eta["discounts.bias"]
    expected = 1.0 / (1.0 + np.exp(-logits.detach().numpy()))
    assert np.ptp(expected, axis=0).min() > 1e-3  # so that a mix-up of states or questions shows
    np.testing.assert_allclose(question_values(model, states).discounts, expected, rtol=1e-5)


def test_erased_features_are_uncorrelated_with_the_answer_and_keep_the_rest() -> None:
    rng = np.random.default_rng(0)
    features, acting = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)), np.arange(50) > 3
    answer = features @ rng.normal(size=6) + 2.0
    left = erased(features, answer, acting)
    answered = answer[acting] - answer[acting].mean()
    assert np.abs((left[acting] - left[acting].mean(axis=0)).T @ answered).max() < 1e-9
    np.testing.assert_array_equal(left[~acting], features[~acting])
    np.testing.assert_allclose(left[acting].mean(axis=0), features[acting].mean(axis=0))
    one, other = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    left = erased(np.stack([one + other, 3.0 * other], axis=1), 5.0 * one - 2.0, np.ones(4, dtype=bool))
    np.testing.assert_allclose(left, np.stack([other, 3.0 * other], axis=1), atol=1e-12)
    features = np.stack([one, other], axis=1)
    assert erased(features, np.full(4, 3.0), np.ones(4, dtype=bool)) is features


def test_reliance_is_what_the_heads_make_of_it() -> None:
    """Logits (x_0, 0) and v = x_1, so that the policy relies on the first and the value on the second alone."""
    states = domain(SMALL)
    acting = states.acting
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(acting), 2))
    x[acting] = np.linalg.qr(x[acting] - x[acting].mean(axis=0))[0] * np.sqrt(acting.sum())  # uncorrelated

    def heads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = np.concatenate([2.0 * features[:, :1], np.zeros((len(features), 3))], axis=1)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), features[:, 1]

    agent = AgentValues(x, *heads(x), heads)
    answers = np.where(acting[:, None], x @ np.array([[3.0, 0.0, 1.0], [0.0, -0.1, 1.0]]), np.nan)
    result = reliance(agent, answers, acting, states.table, horizon=40)
    np.testing.assert_allclose(result.policy[1], 0.0, atol=1e-9)
    np.testing.assert_allclose(result.value, [0.0, 1.0, 0.5], atol=1e-9)
    uniform = np.log(0.25)
    kl = (np.exp(agent.log_policy) * (agent.log_policy - uniform)).sum(axis=1)[acting].mean()
    assert result.policy[0] == pytest.approx(kl)  # without x_0 all actions are alike
    own = policy_return(states.table, np.exp(agent.log_policy), 40)
    assert own - result.return_lost[0] == pytest.approx(expected_return(states.world, "random", 40))
    assert result.return_lost[1] == pytest.approx(0.0, abs=1e-9)


def test_colors_are_those_of_the_values() -> None:
    states = domain(SMALL)
    values = np.zeros(len(states.groups))
    hot, cold = states.layout.panels[0].layout[1, 1], states.layout.panels[1].layout[7, 7]
    values[hot], values[cold] = 2.0, -2.0
    picture = states.layout.draw("cumulant", values, side=90)  # cells of 10 pixels, a gap of 4 between the maps
    assert (picture.scale.low, picture.scale.high, picture.width, picture.height) == (-2.0, 2.0, 184, 90)
    assert picture.extremes == (hot, cold)
    pixels = decoded(picture.png)
    assert tuple(pixels[15, 15]) == DIVERGING[-1]
    assert tuple(pixels[75, 169]) == DIVERGING[0]
    assert tuple(pixels[75, 75]) == tuple(pixels[15, 109]) == DIVERGING[2]
    assert tuple(pixels[5, 5]) == (70, 78, 96)  # a wall
    assert (pixels[21:29, 61:69] != DIVERGING[2]).any()  # the first object


def test_scales_are_those_of_the_quantities() -> None:
    values = np.array([0.25, np.nan, -0.5])
    assert scale_of("cumulant", values) == Scale(-0.5, 0.5, DIVERGING)
    assert scale_of("cumulant", -values) == Scale(-0.5, 0.5, DIVERGING)
    assert scale_of("cumulant", np.array([2.0, 3.0])) == Scale(-3.0, 3.0, DIVERGING)
    assert scale_of("answer", values) == Scale(-0.5, 0.25, SEQUENTIAL)
    assert scale_of("value", values) == Scale(-0.5, 0.25, SEQUENTIAL)
    assert scale_of("discount", np.array([0.3, 0.4])) == Scale(0.0, 1.0, SEQUENTIAL)


@pytest.mark.parametrize("env_id", [SMALL, SQUARE])
def test_positions_are_where_states_are_drawn(env_id: str) -> None:
    """The color of a single state stands at its position in the picture."""
    layout = domain(env_id).layout
    for state in range(0, len(layout.positions), 37):
        panel, x, y = layout.positions[state]
        assert (layout.panels[int(panel)].layout == state).any()
        alone = np.where(np.arange(len(layout.positions)) == state, 1.0, 0.0)
        pixels = decoded(layout.draw("cumulant", alone).png).astype(int)
        column, row = (min(int(share / 100 * size), size - 1) for share, size in ((x, layout.width), (y, SIDE)))
        objects = decoded(layout.draw("cumulant", np.zeros(len(alone))).png).astype(int)
        changed = np.argwhere((pixels != objects).any(axis=-1)).mean(axis=0)
        assert abs(changed - [row, column]).max() < 0.06 * SIDE


@pytest.mark.parametrize("env_id", [SMALL, SQUARE])
def test_arrows_point_along_the_policy(env_id: str) -> None:
    """The head is the wide end."""
    states = domain(env_id)
    place = {SMALL: (1, 1), SQUARE: (21, 21)}[env_id]
    state = states.layout.panels[0].layout[place]
    here = states.layout.state(state)
    x, y = (round(c) for c in states.layout.view.center(Canvas.of_map(400), here))
    for action in range(4):
        policy = np.zeros((len(states.groups), len(states.layout.moves)))
        policy[:, action] = 1.0
        pixels = decoded(states.layout.draw_policy(np.zeros(len(states.groups)), policy, side=400).png)
        ink = np.abs(pixels[y - 8 : y + 9, x - 8 : x + 9].astype(int) - INK).max(axis=-1) < 40
        right, down = np.sign(states.layout.moves[action])
        toward = np.arange(-8, 9) * (right or down)
        widths = ink.sum(axis=0 if right else 1)
        assert widths[toward > 0].sum() > 1.3 * widths[toward < 0].sum() > 0


def history(run: Path, checkpoints: int = 8) -> tuple[Checkpoint, ...]:
    return read_run(run, domain(SMALL), 40, checkpoints).history


def test_the_history_begins_with_the_run_s_own_beginning(runs: dict[str, Path]) -> None:
    """Random questions are never trained: the untrained agent of the configuration has the very same."""
    moments = history(runs["random"])
    assert [moment.steps for moment in moments] == [0, 80, 160, 240]
    for moment in moments:
        np.testing.assert_array_equal(moment.cumulants, moments[-1].cumulants)
        assert moment.numbers["likeness"] == pytest.approx(1.0)
    assert moments[0].numbers["distance"] != moments[-1].numbers["distance"]


def test_discovered_questions_change(runs: dict[str, Path]) -> None:
    moments = history(runs["discovered"])
    first, last = moments[0].cumulants, moments[-1].cumulants
    assert np.abs(first - last).max() > 1e-3
    assert moments[0].numbers["variation"] == pytest.approx(first.std(axis=0).mean())
    assert 1.0 <= moments[-1].numbers["effective_questions"] <= QUESTIONS
    assert moments[0].numbers["likeness"] < moments[-1].numbers["likeness"] == pytest.approx(1.0)


def test_following_is_an_episode_of_the_agent_in_its_world(runs: dict[str, Path]) -> None:
    model, states = model_of(runs["discovered"]), domain(SMALL)
    config = RunFolder(runs["discovered"]).read_config()
    (episode, values, points), table = follow(model, config, states, seed=3), states.table
    assert len(points) == episode.steps + 1 <= 41
    np.testing.assert_array_equal(states.observations[points], episode.observations)
    for t, action in enumerate(episode.actions.tolist()):
        assert table.next_state[points[t], action] == points[t + 1]
        assert table.reward[points[t], action] == episode.rewards[t]
        assert table.terminated[points[t], action] == episode.terminated[t]
    asked = question_values(model, states)
    np.testing.assert_allclose(values.cumulants[1:], asked.cumulants[points[1:]], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(values.answers[:-1], asked.answers[points[:-1]], rtol=1e-4, atol=1e-6)


def test_the_page_shows_every_question_and_every_agent(page: Path) -> None:
    reader = self_contained(page)
    numbers = [found["data-number"] for found in reader.attributes if "data-number" in found]
    assert sorted(map(int, filter(None, numbers))) == list(range(QUESTIONS))
    record = json.loads((page.parent / "atlas.json").read_text())
    for question in record["questions"]:
        assert question["headline"] in reader.text
    for label in ("discovered questions, seed 0", "random questions, seed 0", "reward prediction, seed 0"):
        assert label in reader.text
    assert [agent["task"] for agent in record["agents"]] == ["discovered", "random", "reward-prediction"]
    assert [moment["steps"] for moment in record["agents"][0]["moments"]] == [0, 80, 240]
    assert "discounts" not in {found.get("alt") for found in reader.attributes}
    beside = {path.stem for path in (page.parent / "pictures").glob("*.png")}
    assert beside >= {"policy", "evolution", *(f"question-{i:03d}-cumulant" for i in range(QUESTIONS))}


def test_the_page_has_the_values_behind_its_maps(page: Path, runs: dict[str, Path]) -> None:
    model, states = model_of(runs["discovered"]), domain(SMALL)
    asked, data = question_values(model, states), record_of(page)
    for quantity, values in (("cumulant", asked.cumulants), ("answer", asked.answers)):
        shown = np.array(data["values"][quantity], dtype=float)  # None becomes NaN
        np.testing.assert_allclose(shown, values.T, rtol=6e-3, atol=1e-9)
    relied_on = reliance(agent_values(model, states.observations), asked.answers, states.acting)
    for one in json.loads((page.parent / "atlas.json").read_text())["questions"]:
        assert one["policy_reliance"] == pytest.approx(relied_on.policy[one["question"]])
    assert data["values"]["discount"] == []  # constant
    assert data["names"] == [states.name(i) for i in range(len(states.acting))]
    np.testing.assert_allclose(data["x"], states.layout.positions[:, 1], rtol=1e-4)
    for found in Reader(page.read_text()).attributes:
        if found.get("class") == "map":
            assert len(data["values"][found["data-quantity"]][int(found["data-row"])]) == len(states.acting)


def test_the_first_question_can_be_drawn_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    draw_question(runs["discovered"], tmp_path / "question.png")
    assert np.ptp(decoded((tmp_path / "question.png").read_bytes()).astype(int)) > 200
    with pytest.raises(ValueError, match="run must have questions"):
        draw_question(runs["prediction"], tmp_path / "none.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prediction"], "run must have questions"),
        (["square", "--beside", "discovered"], "beside must be runs on PuddleWorld"),
        (["discovered", "--kinds", "0"], "kinds must be"),
        (["discovered", "--checkpoints", "0"], "checkpoints must be"),
        (["nothing"], "run must be a folder"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "atlas", *(str(runs.get(word, word)) for word in arguments))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_opens_in_a_browser_without_an_error(page: Path, tmp_path: Path) -> None:
    """The script runs too: an address that names a question opens it."""
    best = json.loads((page.parent / "atlas.json").read_text())["questions"][0]
    shown = opened(f"{page.as_uri()}#question-{best['question']}", tmp_path)
    dialog = shown[shown.index("<dialog") :]
    assert re.match(r"<dialog[^>]* open", dialog)
    assert f"Question {best['question']}: " in dialog


def test_agents_with_an_encoder_each_for_policy_and_value_are_mapped() -> None:
    """`MlpPolicy` has two: features are both, and what is read off them is what the policy computes."""
    model = small_model(SQUARE, "MlpPolicy", n_envs=1, questions=4)
    observations = np.random.default_rng(0).random((300, 2), dtype=np.float32)
    maps = agent_values(model, observations)
    assert maps.features.shape == (300, 64 + 64)
    with torch.no_grad():
        tensor = torch.from_numpy(observations)
        expected = model.policy.get_distribution(tensor).distribution.logits
        values = model.policy.predict_values(tensor).squeeze(-1)
    np.testing.assert_allclose(maps.log_policy, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(maps.values, values.numpy(), atol=1e-5)
    for own, again in zip(maps.heads(maps.features), (maps.log_policy, maps.values), strict=True):
        np.testing.assert_allclose(own, again, atol=1e-6)
