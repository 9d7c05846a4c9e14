"""Whole episodes of an agent in a simulated environment, for evaluations."""

from __future__ import annotations

from typing import final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.core.types import Params
from dgvf_agents.rollout.actor import Actor
from dgvf_agents.rollout.simulation import MAX_STEPS, simulated_world


@final
class SimulatedEpisodes:
    """Episodes of an agent in a simulated environment: several steps of both are one compiled function.

    Evaluation step by step takes longer than training between evaluations where episodes are long, as those of an agent
    that stands still in PuddleWorld are.
    """

    def __init__(self, actor: Actor, env: VecEnv) -> None:
        """
        Args:
            actor: the agent's. Its own noise does not advance.
            env: the environment; see `simulates`.
        """
        self._actor, self._env = actor.elsewhere(MAX_STEPS), env
        self._actor.set_env(env)
        self._is_prepared = False

    @staticmethod
    def simulates(actor: Actor, env: VecEnv) -> bool:
        """Whether an agent in this environment can be simulated, now or later in its training."""
        return actor.compilation.planned and simulated_world(env) is not None

    def run(self, theta: Params, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Undiscounted returns and lengths `[episodes]`, of equally many episodes of each environment or one more.

        The same seed gives the same episodes.

        Args:
            theta: packed θ.
            episodes: number of episodes ≥ 1.
            seed: seed of the environments and the actions.

        Returns:
            returns and lengths, or `None` if updates do not run compiled yet; the compilation of the simulation starts
            in the background then.
        """
        if not self._actor.is_compiled:
            self._prepare(theta)
            return None
        observations = self._start(seed)
        left = (episodes + np.arange(self._env.num_envs)) // self._env.num_envs
        returns, lengths = np.zeros(self._env.num_envs), np.zeros(self._env.num_envs, dtype=int)
        found: list[tuple[float, int]] = []
        t = 0
        while left.any():
            observations, rewards, dones = self._step(theta, observations, t)
            returns, lengths, t = returns + rewards, lengths + 1, t + 1
            if dones.any():
                counted = np.flatnonzero(dones & (left > 0))
                found += zip(returns[counted].tolist(), lengths[counted].tolist(), strict=True)
                left[counted] -= 1
                returns[dones], lengths[dones] = 0.0, 0
        totals, counts = zip(*found, strict=True)
        return np.asarray(totals), np.asarray(counts)

    def _start(self, seed: int) -> np.ndarray:
        self._env.seed(seed)
        self._actor.seed(seed)
        observations = self._env.reset()
        assert isinstance(observations, np.ndarray)
        return observations

    def _step(self, theta: Params, observations: np.ndarray, t: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        step = t % MAX_STEPS
        if step == 0:
            self._actor.start_rollout(self._env.num_envs)
        actions = self._actor.simulated_actions(theta, observations, step)
        assert actions is not None  # nothing else steps the environment meanwhile
        outcome = self._actor.step_within_episodes(step)
        following, rewards, dones, _ = self._env.step(actions) if outcome is None else outcome
        assert isinstance(following, np.ndarray)
        return following, rewards, dones

    def _prepare(self, theta: Params) -> None:
        """Simulate a few steps eagerly, once: the compilation begins."""
        if not self._is_prepared:
            self._is_prepared = True
            self._step(theta, self._start(0), 0)
