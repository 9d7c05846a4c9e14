"""`dgvf evaluate`: the mean return of a trained agent; and evaluations during training."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import final

import numpy as np
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.simulation import SimulatedEpisodes
from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.execution.devices import evaluation_device, random_devices
from dgvf_agents.train.checkpoint import check_spaces, load_model
from dgvf_agents.train.environments import evaluation_environments
from dgvf_agents.train.folder import RunFolder


def evaluate(
    run: Path,
    episodes: int = 100,
    deterministic: bool = False,
    seed: int = 10_000,
    device: str | None = None,
    as_trained: bool = False,
) -> tuple[float, float]:
    """Mean and standard deviation of the undiscounted return of a run's latest checkpoint.

    On Atari the return is the score of a whole game, under the rules of training.

    Args:
        run: the run folder, or the name of a shipped run.
        episodes: number of episodes ≥ 1.
        deterministic: whether to take the most likely action instead of sampling from the policy.
        seed: seed of the evaluation environments and the actions.
        device: device of the network (default: the run's, or the CPU if that is unavailable).
        as_trained: whether to evaluate in the environments of training, whose arguments may differ.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `episodes` < 1, or `device` is unavailable.
    """
    check_counts(episodes=episodes)
    folder = RunFolder.existing(run)
    config = folder.read_config()
    if as_trained:
        config = dataclasses.replace(config, evaluation_kwargs=config.env_kwargs)
    with closing(evaluation_environments(config, min(64, episodes), seed)) as env:
        model = load_model(config, folder.latest_checkpoint(), device=evaluation_device(device, config.device))
        check_spaces(model, env, folder)
        returns, _ = episodes_of(model, env, episodes, seed, deterministic)
    return float(np.mean(returns)), float(np.std(returns))


def episodes_of(
    model: DiscoveryAlgorithm, env: VecEnv, episodes: int, seed: int, deterministic: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Undiscounted returns and lengths of `episodes` episodes.

    The same seed gives the same episodes. The random number generators of training do not advance.

    Args:
        model: the agent.
        env: the environments, which are reset.
        episodes: number of episodes ≥ 1.
        seed: seed of the environments and the actions.
        deterministic: whether to take the most likely action instead of sampling from the policy.
    """
    env.seed(seed)
    with torch.random.fork_rng(devices=random_devices(model.device)):
        torch.manual_seed(seed)
        returns, lengths = evaluate_policy(model, env, episodes, deterministic, return_episode_rewards=True)
    return np.asarray(returns), np.asarray(lengths)


@final
class Evaluator:
    """Evaluates one model again and again, always with the same seed, for comparison.

    Episodes are simulated as soon as updates run compiled, and played step by step before and in other worlds. This
    depends only on the number of updates, so a resumed run repeats its evaluations.
    """

    def __init__(self, env: VecEnv, episodes: int, seed: int) -> None:
        """
        Args:
            env: the evaluation environments.
            episodes: number of episodes ≥ 1.
            seed: seed of the environments and the actions.
        """
        self._env, self._episodes, self._seed = env, episodes, seed
        self._simulated: SimulatedEpisodes | None = None

    def episodes_of(self, model: DiscoveryAlgorithm) -> tuple[np.ndarray, np.ndarray]:
        """Undiscounted returns and lengths of the model's episodes, with sampled actions."""
        self._simulated = self._simulated or model._collector.episodes_in(self._env)
        found = self._simulated and self._simulated.run(model._policy_theta, self._episodes, self._seed)
        return found or episodes_of(model, self._env, self._episodes, self._seed)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
