"""Simulated rollouts: several steps of policy and environment in one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.core.types import Params
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_envs.functional.simulation import SimulatedRollout, simulate_rollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

MAX_STEPS = 8
"""Maximum number of steps in one compiled function. Longer functions take more time to compile than they save."""

Act = Callable[[Params, Tensor, Tensor], Tensor]
"""`(θ, observations, noise) -> actions`: samples actions `[B]` for observations `[B, *obs]` with noise `[B, ...]`."""


@final
class RolloutSimulator:
    """Simulates the next steps of an environment and returns their actions; the environment caches the outcomes.

    The environment's noise and the policy's noise are drawn beforehand, and nothing else is random. The steps are
    therefore identical to those of acting and stepping in turn.
    """

    def __init__(self, act: Act, env: DynamicsVectorEnv, n_steps: int, compilation: Compilation) -> None:
        """
        Args:
            act: samples actions.
            env: the environment, as returned by `simulated_world`.
            n_steps: T ≥ 1, steps of a rollout.
            compilation: of the model; has the device of θ.
        """
        self.env = env
        self.steps = max(s for s in range(1, MAX_STEPS + 1) if n_steps % s == 0)
        self._device = compilation.device
        world, limit = env.dynamics.on(torch, dtype=torch.float64, device=self._device), env.max_episode_steps

        def simulate(
            theta: Params, noise: Tensor, state: tuple, elapsed: Tensor, numbers: Tensor, cursor: Tensor
        ) -> SimulatedRollout:
            def actions(observations: Tensor, t: int) -> Tensor:
                return act(theta, observations, noise[t])

            return simulate_rollout(world, actions, state, elapsed, numbers, cursor, len(noise), limit)

        self._simulate = Compiled(simulate, compilation)

    def actions(
        self, theta: Params, noise: Tensor, observations: np.ndarray, compiled: bool = True
    ) -> np.ndarray | None:
        """Simulate the next `steps` steps.

        Args:
            theta: packed θ.
            noise: `[steps, B, ...]`, of the policy.
            observations: `[B, *obs]`, the latest ones.
            compiled: whether to use the compiled function. An eager one is slower than acting step by step.

        Returns:
            actions `[steps, B]`, or `None` if the observations are not those of the environment's current state:
            something else stepped or reset it, and the agent must act on the observations it has.
        """
        state, *streams = self.env.lookahead_inputs(self.steps)
        if not np.array_equal(self.env.dynamics.observe(state), observations):
            return None
        state = type(state)(*map(self._tensor, state))
        simulate = self._simulate if compiled else self._simulate.eager
        with torch.no_grad():
            rollout = simulate(theta, noise, state, *map(self._tensor, streams))
        states = type(state)(*map(_array, rollout.states))
        simulated = SimulatedRollout(*(states if part is rollout.states else _array(part) for part in rollout))
        self.env.set_lookahead(simulated)
        return simulated.actions

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def simulated_world(env: VecEnv) -> DynamicsVectorEnv | None:
    """The environment to simulate behind a `VecEnv`.

    Returns:
        the environment, or `None` if it is not one of `dgvf_envs` or if a wrapper may change actions or observations.
    """
    while type(env) is VecMonitor:
        env = env.venv
    inner = env.env if isinstance(env, GymnasiumVecEnv) else None
    return inner if isinstance(inner, DynamicsVectorEnv) and inner.supports_lookahead else None
