"""Small agents, environments to train them in, and what tests do with trained ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents import DGVFA2C
from dgvf_envs.sb3_adapter import make_vec

COPIES, STEPS = 4, 5
BATCH = COPIES * STEPS
SMALL: dict[str, Any] = {
    "auxiliary_task": "discovered", "questions": 6, "unroll_length": 3, "seed": 0, "compile": False, "device": "cpu",
}  # fmt: skip
TINY_NETWORK = {"features_extractor_kwargs": {"hidden": (16,)}}
BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Samples(gym.Env):
    """Random observations and rewards; episodes end in both ways."""

    render_mode = None

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(0 if seed is None else seed)
        self.t, self.episodes = 0, self.episodes + 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.t += 1
        over, terminates = self.t == 3, self.episodes % 2 == 0
        return self.observation_space.sample(), float(self.t), over and terminates, over and not terminates, {}


def puddle() -> VecEnv:
    """Short episodes."""
    return make_vec("PuddleWorld-v0", COPIES, 0, env_kwargs={"max_episode_steps": 9, "start": "random"})


def small_model(env: Any = "PuddleWorld-v0", policy: Any = "PaperMlpPolicy", **changes: Any) -> DGVFA2C:
    kwargs = {"policy_kwargs": TINY_NETWORK} if policy == "PaperMlpPolicy" else {}
    copies = {"n_envs": COPIES} if isinstance(env, str) else {}
    return DGVFA2C(policy, env, **{**SMALL, **copies, **kwargs, **changes})


def weights_of(model: Any) -> torch.Tensor:
    """The policy's parameters, as a copy in one vector."""
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()])


class SaveAt(BaseCallback):
    """Saves the model in the middle of things: at an environment step, or at the end of a rollout."""

    def __init__(self, path: Path, steps: int, at_rollout_end: bool = False) -> None:
        super().__init__()
        self._path, self._steps, self._at_rollout_end = path, steps, at_rollout_end

    def _on_step(self) -> bool:
        if self.num_timesteps == self._steps and not self._at_rollout_end:
            self.model.save(self._path)
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps == self._steps and self._at_rollout_end:
            self.model.save(self._path)
