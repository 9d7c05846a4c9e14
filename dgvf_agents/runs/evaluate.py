"""`dgvf evaluate`: how well a trained agent does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.execution.devices import evaluation_device, random_devices
from dgvf_agents.runs.environments import evaluation_environments
from dgvf_agents.runs.folder import RunFolder


def evaluate(
    run: Path, episodes: int = 100, deterministic: bool = False, seed: int = 10_000, device: str | None = None
) -> tuple[float, float]:
    """Mean and standard deviation of the undiscounted return of a run's latest checkpoint; on Atari of whole games'
    scores, under the rules of training.

    Args:
        run: the run folder.
        episodes: how many episodes ≥ 1.
        deterministic: the most likely action; one drawn from the policy, as in training, when false.
        seed: of the evaluation environments and the actions.
        device: for the network; that of the run where it can be used here, the CPU elsewhere, when left out.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `episodes` < 1, or `device` cannot be used here.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be >= 1, got {episodes!r}")
    folder = RunFolder.existing(run)
    config = folder.read_config()
    env = evaluation_environments(config, min(64, episodes), seed)
    model = DGVFA2C.load(folder.latest_checkpoint(), device=evaluation_device(device, config.device))
    returns, _ = episodes_of(model, env, episodes, seed, deterministic)
    return float(np.mean(returns)), float(np.std(returns))


def episodes_of(
    model: DGVFA2C, env: VecEnv, episodes: int, seed: int, deterministic: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Undiscounted returns and lengths of `episodes` episodes, the same for the same seed; training is not touched.

    Args:
        model: the agent.
        env: the environments; reset.
        episodes: how many episodes ≥ 1.
        seed: of the environments and of the actions.
        deterministic: the most likely action; one drawn from the policy when false.
    """
    env.seed(seed)
    with torch.random.fork_rng(devices=random_devices(model.device)):
        torch.manual_seed(seed)
        returns, lengths = evaluate_policy(model, env, episodes, deterministic, return_episode_rewards=True)
    return np.asarray(returns), np.asarray(lengths)
