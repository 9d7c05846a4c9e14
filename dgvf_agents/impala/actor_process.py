"""An actor: steps a vector environment and acts with a CPU copy of the policy. It knows nothing of Ray."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.utils import ConstantSchedule
from torch import Tensor

from dgvf_agents.agents.functional_policy import PolicyFunctions, answer_head, exploration_matrices
from dgvf_agents.core.acting import sample_actions
from dgvf_agents.core.distributions import ActionDistribution, distribution_for
from dgvf_agents.core.types import Observations, Params, Rollout, SampledActions
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.packing import KEY, Packing
from dgvf_agents.impala.environments import EnvFactory, wrapped
from dgvf_agents.impala.transport import Message, Parameters, pack
from dgvf_agents.rollout.actor import Actor
from dgvf_agents.rollout.builder import RolloutBuilder
from dgvf_agents.rollout.collector import Collector


@final
@dataclass(frozen=True)
class ActorSpec:
    """What actors are made of. Travels to other processes."""

    environment: EnvFactory
    """Makes the environments."""
    num_envs: int
    """Number of environments of one actor."""
    n_steps: int
    """T, steps of a rollout."""
    seed: int | None
    """Seed of the run; `None`: not seeded."""
    policy_class: type[ActorCriticPolicy]
    policy_kwargs: dict[str, Any]
    observation_space: gym.Space
    action_space: gym.Space
    use_sde: bool
    sde_sample_freq: int
    num_answers: int
    """Number of answers of the auxiliary task, which have parameters in θ."""
    mixed_precision: bool
    needs_final_observation: bool
    """See `RolloutBuilder`."""
    index_terminated: bool
    """See `RolloutBuilder`."""

    def policy(self) -> ActorCriticPolicy:
        """A new policy on the CPU."""
        spaces = (self.observation_space, self.action_space)
        kwargs = {**self.policy_kwargs, "use_sde": self.use_sde}
        return self.policy_class(*spaces, ConstantSchedule(0.0), **kwargs)

    def seeds(self, actor: int, incarnation: int) -> tuple[int | None, int | None]:
        """Seeds of the environments and of the actions, different for each incarnation of each actor."""
        if self.seed is None:
            return None, None
        environment, actions = np.random.SeedSequence([self.seed, actor, incarnation]).generate_state(2).tolist()
        return environment >> 1, actions  # Gymnasium adds indices to it


@final
class EnvironmentActor:
    """Collects rollouts, one a call."""

    def __init__(self, spec: ActorSpec, actor: int, incarnation: int) -> None:
        """
        Args:
            spec: what it is made of.
            actor: index of the actor.
            incarnation: how often it was replaced before.
        """
        self._spec, self._actor, self._incarnation = spec, actor, incarnation
        self._sequence = 0
        self._version: int | None = None
        self._theta: Params = {}
        environment_seed, action_seed = spec.seeds(actor, incarnation)
        _seed_torch(action_seed)
        self._env = wrapped(spec.environment, spec.num_envs, environment_seed)
        self._policy = spec.policy()
        self._functions = PolicyFunctions(
            self._policy, answer_head(self._policy, spec.num_answers), spec.mixed_precision
        )
        self._collector = self._new_collector()
        if action_seed is not None:
            self._collector.actor.seed(action_seed)
        self._observations: Any = self._env.reset()
        self._starts = np.ones(spec.num_envs, bool)

    def rollout(self, parameters: Parameters) -> Message:
        """The next T steps of all environments, with the policy of these parameters.

        Raises:
            Exception: whatever an environment raises.
        """
        self._take(parameters)
        collector, infos = self._collector, []
        collector.start(self._env, self._starts)
        starts = self._starts
        while collector.steps < self._spec.n_steps:
            _, self._observations, _, dones, step_infos = collector.advance(self._theta, self._observations, self._env)
            infos += [
                _of_episode(info) for info, done in zip(step_infos, dones, strict=True) if done or "episode" in info
            ]
            self._starts = dones
        rollout = collector.finish(self._functions.statistics())
        collector.end()
        return self._message(rollout, starts, infos)

    def _message(self, rollout: Rollout, starts: np.ndarray, infos: list[dict[str, Any]]) -> Message:
        packed = pack(rollout, self._spec.observation_space, starts, infos)
        assert self._version is not None
        sequence, self._sequence = self._sequence, self._sequence + 1
        return Message(self._actor, self._incarnation, sequence, self._version, packed)

    def _take(self, parameters: Parameters) -> None:
        """Act with these parameters. Another learner's may have the same version."""
        self._version, self._theta = parameters.version, {KEY: torch.tensor(parameters.theta)}
        self._functions.set_statistics({name: torch.tensor(array) for name, array in parameters.statistics.items()})
        if self._spec.use_sde:  # exploration matrices are drawn with the policy's own parameters
            self._functions.show(self._theta[KEY])

    def _new_collector(self) -> Collector:
        spec = self._spec
        distribution = distribution_for(spec.action_space, bool(spec.policy_kwargs.get("squash_output", False)))
        builder = RolloutBuilder(
            spec.n_steps,
            spec.num_envs,
            spec.observation_space,
            distribution.action_shape,
            distribution.action_dtype,
            needs_final_observation=spec.needs_final_observation,
            off_policy=True,
            index_terminated=spec.index_terminated,
        )
        act = partial(_act, Packing(self._functions.params()), self._functions, distribution)
        exploration = partial(exploration_matrices, self._policy) if spec.use_sde else None
        actor = Actor(act, distribution, spec.n_steps, Compilation(False), exploration=exploration)
        return Collector(builder, actor, self._policy, spec.n_steps, spec.sde_sample_freq)


def _seed_torch(seed: int | None) -> None:
    """Seed what draws exploration matrices. Without a seed, every new process would draw the same."""
    if seed is None:
        torch.seed()
    else:
        torch.manual_seed(seed)


def _act(
    packing: Packing,
    network: PolicyFunctions,
    distribution: ActionDistribution,
    theta: Params,
    observations: Observations,
    drawn: Tensor,
) -> SampledActions:
    """`sample_actions` with packed θ, and with log-probabilities."""
    return sample_actions(network, distribution, packing.unpack(theta), observations, drawn, True)


def _of_episode(info: dict[str, Any]) -> dict[str, Any]:
    """What Stable-Baselines3 reads of a finished episode."""
    return {name: info[name] for name in ("episode", "is_success") if name in info}
