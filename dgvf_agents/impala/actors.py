"""Actors, which know nothing of Ray: they make their environments and act with a CPU copy of the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.utils import ConstantSchedule
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.collecting import Collector
from dgvf_agents.agents.functional_policy import PolicyFunctions, answer_head
from dgvf_agents.core.distributions import distribution_for
from dgvf_agents.core.networks import sample_actions
from dgvf_agents.core.types import Observations, Params, SampledActions
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.packing import KEY, Packing
from dgvf_agents.impala.transport import PackedRollout, Parameters, pack
from dgvf_envs.sb3_adapter import make_vec

EnvFactory = Callable[[int, "int | None"], "VecEnv | VectorEnv"]
"""`(num_envs, seed) -> environment`: makes a vector environment, in another process too."""


@final
@dataclass(frozen=True)
class EnvById:
    """Makes environments of a registered id."""

    env_id: str
    """`"module:Id-v0"` imports the module first."""

    def __call__(self, num_envs: int, seed: int | None) -> VecEnv:
        return make_vec(self.env_id, num_envs, seed)


def factory_of(env: Any, actors: int) -> EnvFactory:
    """The function that makes the environments of actors.

    Args:
        env: an environment id, or a factory.
        actors: number of actors, for the message.

    Raises:
        ValueError: `env` is a live environment, which cannot be sent to another process.
    """
    if isinstance(env, RemoteEnvs):
        return env.factory
    if isinstance(env, str):
        return EnvById(env)
    if callable(env) and not isinstance(env, gym.Env | VectorEnv | VecEnv):
        return env
    raise ValueError(
        f"env must be an environment id or a function (num_envs, seed) -> vector environment for actors = {actors}, "
        f"because actors make their environments themselves; got {env!r}"
    )


def wrapped(factory: EnvFactory, num_envs: int, seed: int | None) -> VecEnv:
    """An environment with the wrappers that an algorithm gives it.

    Raises:
        ValueError: `factory` returned something else than a vector environment of this size.
    """
    env = factory(num_envs, seed)
    if not isinstance(env, VecEnv | VectorEnv) or env.num_envs != num_envs:
        raise ValueError(f"env must return a vector environment of num_envs = {num_envs} environments, got {env!r}")
    made = DiscoveryAlgorithm._wrap_env(env)  # type: ignore[arg-type]
    if seed is not None:
        made.seed(seed)
    return made


@final
@dataclass(frozen=True)
class ActorSpec:
    """Constructor arguments of actors; sent to other processes."""

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
            incarnation: another for each process that acts for this index.
        """
        self._spec = spec
        environment_seed, action_seed = spec.seeds(actor, incarnation)
        # Exploration matrices are drawn by PyTorch; without a seed, every new process would draw the same.
        torch.seed() if action_seed is None else torch.manual_seed(action_seed)
        self._env = wrapped(spec.environment, spec.num_envs, environment_seed)
        self._policy = spec.policy_class(
            spec.observation_space, spec.action_space, ConstantSchedule(0.0), use_sde=spec.use_sde, **spec.policy_kwargs
        )
        self._functions = PolicyFunctions(
            self._policy, answer_head(self._policy, spec.num_answers), spec.mixed_precision
        )
        distribution = distribution_for(spec.action_space, self._policy.squash_output)
        packing, network = Packing(self._functions.params()), self._functions

        def act(theta: Params, observations: Observations, drawn: Tensor) -> SampledActions:
            return sample_actions(network, distribution, packing.unpack(theta), observations, drawn, True)

        self._collector = Collector(
            self._policy,
            act,
            distribution,
            Compilation(False),
            n_steps=spec.n_steps,
            num_envs=spec.num_envs,
            sde_sample_freq=spec.sde_sample_freq,
            off_policy=True,
            needs_final_observation=spec.needs_final_observation,
            index_terminated=False,  # the learner's batch has positions of its own
        )
        if action_seed is not None:
            self._collector.seed(action_seed)
        self._observations: Any = self._env.reset()
        self._starts = np.ones(spec.num_envs, bool)

    def rollout(self, parameters: Parameters) -> PackedRollout:
        """The next T steps of all environments, with the policy of these parameters.

        Raises:
            Exception: whatever an environment raises.
        """
        theta = {KEY: torch.tensor(parameters.theta)}  # another learner's may have the same version
        self._functions.set_statistics({name: torch.tensor(array) for name, array in parameters.statistics.items()})
        if self._spec.use_sde:  # exploration matrices are drawn with the policy's own parameters
            self._functions.show(theta[KEY])
        collector, starts, infos = self._collector, self._starts, list[dict[str, Any]]()
        collector.start(self._env, starts)
        while collector.steps < self._spec.n_steps:
            step = collector.advance(theta, self._observations, self._env)
            for info, done in zip(step.infos, step.dones, strict=True):
                if done or "episode" in info:
                    infos.append({name: info[name] for name in ("episode", "is_success") if name in info})
            self._observations, self._starts = step.new_obs, step.dones
        rollout = collector.finish(self._functions.statistics())
        collector.end()
        return pack(rollout, self._spec.observation_space, parameters.version, starts, infos)


@final
class RemoteEnvs(VecEnv):
    """Stands for the environments of a batch, which live in actors. It has their spaces, and cannot be stepped."""

    def __init__(self, factory: EnvFactory, num_envs: int) -> None:
        """
        Args:
            factory: makes environments; called once here, for their spaces.
            num_envs: trajectories of a batch.

        Raises:
            ValueError: see `wrapped`; or it is a `VecNormalize`, which does not share its statistics.
        """
        self.factory = factory
        env = wrapped(factory, 1, None)
        if unwrap_vec_normalize(env) is not None:
            env.close()
            raise ValueError(
                "env must not be a VecNormalize for actors: each would have its own statistics; normalize in a wrapper "
                "of each environment, with statistics that are fixed"
            )
        super().__init__(num_envs, env.observation_space, env.action_space)
        env.close()

    def reset(self) -> Any:
        """Zeros, for Stable-Baselines3."""
        return create_empty_array(self.observation_space, self.num_envs)

    def _elsewhere(self, *arguments: Any, **settings: Any) -> Any:
        raise AttributeError(f"environments of actors cannot be reached by the learner, got {arguments}: call learn()")

    step_async = step_wait = set_attr = env_method = _elsewhere

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs if attr_name == "render_mode" else self._elsewhere(attr_name)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: Any = None) -> list[bool]:
        """They are monitored."""
        return [True] * len(list(self._get_indices(indices)))

    def close(self) -> None:
        pass

    def get_state(self) -> dict[str, Any]:
        """Nothing: actors keep their episodes, or start new ones."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what `get_state` returned."""
