"""What Stable-Baselines3's own tests ask A2C to learn, for `DGVFA2C`: `test_identity.py`, and the end of `test_gae.py`.

Environments are Stable-Baselines3's, and so are numbers of steps, thresholds and arguments. Whether an agent passes
depends on the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import A2C
from stable_baselines3.common.envs import (
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from dgvf_agents import DGVFA2C

SEEDS = {"identity": 3, "multi-discrete": 3, "multi-binary": 3, "box": 0, "infinite horizon": 1}
"""The tests, and the seed of each."""
_KINDS = {"identity": IdentityEnv, "multi-discrete": IdentityEnvMultiDiscrete, "multi-binary": IdentityEnvMultiBinary}
THRESHOLD = 90
"""Returns of the identity environments to exceed; 100 is optimal."""


class InfiniteHorizon(gym.Env):
    """Four states in a ring, a reward of 1 a step."""

    observation_space = gym.spaces.Discrete(4)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    state = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action: np.ndarray) -> tuple[int, float, bool, bool, dict]:
        self.state = (self.state + 1) % 4
        return self.state, 1.0, False, False, {}


def passes(name: str, agent: Any, seed: int, **given: Any) -> bool:
    """Whether an agent passes a test with a seed.

    Args:
        name: one of `SEEDS`.
        agent: `A2C` or `DGVFA2C`.
        seed: of the agent.
        given: further arguments of the agent.
    """
    test: Callable[..., bool] = {"box": _box, "infinite horizon": _infinite_horizon}.get(name, _identity)
    return test(name, agent, seed=seed, device="cpu", **given)


def _identity(name: str, agent: Any, **given: Any) -> bool:
    env = DummyVecEnv([lambda: _KINDS[name](4)])
    model = agent("MlpPolicy", env, gamma=0.4, learning_rate=0.002, **given).learn(1_200)
    return _return(model, env) > THRESHOLD


def _box(name: str, agent: Any, **given: Any) -> bool:
    env = IdentityEnvBox(eps=0.5)
    policy_kwargs = {"net_arch": [64, 64], "log_std_init": -0.5}
    model = agent("MlpPolicy", env, learning_rate=1e-3, gamma=0.95, policy_kwargs=policy_kwargs, **given)
    return _return(model.learn(2_000), env) > THRESHOLD


def _infinite_horizon(name: str, agent: Any, **given: Any) -> bool:
    """A geometric series: episodes cut by time are bootstrapped from."""
    env = gym.wrappers.TimeLimit(InfiniteHorizon(), 8)
    kwargs = {"net_arch": [32]}
    model = agent("MlpPolicy", env, gamma=0.98, learning_rate=0.01, policy_kwargs=kwargs, **given).learn(500)
    value = model.policy.predict_values(model.policy.obs_to_tensor(np.array(0))[0]).item()
    return abs(1 / (1 - 0.98) - value) < 1.0


def _return(model: Any, env: Any) -> float:
    return float(evaluate_policy(model, env, n_eval_episodes=20, warn=False)[0])


TASKS = ("none", pytest.param("discovered", marks=pytest.mark.slow))
SLOW = pytest.mark.slow


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "name",
    ["identity", "infinite horizon", pytest.param("multi-discrete", marks=SLOW), pytest.param("box", marks=SLOW)],
)
def test_learning(name: str, task: str) -> None:
    assert passes(name, DGVFA2C, SEEDS[name], auxiliary_task=task, compile=False)


@SLOW
@pytest.mark.parametrize("task", TASKS)
def test_identity_with_binary_actions(task: str) -> None:
    """A2C passes with the seed of Stable-Baselines3's test and with few others: compare how many of eight pass."""
    seeds = range(3, 11)
    ours = sum(passes("multi-binary", DGVFA2C, s, auxiliary_task=task, compile=False) for s in seeds)
    theirs = sum(passes("multi-binary", A2C, s) for s in seeds)
    print(f"{task}: {ours} of ours pass, {theirs} of A2C")
    assert ours >= theirs
