"""Evaluation during training: simulated as soon as updates run compiled, step by step before, and in other worlds."""

from __future__ import annotations

from typing import final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.agents.synchronous import SynchronousAlgorithm
from dgvf_agents.rollout.episodes import SimulatedEpisodes
from dgvf_agents.train.evaluate import episodes_of


@final
class Evaluator:
    """Evaluates one model again and again, always with the same seed, for comparison.

    How depends only on the number of updates, so a resumed run repeats its evaluations.
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

    def episodes_of(self, model: SynchronousAlgorithm) -> tuple[np.ndarray, np.ndarray]:
        """Undiscounted returns and lengths of the model's episodes, with sampled actions."""
        actor = model._collector.actor
        if self._simulated is None and SimulatedEpisodes.simulates(actor, self._env):
            self._simulated = SimulatedEpisodes(actor, self._env)
        if self._simulated is not None:
            found = self._simulated.run(model._policy_theta, self._episodes, self._seed)
            if found is not None:
                return found
        return episodes_of(model, self._env, self._episodes, self._seed)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
