"""Samples the actions of a rollout, several steps at a time if the environment can be simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.types import Observations, Params
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.rollout.builder import Arrays
from dgvf_agents.rollout.simulation import RolloutSimulator, simulated_world

Act = Callable[[Params, Observations, Tensor], Tensor]
"""`(θ, observations, noise) -> actions`: samples actions `[B, ...]` for observations `[B, *obs]`."""


@final
class Actor:
    """Samples actions during rollout collection. The noise of a whole rollout is drawn at its start."""

    def __init__(
        self,
        act: Act,
        distribution: ActionDistribution,
        n_steps: int,
        compilation: Compilation,
        updates: Callable[[], int] = lambda: 0,
        exploration: Callable[[], Tensor] | None = None,
    ) -> None:
        """
        Args:
            act: samples actions.
            distribution: distribution of the actions; draws the noise.
            n_steps: T, steps of a rollout.
            compilation: which rollouts are compiled, and the device of θ. Environments are simulated only if rollouts
                are, now or later: NumPy is faster otherwise.
            updates: returns the number of updates so far.
            exploration: returns the exploration matrices of gSDE, which replace the noise.
        """
        self._plain_act, self._act = act, Compiled(act, compilation)
        self._distribution, self._n_steps, self._device = distribution, n_steps, compilation.device
        self._compilation, self._updates, self._exploration = compilation, updates, exploration
        self._rng = np.random.default_rng()
        self._noise: np.ndarray | None = None
        self._uploaded_noise: Tensor | None = None
        self._simulation: RolloutSimulator | None = None
        self._simulated_actions: np.ndarray | None = None

    def seed(self, seed: int) -> None:
        """Seed the noise of the next rollouts."""
        self._rng = np.random.default_rng(seed)

    def set_env(self, env: VecEnv) -> None:
        """Set the environment. Its rollouts are simulated if possible."""
        world = simulated_world(env) if self._compilation.planned else None
        if world is None:
            self._simulation = None
        elif self._simulation is None or self._simulation.env is not world:
            self._simulation = RolloutSimulator(self._plain_act, world, self._n_steps, self._compilation)

    def start_rollout(self, num_envs: int) -> None:
        """Draw the noise of a rollout."""
        self._noise, self._uploaded_noise = self._distribution.draw_noise(self._rng, self._n_steps, num_envs), None

    def actions(self, theta: Params, observations: Arrays, observed: Observations, t: int) -> np.ndarray:
        """Actions `[B, ...]` of step t.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, as returned by the environment.
            observed: the same observations on the device.
            t: index of the step in the rollout.
        """
        assert self._noise is not None
        if self._uploaded_noise is None:
            self._uploaded_noise = upload(self._noise, self._device)
        simulated = self._simulated(theta, observations, self._uploaded_noise, t)
        if simulated is not None:
            return simulated
        noise = self._uploaded_noise[t] if self._exploration is None else self._exploration()
        act = self._act if self._compiled else self._act.eager
        with torch.no_grad():
            return act(theta, observed, noise).cpu().numpy()

    @property
    def _compiled(self) -> bool:
        """The first rollout is eager, so that acting and updates compile at the same time."""
        updates = self._updates()
        return updates > 0 and self._compilation.active_at(updates)

    def _simulated(self, theta: Params, observations: Arrays, noise: Tensor, t: int) -> np.ndarray | None:
        simulation = self._simulation
        if simulation is None:
            return None
        if t % simulation.steps == 0:
            assert isinstance(observations, np.ndarray)  # simulated environments have no Dict observations
            self._simulated_actions = simulation.actions(
                theta, noise[t : t + simulation.steps], observations, self._compiled
            )
        elif not simulation.env.has_lookahead:  # something else stepped or reset the environment
            self._simulated_actions = None
        return None if self._simulated_actions is None else self._simulated_actions[t % simulation.steps]

    def get_state(self) -> dict[str, Any]:
        """The noise generator, and the noise and simulated actions of the current rollout."""
        return {"generator": self._rng, "noise": self._noise, "simulated_actions": self._simulated_actions}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `get_state`."""
        self._rng, self._noise, self._uploaded_noise = state["generator"], state["noise"], None
        self._simulated_actions = state["simulated_actions"]
