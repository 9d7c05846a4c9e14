"""Rollouts of environments that are simulated: several steps of policy and environment in one compiled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import Experience, joined
from dgvf_agents.rollout.builder import bootstrap_positions
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

MAX_STEPS = 8
"""Maximum number of steps in one compiled function. Longer functions take more time to compile than they save."""


class StepOutcome(NamedTuple):
    """The result of `VecEnv.step`."""

    observations: np.ndarray
    rewards: np.ndarray
    dones: np.ndarray
    infos: list[dict[str, Any]]


@final
class RolloutSimulator:
    """Simulates the next steps of an environment; the environment caches the outcomes.

    The environment's noise and the policy's noise are drawn beforehand, and nothing else is random. The steps are
    therefore identical to acting and stepping in turn.
    """

    def __init__(
        self,
        fused: Callable[..., tuple[SimulatedRollout, Experience, Tensor]],
        env: DynamicsVectorEnv,
        n_steps: int,
        compilation: Compilation,
        monitors: Sequence[VecMonitor] = (),
        index_terminated: bool = False,
    ) -> None:
        """
        Args:
            fused: acts and steps, with the arguments of `FusedSteps`.
            env: the environment, as returned by `simulated_world`.
            n_steps: T ≥ 1, steps of a rollout.
            compilation: of the model; has the device of θ.
            monitors: wrappers of the environment.
            index_terminated: whether `Rollout.bootstrap_index` includes final observations of terminated episodes.
        """
        self._index_terminated = index_terminated
        self.env, self.monitors = env, tuple(monitors)
        self.steps = max(s for s in range(1, MAX_STEPS + 1) if n_steps % s == 0)
        self._n_steps, self._device = n_steps, compilation.device
        self._fused = Compiled(fused, compilation)
        self._array: Callable[[Tensor], np.ndarray] = Tensor.numpy if self._device.type == "cpu" else _downloaded
        self._outcomes: list[SimulatedRollout] = []  # of the `steps` steps simulated last
        self._latest: SimulatedRollout | None = None  # the last of the steps that were ever simulated
        self._rewards = np.empty(0, np.float32)  # `[steps, B]`
        self._log_probs: Tensor | None = None  # `[steps, B]`, of their actions
        self._episode_ends: list[bool] = []  # whether an episode ends in each of them
        self._parts: list[Experience] = []
        self._has_ends = False  # whether an episode ends in the rollout
        self._usual_positions: tuple[Tensor, Tensor] | None = None

    def start_rollout(self) -> None:
        """Forget all simulated steps."""
        self._outcomes, self._parts, self._has_ends = [], [], False

    def simulate(self, theta: Params, noise: Tensor, observations: np.ndarray, compiled: bool = True) -> bool:
        """Simulate the next `steps` steps.

        Args:
            theta: packed θ.
            noise: `[steps, B, ...]`, of the policy.
            observations: `[B, *obs]`, the latest ones.
            compiled: whether to use the compiled function. An eager one is slower than acting step by step.

        Returns:
            whether they were: false, if the observations do not belong to the environment's current state. Something
            else stepped or reset it then, and the agent must act on the observations it has.
        """
        inputs = self.env.lookahead_inputs(self.steps)
        if not self._is_current(inputs[0], observations):
            self.start_rollout()
            return False
        simulated, experience, finite = self._simulated(theta, noise, inputs, compiled)
        self._outcomes = self.env.set_lookahead(simulated)
        self._latest, self._rewards = self._outcomes[-1], simulated.rewards.astype(np.float32)
        self._episode_ends = (simulated.terminated | simulated.truncated).any(1).tolist()
        self._has_ends |= any(self._episode_ends)
        self._log_probs = experience.behavior_log_probs
        if bool(finite):
            self._parts.append(experience)
        return True

    def _is_current(self, state: Any, observations: np.ndarray) -> bool:
        """Whether observations belong to the environment's current state."""
        latest = self._latest
        if latest is not None and state is latest.states and observations is latest.observations:
            return True
        return np.array_equal(self.env.dynamics.observe(state), observations)

    def take_steps(self, theta: Params, noise: Tensor, compiled: bool = True) -> SimulatedRollout:
        """Simulate the next `steps` steps and take them all at once. Monitors do not see them.

        Args:
            theta: packed θ.
            noise: `[steps, B, ...]`, of the policy.
            compiled: whether to use the compiled function.
        """
        self.start_rollout()
        simulated, _, _ = self._simulated(theta, noise, self.env.lookahead_inputs(self.steps), compiled)
        self.env.take_steps(simulated)
        return simulated

    def _simulated(
        self, theta: Params, noise: Tensor, inputs: tuple[Any, ...], compiled: bool
    ) -> tuple[SimulatedRollout, Experience, Tensor]:
        """The steps from `inputs` on in NumPy, the learner's view of them, and whether all of it is finite."""
        state = type(inputs[0])(*map(self._tensor, inputs[0]))
        fused = self._fused if compiled else self._fused.eager
        with torch.no_grad():
            rollout, experience, finite = fused(theta, noise, state, *map(self._tensor, inputs[1:]))
        actions, states, *others = rollout
        simulated = SimulatedRollout(
            self._array(actions), type(state)(*map(self._array, states)), *map(self._array, others)
        )
        return simulated, experience, finite

    def actions(self, observations: np.ndarray, t: int) -> np.ndarray | None:
        """Simulated actions `[B]`.

        Args:
            observations: `[B, *obs]`, the latest ones.
            t: step of the simulated ones.

        Returns:
            the actions, or `None` if the steps are not simulated or something else stepped or reset the environment.
        """
        expected = self._outcomes and (t == 0 or observations is self._outcomes[t - 1].observations)
        if not (expected and self.env.has_lookahead):
            self.start_rollout()
            return None
        return self._outcomes[t].actions

    def log_probs(self, t: int) -> Tensor | None:
        """`[B]`: log-probabilities of the actions that `actions` returned for step t, if the policy gives them."""
        return None if self._log_probs is None else self._log_probs[t]

    def step_within_episodes(self, t: int) -> StepOutcome | None:
        """Step the environment and its monitors, if `actions` returned step t's actions and no episode ends in it.

        The same as `env.step` of the outermost monitor, in a fraction of the time.
        """
        if self._episode_ends[t]:
            return None
        simulated, rewards = self.step(t), self._rewards[t]
        for monitor in self.monitors:
            monitor.episode_returns += rewards
            monitor.episode_lengths += 1
        infos = [{"is_success": False, "TimeLimit.truncated": False} for _ in range(self.env.num_envs)]
        return StepOutcome(simulated.observations, rewards, simulated.terminated, infos)

    def step(self, t: int) -> SimulatedRollout:
        """Step the environment with the simulated actions of step t; returns the step, without the time axis."""
        simulated = self.env.simulated_step(self._outcomes[t].actions)
        assert simulated is not None
        return simulated

    @property
    def current_actions(self) -> np.ndarray | None:
        """`[steps, B]`: the actions simulated last, whether or not they were taken since."""
        return np.stack([outcome.actions for outcome in self._outcomes]) if self._outcomes else None

    @property
    def current_log_probs(self) -> Tensor | None:
        """`[steps, B]`: the log-probabilities of `current_actions`, if the policy gives them."""
        return self._log_probs if self._outcomes else None

    def rollout(self, last_observations: np.ndarray, statistics: Params) -> Rollout | None:
        """The rollout, if all of its steps were simulated and everything in it is finite.

        Args:
            last_observations: `[B, *obs]`, the latest ones.
            statistics: `Rollout.statistics`.
        """
        parts = self.experience(last_observations)
        if parts is None:
            return None
        whole = joined(parts)
        index, slot = self._bootstrap_positions(whole)
        given = {**whole._asdict(), "bootstrap_index": index, "bootstrap_slot": slot}
        return Rollout(**given, statistics=statistics)

    def experience(self, last_observations: np.ndarray) -> list[Experience] | None:
        """The rollout's parts of `steps` steps, if all of its steps were simulated and everything in it is finite.

        Args:
            last_observations: `[B, *obs]`, the latest ones.
        """
        unfinished = len(self._parts) * self.steps < self._n_steps
        return None if unfinished or last_observations is not self._outcomes[-1].observations else self._parts

    def _bootstrap_positions(self, whole: Experience) -> tuple[Tensor, Tensor]:
        """`bootstrap_positions` on the device; those without ends of episodes are always the same."""
        if not self._has_ends and self._usual_positions is not None:
            return self._usual_positions
        ends = whole.truncated | whole.terminated if self._index_terminated else whole.truncated
        index, slot = bootstrap_positions(self._array(ends))
        positions = upload(index, self._device), upload(slot, self._device)
        if not self._has_ends:
            self._usual_positions = positions
        return positions

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)


def _downloaded(tensor: Tensor) -> np.ndarray:
    return tensor.numpy(force=True)


def simulated_world(env: VecEnv) -> tuple[DynamicsVectorEnv, list[VecMonitor]] | None:
    """The environment to simulate behind a `VecEnv`.

    Returns:
        the environment and its monitors, or `None` if it is not one of `dgvf_envs` or if a wrapper may change actions
        or observations.
    """
    monitors = []
    while type(env) is VecMonitor:
        monitors.append(env)
        env = env.venv
    inner = env.env if isinstance(env, GymnasiumVecEnv) else None
    return (inner, monitors) if isinstance(inner, DynamicsVectorEnv) and inner.supports_lookahead else None
