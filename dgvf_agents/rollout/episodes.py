"""Whole episodes of an agent in a simulated environment, for evaluations."""

from __future__ import annotations

from typing import final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.core.types import Params
from dgvf_agents.rollout.actor import Actor
from dgvf_agents.rollout.simulation import MAX_STEPS, simulated_world
from dgvf_envs.functional.simulation import SimulatedRollout


@final
class SimulatedEpisodes:
    """Episodes of an agent in a simulated environment: several steps of both are one compiled function.

    Evaluation step by step takes longer than training between evaluations where episodes are long, as for an agent
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
        self._start(seed)
        tally = _Tally((episodes + np.arange(self._env.num_envs)) // self._env.num_envs)
        while not tally.complete:
            tally.add(self._actor.take_steps(theta))
        return tally.returns_and_lengths()

    def _start(self, seed: int) -> None:
        self._env.seed(seed)
        self._actor.seed(seed)
        self._env.reset()

    def _prepare(self, theta: Params) -> None:
        """Simulate a few steps eagerly, once: the compilation begins."""
        if not self._is_prepared:
            self._is_prepared = True
            self._start(0)
            self._actor.take_steps(theta)


@final
class _Tally:
    """Returns and lengths of the first episodes of each environment."""

    def __init__(self, episodes: np.ndarray) -> None:
        """
        Args:
            episodes: `[B]`, number of episodes of each environment.
        """
        self._left = episodes
        self._returns, self._lengths = np.zeros(len(episodes)), np.zeros(len(episodes), dtype=int)
        self._found: list[tuple[float, int]] = []

    @property
    def complete(self) -> bool:
        """Whether there are all episodes."""
        return not self._left.any()

    def add(self, steps: SimulatedRollout) -> None:
        """Add the next steps; episodes beyond those asked for are not counted."""
        dones, rewards = steps.terminated | steps.truncated, steps.rewards.astype(np.float32)
        if dones.any():
            for step in zip(rewards, dones, strict=True):
                self._add_step(*step)
        else:
            self._returns, self._lengths = np.add.reduce([self._returns, *rewards]), self._lengths + len(dones)

    def _add_step(self, rewards: np.ndarray, dones: np.ndarray) -> None:
        self._returns, self._lengths = self._returns + rewards, self._lengths + 1
        counted = np.flatnonzero(dones & (self._left > 0))
        self._found += zip(self._returns[counted].tolist(), self._lengths[counted].tolist(), strict=True)
        self._left[counted] -= 1
        self._returns[dones], self._lengths[dones] = 0.0, 0

    def returns_and_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all episodes, in the order in which they ended."""
        returns, lengths = zip(*self._found, strict=True)
        return np.asarray(returns), np.asarray(lengths)
