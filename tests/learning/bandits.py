"""Contextual bandits on all policies without an auxiliary task, against Stable-Baselines3's A2C.

python -m tests.learning.bandits          # 5 seeds; prints the mean reward of the last steps, and its ratio to A2C's

Observations have a direction, an image or both; the reward is 20 for the right one of three actions.
"""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from dgvf_agents import DGVFA2C
from dgvf_agents.policies import PaperCnnPolicy, PaperMlpPolicy, ResNetPolicy

ACTIONS, REWARD = 3, 20.0


class Bandit(gym.Env[Any, int]):
    """One step an episode; the right action is the sector of a direction, or the bright stripe of an image."""

    def __init__(self, kind: str) -> None:
        vector, image = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(0, 255, (36, 36, 1), np.uint8)
        several = spaces.Dict({"vector": vector, "size": spaces.Box(0.0, 1.0, (1,), np.float32)})
        self.observation_space = {"vector": vector, "image": image, "dict": several}[kind]
        self.action_space, self.kind = spaces.Discrete(ACTIONS), kind

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        angle = self.np_random.uniform(0.0, 2.0 * np.pi)
        self.right = int(angle / (2.0 * np.pi) * ACTIONS)
        vector = np.array([np.cos(angle), np.sin(angle)], np.float32)
        image = np.zeros((36, 36, 1), np.uint8)
        image[12 * self.right : 12 * (self.right + 1)] = 255
        several = {"vector": vector, "size": self.np_random.uniform(0.0, 1.0, 1).astype(np.float32)}
        self.seen = {"vector": vector, "image": image, "dict": several}[self.kind]
        return self.seen, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen, REWARD * (action == self.right), True, False, {}


class OwnExtractor(BaseFeaturesExtractor):
    """One ReLU layer."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, 32)
        self.layer = nn.Linear(2, 32)

    def forward(self, observations: Tensor) -> Tensor:
        return torch.relu(self.layer(observations))


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "MlpPolicy": ("MlpPolicy", "vector", {}),
    "custom extractor": ("MlpPolicy", "vector", {"features_extractor_class": OwnExtractor}),
    "MultiInputPolicy": ("MultiInputPolicy", "dict", {}),
    "CnnPolicy": ("CnnPolicy", "image", {"features_extractor_kwargs": {"features_dim": 32}}),
    "PaperMlpPolicy": (PaperMlpPolicy, "vector", {}),
    "PaperCnnPolicy": (PaperCnnPolicy, "image", {"features_extractor_kwargs": {"features_dim": 32}}),
    "ResNetPolicy": (ResNetPolicy, "image", {"features_extractor_kwargs": {"features_dim": 32}}),
}
"""A policy, which both agents train; the observations; and `policy_kwargs`."""


def reward(kind: Any, policy: Any, observed: str, kwargs: dict[str, Any], seed: int, steps: int, **more: Any) -> float:
    """The mean reward of the last third of training, of as many episodes as steps."""
    env = make_vec_env(lambda: Bandit(observed), 4, seed=seed)
    given = {"learning_rate": 3e-3, "ent_coef": 0.01, "device": "cpu", "seed": seed, "policy_kwargs": kwargs}
    model = kind(policy, env, **given, **more, stats_window_size=steps // 3).learn(steps)
    return float(np.mean([episode["r"] for episode in model.ep_info_buffer]))


def main(seeds: int = 5, steps: int = 6_000, task: str = "none") -> None:
    """Train both agents with every policy, and print their mean rewards.

    Args:
        seeds: how many.
        steps: of the environment.
        task: auxiliary task.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'policy':18}{'A2C':>8}{'DGVFA2C':>10}{'ratio':>8}", flush=True)
    for name, (policy, observed, kwargs) in CASES.items():
        means = [
            np.mean([reward(kind, policy, observed, kwargs, seed, steps, **more) for seed in range(seeds)])
            for kind, more in ((A2C, {}), (DGVFA2C, {"auxiliary_task": task, "compile": False}))
        ]
        print(f"{name:18}{means[0]:8.2f}{means[1]:10.2f}{means[1] / means[0]:8.3f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
