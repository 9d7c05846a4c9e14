"""Worlds of other packages: the defaults are what trains on them, and returns are normalized by a random policy's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from gymnasium.vector.utils import batch_space
from stable_baselines3 import A2C

from dgvf_agents import DGVFA2C
from dgvf_agents.experiments.runs import Cell, run_cells
from dgvf_agents.experiments.settings import (
    EXTERNAL,
    MINATAR,
    OWN_TASKS,
    SCALES,
    SEARCHED_TASKS,
    OwnTask,
    OwnTaskMethod,
    setting,
)
from dgvf_agents.hyperparameters import arguments
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.train import build
from tests.run_folders import rows_of

TASKS = [
    pytest.param(
        name, task, id=name, marks=pytest.mark.skipif(not task.is_installed, reason=f"{task.needs} is not installed")
    )
    for name, task in EXTERNAL.items()
]


@pytest.mark.parametrize("method", get_args(OwnTaskMethod)[1:])
def test_the_agent_has_the_defaults_of_the_class(method: OwnTaskMethod) -> None:
    """Every setting but what the task decides: the environment, the auxiliary task, the seed and the device."""
    config = OWN_TASKS["CartPole-v1"].config(method)
    built = build(config)
    usual = DGVFA2C("MlpPolicy", training_environments(config), auxiliary_task=method, seed=config.seed)
    for name in (*arguments("a2c"), "policy_class", "_optimizer", "n_envs"):
        assert getattr(built, name) == getattr(usual, name), name
    assert [p.shape for p in built.policy.parameters()] == [p.shape for p in usual.policy.parameters()]


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_every_task_exists_and_is_played_in_parallel(name: str, task: OwnTask) -> None:
    env = training_environments(task.config("none"))
    assert env.num_envs == task.config("none").n_envs
    observations = env.reset()
    assert batch_space(env.observation_space, env.num_envs).contains(observations)
    following, rewards, dones, infos = env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
    assert batch_space(env.observation_space, env.num_envs).contains(following)
    assert rewards.shape == dones.shape == (len(infos),) == (env.num_envs,)
    assert np.isfinite(rewards).all()


def test_the_reference_is_stable_baselines3s_own_agent(tmp_path: Path) -> None:
    """Its metrics equal A2C's with nothing but the seed given."""
    config = replace(OWN_TASKS["CartPole-v1"].config("sb3-a2c"), steps=2_000, log_every=400, seed=3)
    cell = Cell(setting("CartPole-v1", "sb3-a2c"), 3, config, tmp_path / "run")
    run_cells([cell])
    assert cell.is_finished

    model = A2C("MlpPolicy", training_environments(config), seed=3, device="cpu")
    model.learn(2_000)
    expected = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    rows = rows_of(cell.folder)
    assert [int(row["time/total_timesteps"]) for row in rows] == [400, 800, 1_200, 1_600, 2_000]
    assert float(rows[-1]["rollout/ep_rew_mean"]) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), TASKS)
def test_the_random_policy_gets_what_returns_are_normalized_by(name: str, task: OwnTask) -> None:
    env = training_environments(task.config("none"), seed=0)
    env.reset()
    returns: list[float] = []
    while len(returns) < 200:
        _, _, _, infos = env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    error = np.std(returns) / np.sqrt(len(returns))
    print(f"{name}: {np.mean(returns):.3f} ± {error:.3f}")
    assert np.mean(returns) == pytest.approx(task.random, abs=4 * error + 0.005 * abs(task.solved - task.random))


@pytest.mark.parametrize("method", ["none", "discovered", "random", "reward-prediction"])
def test_the_joint_agent_trains_on_minatar(method: OwnTaskMethod, tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    own = setting("minatar/breakout", method, auxiliary_coefficient=1e-3)
    config = own.config(SCALES["tiny"], 0)
    assert (config.encoder_mode, config.question_encoder, config.question_discount) == ("joint", "shared", None)
    assert (config.auxiliary_weighting, config.questions, config.unroll_length) == ("fixed", 128, 10)
    meta = (config.meta_learning_rate, config.meta_max_discount_grad_norm)
    assert meta == ((6e-4, 10.0) if method == "discovered" else (3e-4, None))
    assert set(MINATAR) == set(EXTERNAL) - set(OWN_TASKS) - set(SEARCHED_TASKS)
    cell = Cell(own, 0, config, tmp_path / "run")
    run_cells([cell])
    assert cell.is_finished
    observations = training_environments(config).reset()
    assert observations.shape == (16, 4, 10, 10)
    assert set(np.unique(observations)) == {0.0, 1.0}
