"""Samples the actions of a rollout, several steps at a time if the environment can be simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import FusedSteps
from dgvf_agents.rollout.builder import Arrays
from dgvf_agents.rollout.simulation import RolloutSimulator, StepOutcome, simulated_world
from dgvf_envs.functional.simulation import SimulatedRollout


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
        index_terminated: bool = False,
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
            index_terminated: see `RolloutSimulator`.
        """
        self._index_terminated = index_terminated
        self._plain_act, self._act = act, Compiled(act, compilation)
        self._distribution, self._n_steps, self._device = distribution, n_steps, compilation.device
        self._updates, self._exploration = updates, exploration
        self.compilation = compilation
        """Which rollouts are compiled."""
        self._rng = np.random.default_rng()
        self._noise: np.ndarray | None = None
        self._uploaded_noise: Tensor | None = None
        self._simulation: RolloutSimulator | None = None
        self._restored_actions: np.ndarray | None = None  # simulated before the state was saved
        self._restored_log_probs: Tensor | None = None
        self.log_probs: Tensor | None = None
        """`[B]`: log-probabilities of the actions sampled last, if `act` gives them."""

    def seed(self, seed: int) -> None:
        """Seed the noise of the next rollouts."""
        self._rng = np.random.default_rng(seed)

    def elsewhere(self, n_steps: int) -> Actor:
        """An actor of the same agent for another environment, with noise of its own.

        Args:
            n_steps: T of its rollouts.
        """
        given = (self._plain_act, self._distribution, n_steps, self.compilation, self._updates)
        return Actor(*given, self._exploration, self._index_terminated)

    def set_env(self, env: VecEnv) -> None:
        """Set the environment. Its rollouts are simulated if possible."""
        found = simulated_world(env) if self.compilation.planned else None
        if found is None:
            self._simulation = None
        elif self._simulation is None or self._simulation.env is not found[0]:
            world, monitors = found
            fused = FusedSteps(self._plain_act, world.dynamics, world.max_episode_steps, self._device)
            self._simulation = RolloutSimulator(
                fused, world, self._n_steps, self.compilation, monitors, self._index_terminated
            )

    def start_rollout(self, num_envs: int) -> None:
        """Draw the noise of a rollout."""
        self._noise, self._uploaded_noise = self.draw_noise(num_envs), None
        self._restored_actions = None
        if self._simulation is not None:
            self._simulation.start_rollout()

    def draw_noise(self, num_envs: int) -> np.ndarray:
        """`[T, B, ...]`: the noise of the next rollout, for others that collect it in this actor's place."""
        return self._distribution.draw_noise(self._rng, self._n_steps, num_envs)

    def simulated_actions(self, theta: Params, observations: Arrays, t: int) -> np.ndarray | None:
        """Actions `[B]` of step t, if the environment is simulated; see `RolloutSimulator`.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, as returned by the environment.
            t: index of the step in the rollout.
        """
        simulation = self._simulation
        if simulation is None:
            return None
        assert isinstance(observations, np.ndarray)  # simulated environments have no Dict observations
        step = t % simulation.steps
        if step == 0:
            self._restored_actions = None
            noise = self._noise_of_rollout[t : t + simulation.steps]
            simulation.simulate(theta, noise, observations, self.is_compiled)
        elif self._restored_actions is not None and simulation.env.has_lookahead:
            self.log_probs = None if self._restored_log_probs is None else self._restored_log_probs[step]
            return self._restored_actions[step]
        self.log_probs = simulation.log_probs(step)
        return simulation.actions(observations, step)

    def step_within_episodes(self, t: int) -> StepOutcome | None:
        """Step the environment, if `simulated_actions` simulated step t; see `RolloutSimulator`."""
        simulation = self._simulation
        if simulation is None or self._restored_actions is not None:
            return None
        return simulation.step_within_episodes(t % simulation.steps)

    def take_steps(self, theta: Params) -> SimulatedRollout:
        """Act and step T times in the environment, which is simulated; see `RolloutSimulator`.

        Args:
            theta: packed θ.
        """
        simulation = self._simulation
        assert simulation is not None
        assert simulation.steps == self._n_steps
        self.start_rollout(simulation.env.num_envs)
        return simulation.take_steps(theta, self._noise_of_rollout, self.is_compiled)

    def simulated_rollout(self, last_observations: Arrays, statistics: Params) -> Rollout | None:
        """The rollout, if all of its steps were simulated; see `RolloutSimulator.rollout`."""
        if self._simulation is None:
            return None
        assert isinstance(last_observations, np.ndarray)
        return self._simulation.rollout(last_observations, statistics)

    def actions(self, theta: Params, observations: Observations, t: int) -> np.ndarray:
        """Actions `[B, ...]` of step t.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, on the device.
            t: index of the step in the rollout.
        """
        noise = self._noise_of_rollout[t] if self._exploration is None else self._exploration()
        act = self._act if self.is_compiled else self._act.eager
        with torch.no_grad():
            sampled = act(theta, observations, noise)
        self.log_probs = sampled.log_probs
        return sampled.actions.cpu().numpy()

    @property
    def _noise_of_rollout(self) -> Tensor:
        """`[T, B, ...]`, on the device."""
        if self._uploaded_noise is None:
            assert self._noise is not None
            self._uploaded_noise = upload(self._noise, self._device)
        return self._uploaded_noise

    @property
    def is_compiled(self) -> bool:
        """Whether the next rollout is compiled. The first is not, so that acting and updates compile at one time."""
        updates = self._updates()
        return updates > 0 and self.compilation.active_at(updates)

    def get_state(self) -> dict[str, Any]:
        """The noise generator, and the noise, simulated actions and their log-probabilities of the current rollout."""
        simulation = self._simulation
        simulated, log_probs = self._restored_actions, self._restored_log_probs
        if simulation is not None and simulation.current_actions is not None:
            simulated, log_probs = simulation.current_actions, simulation.current_log_probs
        return {
            "generator": self._rng,
            "noise": self._noise,
            "simulated_actions": simulated,
            "simulated_log_probs": log_probs,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `get_state`; only the generator between rollouts."""
        self._rng, self._noise, self._uploaded_noise = state["generator"], state.get("noise"), None
        self._restored_actions, self._restored_log_probs = (
            state.get(name) for name in ("simulated_actions", "simulated_log_probs")
        )
