"""Sources of experience, and the one that steps environments: the next actions, the steps, and their rollout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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

from dgvf_agents.agents.rollout import Arrays, RolloutBuilder, Step
from dgvf_agents.agents.simulation import MAX_STEPS, SimulatedEpisodes, Simulation, simulated_world
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.metrics import check_finite
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import FusedSteps
from dgvf_agents.storage.state import CollectionState
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec, resetting_in_part

_EXPLORATION = ("exploration_mat", "exploration_matrices")
"""Exploration matrices of gSDE."""


class RolloutCallback(BaseCallback):
    """A callback that does not look at single steps, so that whole rollouts may be simulated at once.

    Its `on_step` is called once for each of these.
    """

    def _on_step(self) -> bool:
        return True


def looks_at_steps(callback: BaseCallback) -> bool:
    """Whether a callback may do something at every step."""
    if type(callback) is CallbackList:
        return any(map(looks_at_steps, callback.callbacks))
    if type(callback) is ConvertCallback:
        return callback.callback is not None
    return not isinstance(callback, RolloutCallback)


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
    """Acts and steps: step by step, or whole rollouts at once where the environment is simulated.

    The noise of a rollout's actions is drawn at its start. Its state can be saved and restored between any two steps.
    """

    def __init__(
        self,
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
    ) -> None:
        """
        Args:
            policy: has the spaces, and the exploration matrices of gSDE, which replace the noise.
            act: samples actions.
            distribution: of the actions; draws the noise.
            compilation: which rollouts are compiled, and the device of θ. Environments are simulated only if rollouts
                are, now or later: NumPy is faster otherwise.
            updates: returns the number of updates so far.
            n_steps: T.
            num_envs: B.
            sde_sample_freq: steps between new exploration matrices of gSDE; -1: one per rollout.
            off_policy: see `RolloutBuilder`.
            needs_final_observation: see `RolloutBuilder`.
            index_terminated: see `RolloutBuilder`.
        """
        self._builder = RolloutBuilder(
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
        self.n_steps, self._policy, self._sde_sample_freq = n_steps, policy, sde_sample_freq
        self._plain_act, self._act, self._index_terminated = act, Compiled(act, compilation), index_terminated
        self._distribution, self._compilation, self._updates = distribution, compilation, updates
        self._rng = np.random.default_rng()
        self._noise: np.ndarray | None = None
        self._uploaded_noise: Tensor | None = None
        self._simulation: Simulation | None = None
        self._whole = False  # whether the rollout may be simulated at once
        self._taken: np.ndarray | None = None  # the observations after a rollout that was

    def seed(self, seed: int) -> None:
        """Seed the noise of the next rollouts."""
        self._rng = np.random.default_rng(seed)

    def draw_noise(self, num_envs: int) -> np.ndarray:
        """`[T, B, ...]`: the noise of the next rollout, for others that collect it in this collector's place."""
        return self._distribution.draw_noise(self._rng, self.n_steps, num_envs)

    @property
    def is_compiled(self) -> bool:
        """Whether the next rollout is compiled. The first is not, so that acting and updates compile at one time."""
        updates = self._updates()
        return updates > 0 and self._compilation.active_at(updates)

    @property
    def steps(self) -> int:
        return self._builder.steps if self._taken is None else self.n_steps

    def start(self, env: VecEnv, episode_starts: np.ndarray | None, stepwise: bool = True) -> None:
        self._whole = not (stepwise or self.collecting)
        if self.collecting:
            return
        if self._builder.steps or not self._whole:
            self._builder.clear()
        self._taken = None
        self._noise, self._uploaded_noise = self.draw_noise(env.num_envs), None
        self.starts, self.collecting = episode_starts, True

    def advance(self, theta: Params, observations: Arrays, env: VecEnv) -> Step:
        if self._whole:
            self._whole = False
            self._simulation = self._simulation_of(env, self.n_steps, self._simulation)
            if self._simulation is not None:
                assert isinstance(observations, np.ndarray)  # simulated environments have no Dict observations
                taken = self._simulation.take_rollout(theta, self._noise_of_rollout, observations, self.is_compiled)
                if taken is not None:
                    self._taken = taken.new_obs  # type: ignore[assignment]
                    return taken
            self._builder.clear()
        t = self.steps
        check_observations(observations, env.observation_space)
        observed = self._builder.observe(observations)
        if self._policy.use_sde:  # twice at the first step, as Stable-Baselines3 draws
            for _ in range((t == 0) + (self._sde_sample_freq > 0 and t % self._sde_sample_freq == 0)):
                with torch.no_grad():
                    self._policy.reset_noise(env.num_envs)
        noise = self.exploration["exploration_matrices"] if self._policy.use_sde else self._noise_of_rollout[t]
        act = self._act if self.is_compiled else self._act.eager
        with torch.no_grad():
            sampled = act(theta, observed, noise)
        actions = sampled.actions.cpu().numpy()
        new_obs, rewards, dones, infos = step_watched(env, self.for_environment(actions))
        step = Step(actions, new_obs, rewards, dones, infos, [(infos, dones)])  # type: ignore[arg-type]
        self._builder.add(step, sampled.log_probs)
        return step

    def _simulation_of(self, env: VecEnv, n_steps: int, known: Simulation | None = None) -> Simulation | None:
        """What simulates rollouts of T steps of the environment, `known` if it does; `None` if nothing can."""
        found = simulated_world(env) if self._compilation.planned else None
        if found is None:
            return None
        world, monitors, adapter = found
        if known is not None and known.simulates(world):
            return known
        fused = FusedSteps(self._plain_act, world.dynamics, world.max_episode_steps, self._compilation.device)
        return Simulation(fused, world, n_steps, self._compilation, monitors, adapter, self._index_terminated)

    def episodes_in(self, env: VecEnv) -> SimulatedEpisodes | None:
        """The agent's episodes in another environment, which do not disturb this one; `None` if it is not simulated."""
        simulation = self._simulation_of(env, MAX_STEPS)
        if simulation is None:
            return None
        return SimulatedEpisodes(simulation, env, self._distribution.draw_noise, lambda: self.is_compiled)

    def for_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions `[B, *action]` for `env.step`; `Box` actions are unscaled or clipped to the bounds of the space.

        Raises:
            NotFiniteError: training has diverged.
        """
        space = self._policy.action_space
        if isinstance(space, gym.spaces.Box):
            actions = actions.reshape(-1, *space.shape)
            if not np.isfinite(actions).all():
                check_finite("actions", torch.from_numpy(actions), self._updates())
            squashed = self._policy.squash_output
            actions = self._policy.unscale_action(actions) if squashed else np.clip(actions, space.low, space.high)
        return actions.astype(space.dtype, copy=False)

    @property
    def _noise_of_rollout(self) -> Tensor:
        """`[T, B, ...]`, on the device."""
        if self._uploaded_noise is None:
            assert self._noise is not None
            self._uploaded_noise = upload(self._noise, self._compilation.device)
        return self._uploaded_noise

    def finish(self, statistics: Params) -> Rollout:
        if self._taken is None:
            return self._builder.build(statistics)
        assert self._simulation is not None
        return self._simulation.rollout(statistics)

    def get_state(self) -> dict[str, Any]:
        """The generator of the noise, and the rollout in progress: `generator` and `collection` of `TrainingState`."""
        if not self.collecting:
            return {"generator": self._rng, "collection": None}
        if self._taken is not None:
            self._builder.set_rollout(self.finish({}), self._taken)
        own: dict[str, Any] = {"noise": self._noise, "starts": self.starts, "exploration": self.exploration}
        return {"generator": self._rng, "collection": CollectionState(**self._builder.get_state(), **own)}

    def set_state(self, generator: np.random.Generator, collection: CollectionState | None) -> None:
        """Restore what `get_state` returned.

        Raises:
            ValueError: the rollout in progress is not one of as many steps and environments.
        """
        self._rng, self.collecting, self.starts = generator, collection is not None, None
        if collection is None:
            return
        self._builder.set_state(collection._asdict())
        self._taken, self.starts = None, collection.starts
        self._noise, self._uploaded_noise = collection.noise, None
        for name, matrix in collection.exploration.items():
            setattr(self._policy.action_dist, name, matrix)

    @property
    def exploration(self) -> Params:
        """Exploration matrices of gSDE, by name; empty without."""
        if not self._policy.use_sde:
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


def made_env(
    env: GymEnv | VectorEnv | str | None, n_envs: int | None, seed: int | None, default: Callable[[str], int]
) -> GymEnv | None:
    """The environment, made if `env` is an id; `default` is the number of environments of an id."""
    given_envs = n_envs if env is None or isinstance(env, str) else getattr(env, "num_envs", 1)
    if n_envs is not None and n_envs != given_envs:
        raise ValueError(f"n_envs must be None or {given_envs}, the number of environments of env, got {n_envs!r}")
    if isinstance(env, str):
        wanted = default(env) if n_envs is None else n_envs
        env = make_vec(env, wanted, seed) if wanted > 1 else env
    return as_vec_env(env)  # type: ignore[arg-type]
