"""Rollout collection, step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.rollout.actor import Actor
from dgvf_agents.rollout.builder import Arrays, RolloutBuilder
from dgvf_agents.rollout.checks import step
from dgvf_agents.storage.state import CollectionState

_EXPLORATION = ("exploration_mat", "exploration_matrices")
"""Exploration matrices of gSDE."""


class _SimulatedStep(NamedTuple):
    """A step, with the names of `RolloutBuilder`."""

    observations: Arrays
    actions: np.ndarray
    rewards: np.ndarray
    done: np.ndarray
    following: Arrays
    infos: list[dict[str, Any]]
    log_probs: Tensor | None


class Step(NamedTuple):
    """A source's last step, or its whole rollout; fields are named as Stable-Baselines3's locals."""

    actions: np.ndarray | None
    """`[B, *action]`, as sampled; `None` if actors elsewhere chose them."""
    new_obs: Arrays | None
    """`[B, *obs]`: the next observations; `None` if actors elsewhere keep them."""
    rewards: np.ndarray | None
    """`[B]`."""
    dones: np.ndarray
    """`[B]` boolean, or one for each info."""
    infos: list[dict[str, Any]]


class ExperienceSource(ABC):
    """Where rollouts of T steps come from.

    `start`, then `advance` until `steps` is T, then `finish` and `end`.
    """

    n_steps: int
    """T."""
    collecting: bool = False
    """Whether a rollout is unfinished."""
    has_news: bool = True
    """Whether the infos of the last `advance` may tell of an episode's end."""
    starts: np.ndarray | None = None
    """`[B]` boolean: whether an episode starts with the rollout."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of steps collected so far."""

    @abstractmethod
    def start(self, env: VecEnv, episode_starts: np.ndarray | None) -> None:
        """Start a rollout, unless one is unfinished.

        Args:
            env: the environment.
            episode_starts: `[B]` boolean: whether an episode starts with the rollout.
        """

    @abstractmethod
    def advance(self, theta: Params, observations: Arrays, env: VecEnv) -> Step:
        """Act and step, once or more.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, the current ones.
            env: the environment.

        Raises:
            ValueError: observations are not in the observation space, or not finite.
        """

    @abstractmethod
    def finish(self, statistics: Params) -> Rollout:
        """The rollout, after its last step.

        Args:
            statistics: running statistics that the policy used.
        """

    def end(self) -> None:
        """End the rollout; the next `start` starts a new one."""
        self.collecting = False


@final
class Collector(ExperienceSource):
    """Collects rollouts step by step. Its state can be saved and restored between any two steps."""

    def __init__(
        self, builder: RolloutBuilder, actor: Actor, policy: ActorCriticPolicy, n_steps: int, sde_sample_freq: int
    ) -> None:
        """
        Args:
            builder: builds rollouts of `n_steps` steps.
            actor: samples actions.
            policy: holds the exploration matrices of gSDE.
            n_steps: T.
            sde_sample_freq: steps between new exploration matrices of gSDE; -1: one per rollout.
        """
        self.actor, self.n_steps = actor, n_steps
        self._builder, self._policy, self._sde_sample_freq = builder, policy, sde_sample_freq
        self._simulated: list[_SimulatedStep] = []  # steps that the builder has not seen
        self._acted_on: Arrays | None = None  # observations of a simulated step that is not added yet
        self._use_sde, self._action_space = policy.use_sde, policy.action_space

    @property
    def steps(self) -> int:
        """Number of steps collected so far."""
        return self._builder.steps + len(self._simulated)

    def start(self, env: VecEnv, episode_starts: np.ndarray | None) -> None:
        self.actor.set_env(env)
        if self.collecting:
            return
        if self._builder.is_used:
            self._builder.clear()
        self._simulated, self._acted_on = [], None
        self.actor.start_rollout(env.num_envs)
        self.starts, self.collecting = episode_starts, True

    def advance(self, theta: Params, observations: Arrays, env: VecEnv) -> Step:
        actions = self._act(theta, observations, env)
        new_obs, rewards, dones, infos = self._step(actions, env)
        self._add(actions, rewards, dones, new_obs, infos)
        return Step(actions, new_obs, rewards, dones, infos)

    def _act(self, theta: Params, observations: Arrays, env: VecEnv) -> np.ndarray:
        """Sample actions `[B, ...]` for the next step."""
        t = self.steps
        simulated = self.actor.simulated_actions(theta, observations, t)
        if simulated is not None:
            self._acted_on = observations
            return simulated
        self._build_simulated_steps()
        check_observations(observations, env.observation_space)
        observed = self._builder.observe(observations)
        if self._use_sde and (t == 0 or (self._sde_sample_freq > 0 and t % self._sde_sample_freq == 0)):
            with torch.no_grad():
                self._policy.reset_noise(env.num_envs)
        return self.actor.actions(theta, observed, t)

    def _step(self, actions: np.ndarray, env: VecEnv) -> Any:
        """Step the environment with the actions that `_act` returned; returns what `env.step` returns."""
        outcome = None if self._acted_on is None else self.actor.step_within_episodes(self.steps)
        self.has_news = outcome is None
        if outcome is not None:
            return outcome
        return step(env, self.for_environment(actions))

    def for_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions `[B, *action]` for `env.step`; `Box` actions are unscaled or clipped to the bounds of the space."""
        space = self._action_space
        if isinstance(space, gym.spaces.Box):
            actions = actions.reshape(-1, *space.shape)
            squashed = self._policy.squash_output
            bounded = self._policy.unscale_action(actions) if squashed else np.clip(actions, space.low, space.high)
            return bounded.astype(space.dtype, copy=False)
        if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
            return actions.astype(space.dtype)
        return actions

    def _add(
        self,
        actions: np.ndarray,
        rewards: np.ndarray,
        dones: np.ndarray,
        new_obs: Arrays,
        infos: list[dict[str, Any]],
    ) -> None:
        """Add a step, as a `VecEnv` returns it."""
        log_probs = self.actor.log_probs
        if self._acted_on is None:
            self._builder.add(actions, rewards, dones, new_obs, infos, log_probs)
        else:
            self._simulated.append(_SimulatedStep(self._acted_on, actions, rewards, dones, new_obs, infos, log_probs))
            self._acted_on = None

    def _build_simulated_steps(self) -> None:
        """Let the builder see them: not all steps of the rollout are simulated, or someone wants to see its state."""
        for observations, *outcome in self._simulated:
            self._builder.observe(observations)
            self._builder.add(*outcome)  # type: ignore[arg-type]
        self._simulated = []

    def finish(self, statistics: Params) -> Rollout:
        if len(self._simulated) == self.n_steps:
            rollout = self.actor.simulated_rollout(self._simulated[-1].following, statistics)
            if rollout is not None:
                return rollout
        self._build_simulated_steps()
        return self._builder.build(statistics)

    def get_state(self) -> dict[str, Any]:
        """The generator of the actor's noise, and the rollout in progress: `generator` and `collection` of
        `TrainingState`.
        """
        self._build_simulated_steps()
        actor = self.actor.get_state()
        generator = actor.pop("generator")
        if not self.collecting:
            return {"generator": generator, "collection": None}
        steps = self._builder.get_state()
        return {
            "generator": generator,
            "collection": CollectionState(**steps, **actor, starts=self.starts, exploration=self.exploration),
        }

    def set_state(self, generator: np.random.Generator, collection: CollectionState | None) -> None:
        """Restore what `get_state` returned.

        Raises:
            ValueError: the rollout in progress is not one of as many steps and environments.
        """
        self.collecting, self.starts = collection is not None, None
        if collection is None:
            self.actor.set_state({"generator": generator})
            return
        state = collection._asdict()
        self._builder.set_state(state)
        self._simulated, self._acted_on, self.starts = [], None, collection.starts
        for name, matrix in collection.exploration.items():
            setattr(self._policy.action_dist, name, matrix)
        self.actor.set_state({"generator": generator, **state})

    @property
    def exploration(self) -> Params:
        """Exploration matrices of gSDE, by name; empty without."""
        if not self._use_sde:
            return {}
        return {name: getattr(self._policy.action_dist, name) for name in _EXPLORATION}


def check_observations(observations: Arrays, space: gym.Space) -> None:
    """Check the shape of observations `[B, *obs]`.

    Raises:
        ValueError: the shape differs from the space's.
    """
    if isinstance(space, gym.spaces.Dict):
        for name, inner in space.spaces.items():
            check_observations(observations[name], inner)
    elif observations.shape[1:] != space.shape:  # type: ignore[union-attr]
        shape = observations.shape[1:]  # type: ignore[union-attr]
        raise ValueError(f"observations must have shape {space.shape}, got {shape} from the environment")
