"""Acting and stepping a world of ours several steps at once, in one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.core.types import Params
from dgvf_agents.execution.compiling import Compiled
from dgvf_envs.functional.simulation import SimulatedRollout, simulate_rollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

MOST_STEPS = 8
"""Steps that one compiled function takes at most; more of them take longer to compile than they save."""

Act = Callable[[Params, Tensor, Tensor], Tensor]
"""Actions `[B]` of an agent with parameters θ for observations `[B, *obs]`, drawn with noise `[B, ...]`."""


@final
class ActingAhead:
    """Actions for the coming steps, drawn with the outcome of each in view; the environment is told what to expect.

    Only the world's noise and the agent's are random, and both are drawn beforehand: the steps are those that acting
    and stepping in turn would take.
    """

    def __init__(
        self, act: Act, env: DynamicsVectorEnv, n_steps: int, device: torch.device, compile: bool = True
    ) -> None:
        """
        Args:
            act: the agent.
            env: the environment; it must support lookahead.
            n_steps: T, the steps of a rollout ≥ 1.
            device: where the agent is.
            compile: whether the function is compiled; it is slower than acting step by step otherwise, and equal.
        """
        self.env = env
        self.steps = max(s for s in range(1, MOST_STEPS + 1) if n_steps % s == 0)
        self._device = device
        world, limit = env.dynamics.on(torch, dtype=torch.float64, device=device), env.max_episode_steps

        def ahead(
            theta: Params, noise: Tensor, state: tuple, elapsed: Tensor, numbers: Tensor, cursor: Tensor
        ) -> SimulatedRollout:
            def actions(observations: Tensor, t: int) -> Tensor:
                return act(theta, observations, noise[t])

            return simulate_rollout(world, actions, state, elapsed, numbers, cursor, len(noise), limit)

        self._ahead = Compiled(ahead, compile, device)

    def actions(self, theta: Params, noise: Tensor, observations: np.ndarray) -> np.ndarray | None:
        """Actions `[steps, B]` for the next `steps` steps, drawn with noise `[steps, B, ...]`.

        `None` where the environment does not stand where these observations `[B, *obs]` were made: something else has
        moved it since, and the agent, who knows no better, acts on what it saw.
        """
        state, *streams = self.env.lookahead_inputs(self.steps)
        if not np.array_equal(self.env.dynamics.observe(state), observations):
            return None
        state = type(state)(*map(self._tensor, state))
        with torch.no_grad():
            rollout = self._ahead(theta, noise, state, *map(self._tensor, streams))
        states = type(state)(*map(_array, rollout.states))
        simulated = SimulatedRollout(*(states if part is rollout.states else _array(part) for part in rollout))
        self.env.set_lookahead(simulated)
        return simulated.actions

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def foreseeable(env: VecEnv) -> DynamicsVectorEnv | None:
    """The world of ours behind a `VecEnv` that passes actions and observations on; `None` if there is none."""
    while type(env) is VecMonitor:
        env = env.venv
    inner = env.env if isinstance(env, GymnasiumVecEnv) else None
    return inner if isinstance(inner, DynamicsVectorEnv) and inner.supports_lookahead else None
