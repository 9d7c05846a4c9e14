"""Every example runs, with tiny settings."""

import json

import gymnasium as gym
import numpy as np
import pygame
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.evaluation import evaluate_policy

from dgvf_agents import DGVFA2C
from dgvf_envs.collect_objects import CollectObjects
from dgvf_envs.planning import expected_return
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import WORLD_IDS, example_module, random_policy, sync_vector_env


@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_watch_random(env_id, capsys):
    returns = example_module("watch_random").main(env_id, episodes=2, steps=3, seed=5)
    env = gym.make(env_id, max_episode_steps=3)
    policy, expected = random_policy(env, seed=5), []
    for seed in (5, None):
        env.reset(seed=seed)
        expected.append(sum(env.step(policy(None))[1] for _ in range(3)))
    assert returns == pytest.approx(expected, rel=1e-12)
    printed = [f"episode {i}: return {value:.2f}" for i, value in enumerate(expected)]
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_vector_env(env_id):
    """Against Gymnasium's vector environment over scalar ones, whose episodes a wrapper adds up."""
    mean = example_module("vector_env").main(env_id, num_envs=4, steps=90, seed=5)
    envs = RecordEpisodeStatistics(sync_vector_env(env_id, 4, AutoresetMode.SAME_STEP), buffer_length=1_000)
    envs.reset(seed=5)
    policy = random_policy(envs, seed=5)
    for _ in range(90):
        envs.step(policy(None))
    expected = np.mean(envs.return_queue) if envs.return_queue else np.nan
    assert mean == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_train_sb3_a2c():
    """More than twice the exact return of the uniformly random policy, after 200 updates."""
    spec = gym.spec("CollectObjectsSmall-v0")
    random_return = expected_return(CollectObjects(**spec.kwargs), "random", spec.max_episode_steps)
    assert example_module("train_sb3_a2c").main(steps=16_000) > 2.0 * random_return > 0.5


def test_own_task():
    """The answer loss after forty updates is a fraction of the first one's."""
    first, last = (example_module("own_task").main(steps=steps, compile=False) for steps in (80, 40 * 80))
    assert 0.0 < last < 0.2 * first


def test_own_meta_parameters():
    """The first meta-step of Adam moves every logit by the learning rate; until then all errors weigh the same."""
    train = example_module("own_meta_parameters").main
    assert train(steps=10 * 40, compile=False) == [1.0] * 4
    logits = np.log(train(steps=11 * 40, compile=False))
    steps = logits - logits.max()
    assert steps == pytest.approx([0.0 if abs(step) < 0.03 else -0.06 for step in steps], abs=1e-4)
    assert 0 < np.count_nonzero(steps < -0.03) < 4


def test_key_room(tmp_path):
    """Its questions and answers lie on two maps, and the world is what the page says."""
    from dgvf_agents.atlas.domain import domain_of

    key_room = example_module("key_room")
    tiny = {"steps": 1_600, "questions": 4, "compile": False, "evaluation_episodes": 4}
    page = key_room.main(tmp_path / "run", **tiny)
    assert len(json.loads((page.parent / "atlas.json").read_text())["questions"]) == 4
    domain = domain_of(key_room.KeyRoom())
    (terminal,) = np.flatnonzero(~domain.acting)
    assert domain.name(terminal) == "row 4, column 0, with the key"
    assert [(panel.layout >= 0).sum() for panel in domain.layout.panels] == [24, 25]
    env = gym.make("KeyRoom-v0", render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    to_the_door, to_the_key = [1] * 4 + [2] * 4, [0] * 4 + [3] * 4
    steps = [env.step(action)[1:3] for action in [*to_the_door, *to_the_key, *to_the_door]]
    assert steps == [(0.0, False)] * 23 + [(1.0, True)]
    assert env.render().shape == (600, 852, 3)


def test_train_discovered(tmp_path):
    """That the full training reaches the optimal return is tested in `tests/learning`."""
    file = tmp_path / "model.zip"
    mean = example_module("train_discovered").main(steps=1_200, file=file, compile=False, questions=4)
    model = DGVFA2C.load(file)
    assert (model.num_timesteps, model.meta_updates, model.questions) == (1_200, 1, 4)
    envs = make_vec("CollectObjectsSmall-v0", 16, seed=1)
    assert mean == evaluate_policy(model, envs, n_eval_episodes=100)[0]


@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_overlay(env_id, tmp_path):
    output = tmp_path / "overlay.png"
    picture = example_module("overlay").main(env_id, steps=1, size=100, output=output)
    assert picture.shape == (100, 142, 3)
    saved = pygame.surfarray.array3d(pygame.image.load(output)).swapaxes(0, 1)
    np.testing.assert_array_equal(saved, picture)


@pytest.mark.filterwarnings("ignore:.*matplotlib is not installed")  # Gymnasium would plot with it while one plays
@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_play(env_id, monkeypatch):
    keys = [
        pygame.event.Event(kind, key=key) for key in (pygame.K_UP, ord("a")) for kind in (pygame.KEYDOWN, pygame.KEYUP)
    ]
    batches = iter([[event] for event in [*keys, pygame.event.Event(pygame.QUIT)]])
    monkeypatch.setattr(pygame.event, "get", lambda: next(batches))
    example_module("play").main(env_id)
    assert next(batches, None) is None
