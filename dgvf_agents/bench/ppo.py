"""Training speed of PPO, and its equality with Stable-Baselines3's: `dgvf bench ppo`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.bench.harness import Benchmark, Row, Training, check_at_least, median_rates, tables, with_ratios
from dgvf_agents.train.config import atari_config
from dgvf_agents.train.environments import training_environments

_ZOO_ATARI: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
}
_SETTINGS: dict[str, dict[str, Any]] = {"CartPole-v1": {}, "Pong": _ZOO_ATARI}
"""Stable-Baselines3's defaults: 320 gradient steps of an iteration; RL Baselines3 Zoo's for Atari: 16."""
_TITLE = "Environment steps per second; differences are of parameters after three iterations, at most"
_TASKS = ("none", "random", "discovered")


@final
@dataclass(frozen=True)
class PPOBenchmark(Benchmark):
    """Training speed of PPO with auxiliary tasks beside Stable-Baselines3's PPO."""

    name: ClassVar[str] = "ppo"
    seconds: float = 5.0
    """Minimum duration of each repetition."""
    repetitions: int = 5
    """Repetitions; the median counts. The agents take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions")

    def cases(self) -> list[Row]:
        return [{"table": _TITLE, "environment": name} for name in _SETTINGS]

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(1)
        name = case["environment"]
        theirs = _learned(name, None)
        differences = [
            (parameters - theirs).abs().max() for parameters in (_learned(name, "none"), _learned(name, None, 1e-7))
        ]
        agents = {"SB3 PPO": _model(name, None), **{task: _model(name, task) for task in _TASKS}}
        for agent in agents.values():
            agent.learn(2 * agent.n_steps * agent.n_envs)
        trained = {label: Training(agent) for label, agent in agents.items()}
        rates = {label: training.rate for label, training in trained.items()}
        found: Row = dict(median_rates(rates, lambda rate: rate(self.seconds), self.repetitions))
        ratios = {"none / SB3": ("none", "SB3 PPO"), "time, discovered / random": ("random", "discovered")}
        columns = "difference from SB3", "SB3 from SB3 + 1e-7"
        return [{**with_ratios(found, ratios), **{n: f"{d:.1e}" for n, d in zip(columns, differences, strict=True)}}]

    @staticmethod
    def tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
        return tables(rows)


def _learned(name: str, task: str | None, perturbation: float = 0.0) -> Tensor:
    """All parameters after three iterations; those at the start are changed by about `perturbation` of themselves."""
    model = _model(name, task)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.policy.parameters():
            value.mul_(1.0 + perturbation * torch.randn(value.shape, generator=generator))
    model.learn(3 * model.n_steps * model.n_envs)
    return torch.cat([value.detach().flatten() for value in model.policy.parameters()])


def _model(name: str, task: str | None) -> OnPolicyAlgorithm:
    """Stable-Baselines3's PPO, or ours with an auxiliary task."""
    settings, policy = _SETTINGS[name], "MlpPolicy"
    env: Any = name
    if settings:
        config = dataclasses.replace(atari_config(name, "a2c"), n_envs=8, threads=1)
        env, policy = training_environments(config), "CnnPolicy"
    given = {"seed": 0, "device": "cpu", **settings}
    return PPO(policy, env, **given) if task is None else DGVFPPO(policy, env, auxiliary_task=task, **given)
