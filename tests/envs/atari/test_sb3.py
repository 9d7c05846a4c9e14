"""Atari under Stable-Baselines3: terminal observations, and scores of whole games."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_envs.atari import PAPER, make_atari_vec
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

QUICK = replace(PAPER, max_noops=0, frame_size=36, max_frames=480)
"""The paper's rules with small frames, starts that are known, and games that are cut off soon."""


@pytest.fixture
def env() -> Iterator[GymnasiumVecEnv]:
    env = GymnasiumVecEnv(make_atari_vec("Breakout", 2, QUICK, threads=1))
    env.seed(5)
    yield env
    env.close()


class Scores(BaseCallback):
    """Collects what Stable-Baselines3 is told of the games, and adds up the rewards between their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []
        self.lengths: list[int] = []
        self.pieces = 0

    def _on_step(self) -> bool:
        self.pieces += int(self.locals["dones"].sum())
        for info in self.locals["infos"]:
            if "episode" in info:
                self.told.append(info["episode"]["r"])
                self.lengths.append(info["episode"]["l"])
        return True


def test_evaluation_is_of_whole_games(env: GymnasiumVecEnv) -> None:
    """Without a warning, which would say that lives were taken for games."""
    model = A2C("CnnPolicy", env, seed=0)
    scores, lengths = evaluate_policy(model, env, 2, deterministic=False, return_episode_rewards=True)
    assert len(scores) == 2
    assert min(lengths) > 60  # a life lasts about 30 steps
    assert max(lengths) <= QUICK.max_steps


def test_an_agent_given_the_vector_environment_itself_logs_whole_games() -> None:
    games = make_atari_vec("Breakout", 2, QUICK, threads=1)
    network = {"features_extractor_kwargs": {"features_dim": 4}}
    model = DGVFA2C("CnnPolicy", games, auxiliary_task="none", compile=False, seed=0, policy_kwargs=network)
    scores = Scores()
    model.learn(400, scores)
    assert model.ep_info_buffer is not None
    assert [game["r"] for game in model.ep_info_buffer] == scores.told
    assert scores.pieces > len(scores.told) > 0
    games.close()
