"""Sources of experience, and the one that steps environments: the next actions, the steps, and their rollout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from multiprocessing import connection
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper
from torch import Tensor

from dgvf_agents.agents.functional_policy import exploration_matrices
from dgvf_agents.agents.rollout import Arrays, RolloutBuilder, Step
from dgvf_agents.agents.simulation import Actor
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.storage.state import CollectionState
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec, resetting_in_part

_EXPLORATION = ("exploration_mat", "exploration_matrices")
"""Exploration matrices of gSDE."""


class RolloutCallback(BaseCallback):
    """A callback that does not look at single steps, so that whole rollouts may be simulated at once."""

    def _on_step(self) -> bool:
        return True


def looks_at_steps(callback: BaseCallback) -> bool:
    """Whether a callback does something at every step."""
    if type(callback) is CallbackList:
        return any(map(looks_at_steps, callback.callbacks))
    if type(callback) is ConvertCallback:
        return callback.callback is not None
    own = type(callback)
    return own._on_step is not RolloutCallback._on_step or own.on_step is not BaseCallback.on_step


class ExperienceSource(ABC):
    """Where rollouts of T steps come from.

    `start`, then `advance` until `steps` is T, then `finish` and `end`.
    """

    n_steps: int
    """T."""
    collecting: bool = False
    """Whether a rollout is unfinished."""
    starts: np.ndarray | None = None
    """`[B]` boolean: whether an episode starts with the rollout."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of steps collected so far."""

    @abstractmethod
    def start(self, env: VecEnv, episode_starts: np.ndarray | None, stepwise: bool = True) -> None:
        """Start a rollout, unless one is unfinished.

        Args:
            env: the environment.
            episode_starts: `[B]` boolean: whether an episode starts with the rollout.
            stepwise: whether `advance` must not collect more than one step of each environment.
        """

    @abstractmethod
    def advance(self, theta: Params, observations: Arrays, env: VecEnv) -> Step:
        """Act and step: once, or as often as the source likes if it need not be `stepwise`.

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
        self._simulated: list[tuple[Arrays, Step, Tensor | None]] = []  # steps that the builder has not seen
        self._whole = False  # whether the rollout may be simulated at once
        self._taken: np.ndarray | None = None  # the observations after a rollout that was
        self._acted_on: Arrays | None = None  # observations of a simulated step that is not added yet
        self._use_sde, self._action_space = policy.use_sde, policy.action_space

    @property
    def steps(self) -> int:
        return self.n_steps if self._taken is not None else self._builder.steps + len(self._simulated)

    def start(self, env: VecEnv, episode_starts: np.ndarray | None, stepwise: bool = True) -> None:
        self.actor.set_env(env)
        self._whole = not (stepwise or self.collecting)
        if self.collecting:
            return
        if self._builder.is_used:
            self._builder.clear()
        self._simulated, self._acted_on, self._taken = [], None, None
        self.actor.start_rollout(env.num_envs)
        self.starts, self.collecting = episode_starts, True

    def advance(self, theta: Params, observations: Arrays, env: VecEnv) -> Step:
        if self._whole:
            self._whole = False
            whole = self.actor.take_rollout(theta, observations)
            if whole is not None:
                self._taken = whole.new_obs  # type: ignore[assignment]
                return whole
        actions = self._act(theta, observations, env)
        step = self._step(actions, env)
        if self._acted_on is None:
            self._builder.add(step, self.actor.log_probs)
        else:
            self._simulated.append((self._acted_on, step, self.actor.log_probs))
            self._acted_on = None
        return step

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
        if self._use_sde:  # twice at the first step, as Stable-Baselines3 draws
            for _ in range((t == 0) + (self._sde_sample_freq > 0 and t % self._sde_sample_freq == 0)):
                with torch.no_grad():
                    self._policy.reset_noise(env.num_envs)
        return self.actor.actions(theta, observed, t)

    def _step(self, actions: np.ndarray, env: VecEnv) -> Step:
        """Step the environment with the actions that `_act` returned."""
        outcome = None if self._acted_on is None else self.actor.step_within_episodes(self.steps)
        if outcome is not None:
            return Step(actions, *outcome, [])  # type: ignore[arg-type]
        new_obs, rewards, dones, infos = step_watched(env, self.for_environment(actions))
        return Step(actions, new_obs, rewards, dones, infos, [(infos, dones)])  # type: ignore[arg-type]

    def for_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions `[B, *action]` for `env.step`; `Box` actions are unscaled or clipped to the bounds of the space."""
        space = self._action_space
        if isinstance(space, gym.spaces.Box):
            actions = actions.reshape(-1, *space.shape)
            squashed = self._policy.squash_output
            bounded = self._policy.unscale_action(actions) if squashed else np.clip(actions, space.low, space.high)
            return bounded.astype(space.dtype, copy=False)
        return actions.astype(space.dtype, copy=False)

    def _build_simulated_steps(self) -> None:
        """Let the builder see them: not all steps of the rollout are simulated, or someone wants to see its state."""
        for observations, step, log_probs in self._simulated:
            self._builder.observe(observations)
            self._builder.add(step, log_probs)
        self._simulated = []

    def finish(self, statistics: Params) -> Rollout:
        last = self._taken
        if len(self._simulated) == self.n_steps:
            last = self._simulated[-1][1].new_obs  # type: ignore[assignment]
        rollout = None if last is None else self.actor.simulated_rollout(last, statistics)
        if rollout is not None:
            return rollout
        self._build_simulated_steps()
        return self._builder.build(statistics)

    def get_state(self) -> dict[str, Any]:
        """The generator of the actor's noise, and the rollout in progress: `generator` and `collection` of
        `TrainingState`.
        """
        self._build_simulated_steps()
        if self._taken is not None and self.collecting:
            whole = self.actor.simulated_rollout(self._taken, {})
            assert whole is not None
            self._builder.set_rollout(whole, self._taken)
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
        self._simulated, self._acted_on, self._taken, self.starts = [], None, None, collection.starts
        for name, matrix in collection.exploration.items():
            setattr(self._policy.action_dist, name, matrix)
        self.actor.set_state({"generator": generator, **state})

    @property
    def exploration(self) -> Params:
        """Exploration matrices of gSDE, by name; empty without."""
        if not self._use_sde:
            return {}
        return {name: getattr(self._policy.action_dist, name) for name in _EXPLORATION}


def collector_of(
    policy: ActorCriticPolicy,
    act: Act,
    distribution: ActionDistribution,
    compilation: Compilation,
    updates: Callable[[], int] = lambda: 0,
    *,
    n_steps: int,
    num_envs: int,
    sde_sample_freq: int,
    off_policy: bool,
    needs_final_observation: bool,
    index_terminated: bool,
) -> Collector:
    """A collector with its parts; see `RolloutBuilder`, `Actor` and `Collector`."""
    builder = RolloutBuilder(
        n_steps,
        num_envs,
        policy.observation_space,
        distribution.action_shape,
        distribution.action_dtype,
        compilation.device,
        needs_final_observation,
        off_policy,
        index_terminated,
    )
    exploration = partial(exploration_matrices, policy) if policy.use_sde else None
    actor = Actor(act, distribution, n_steps, compilation, updates, exploration, index_terminated)
    return Collector(builder, actor, policy, n_steps, sde_sample_freq)


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


def step_watched(env: VecEnv, actions: np.ndarray) -> VecEnvStepReturn:
    """`env.step(actions)`, but raise if a worker of a `SubprocVecEnv` died instead of waiting forever.

    Raises:
        RuntimeError: a worker died; the message names the worker and its exit code.
    """
    workers = _workers(env)
    if workers is None:
        return env.step(actions)
    try:
        env.step_async(actions)
        _wait_for(workers)
        return env.step_wait()
    except (EOFError, ConnectionError) as error:
        raise _death(workers) from error


def _workers(env: Any) -> SubprocVecEnv | None:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, SubprocVecEnv) else None


def _wait_for(workers: SubprocVecEnv) -> None:
    """Wait until every worker has answered or one has died.

    The pipe of a dead worker may stay open, since other workers may have inherited it. Sentinels always report a death.
    """
    sentinels = [process.sentinel for process in workers.processes]
    waiting: list[Any] = list(workers.remotes)
    while waiting:
        ready = connection.wait([*waiting, *sentinels])
        if any(sentinel in ready for sentinel in sentinels):
            raise _death(workers)
        waiting = [remote for remote in waiting if remote not in ready]


def _death(workers: SubprocVecEnv) -> RuntimeError:
    workers.waiting = False  # close() must not wait for an answer
    dying = connection.wait([process.sentinel for process in workers.processes], timeout=5.0)
    for process in workers.processes:
        if process.sentinel in dying:
            process.join(timeout=5.0)  # for its exit code
    ended = [f"worker {i} (exit code {p.exitcode})" for i, p in enumerate(workers.processes) if not p.is_alive()]
    return RuntimeError(
        f"{', '.join(ended) or 'a worker'} of the SubprocVecEnv died during a step; see its output for the cause. "
        "The model is in its state after the last update: save it, or continue from a checkpoint with a new environment"
    )


def as_vec_env(env: GymEnv | VectorEnv | None) -> GymEnv | None:
    """A vector environment for Stable-Baselines3, monitored; others as they are."""
    if not isinstance(env, VectorEnv):
        return env
    adapted = GymnasiumVecEnv(resetting_in_part(env))
    is_monitored = adapted.env_is_wrapped(Monitor)[0]  # its environments may be
    return adapted if is_monitored else VecMonitor(adapted)


def num_envs_of(env: GymEnv | VectorEnv | str | None) -> int | None:
    """The number of environments; `None` if no environment exists yet."""
    if env is None or isinstance(env, str):
        return None
    return env.num_envs if isinstance(env, VecEnv | VectorEnv) else 1


def made_env(
    env: GymEnv | VectorEnv | str | None, n_envs: int | None, seed: int | None, default: Callable[[str], int]
) -> GymEnv | None:
    """The environment, made if `env` is an id; `default` is the number of environments of an id."""
    given_envs = num_envs_of(env)
    if n_envs is not None and given_envs is not None and n_envs != given_envs:
        raise ValueError(f"n_envs must be None or {given_envs}, the number of environments of env, got {n_envs!r}")
    if isinstance(env, str):
        wanted = default(env) if n_envs is None else n_envs
        env = make_vec(env, wanted, seed) if wanted > 1 else env
    return as_vec_env(env)  # type: ignore[arg-type]
