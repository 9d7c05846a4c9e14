"""`dgvf evaluate` and `dgvf watch`: what a trained agent does."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
from stable_baselines3.common.evaluation import evaluate_policy

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.run_folder import RunFolder
from dgvf_envs.sb3_adapter import make_vec


def evaluate(run: Path, episodes: int = 100, deterministic: bool = False, seed: int = 10_000) -> tuple[float, float]:
    """Mean and standard deviation of the undiscounted return of a run's latest checkpoint.

    Args:
        run: the run folder.
        episodes: how many episodes ≥ 1.
        deterministic: the most likely action; one drawn from the policy, as in training, when false.
        seed: of the evaluation environments and the actions.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `episodes` < 1.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be >= 1, got {episodes!r}")
    folder = RunFolder.existing(run)
    config = folder.read_config()
    env = make_vec(config.env, min(16, episodes), seed, env_kwargs=config.evaluation_kwargs)
    model = DGVFA2C.load(folder.latest_checkpoint(), device="cpu")
    model.set_random_seed(seed)
    mean, deviation = evaluate_policy(model, env, episodes, deterministic)
    return float(mean), float(deviation)  # type: ignore[arg-type]


def watch(run: Path, episodes: int = 10, deterministic: bool = False, seed: int | None = None) -> None:
    """Show a run's latest checkpoint at work in a window.

    Args:
        run: the run folder.
        episodes: how many episodes.
        deterministic: the most likely action; one drawn from the policy, as in training, when false.
        seed: of the environment.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    model = DGVFA2C.load(folder.latest_checkpoint(), device="cpu")
    env = gym.make(config.env, render_mode="human", **config.evaluation_kwargs)
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=deterministic)
            observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    env.close()
