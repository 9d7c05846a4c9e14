"""Algorithms that collect a batch and learn from it in turns, in one process."""

from __future__ import annotations

import inspect
from abc import ABC
from typing import Any, ClassVar, TypeVar

from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from dgvf_agents.agents.extractors import check_observation_space
from dgvf_agents.agents.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, PaperMlpPolicy, ResNetPolicy
from dgvf_agents.agents.schedules import checked_value_at
from dgvf_agents.core.argument_checks import check_counts, checked_seed
from dgvf_agents.core.finite import check_metrics
from dgvf_agents.execution.devices import device_of_model
from dgvf_agents.storage.persistence import PersistentAlgorithm
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, default_num_envs, make_vec, resetting_in_part

Self = TypeVar("Self", bound="SynchronousAlgorithm")

_OF_STABLE_BASELINES3 = frozenset(inspect.signature(OnPolicyAlgorithm.__init__).parameters)
"""Arguments that Stable-Baselines3 keeps; all others are attributes by the same name."""


class SynchronousAlgorithm(PersistentAlgorithm, ABC):
    """Collects a batch from all environments with the current policy, then learns from it."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
        "PaperMlpPolicy": PaperMlpPolicy,
        "ResNetPolicy": ResNetPolicy,
    }

    def __init__(self, arguments: dict[str, Any]) -> None:
        """
        Args:
            arguments: of the subclass's constructor, by name.

        Raises:
            ValueError: one is out of its range.
        """
        given = dict(arguments)
        env, n_envs, set_up = given.pop("env"), given.pop("n_envs"), given.pop("_init_setup_model")
        rate, policy_kwargs = given["learning_rate"], given["policy_kwargs"]
        if n_envs is not None:
            check_counts(n_envs=n_envs)
        checked_value_at("learning_rate", rate, 1.0)
        given["seed"] = checked_seed(given["seed"])
        if policy_kwargs is not None and not isinstance(policy_kwargs, dict):
            raise ValueError(f"policy_kwargs must be a dict or None, got {policy_kwargs!r}")
        given |= {"learning_rate": rate if callable(rate) else float(rate), "device": device_of_model(given["device"])}
        own = {name: given.pop(name) for name in given.keys() - _OF_STABLE_BASELINES3}
        env = self._made_env(env, n_envs, given["seed"])
        super().__init__(env=env, _init_setup_model=False, **given)  # type: ignore[arg-type]
        vars(self).update(own)
        if set_up:
            self._setup_model()

    @classmethod
    def _made_env(cls, env: GymEnv | VectorEnv | str | None, n_envs: int | None, seed: int | None) -> GymEnv | None:
        """The environment, made if `env` is an id."""
        given_envs = _num_envs_of(env)
        if n_envs is not None and given_envs is not None and n_envs != given_envs:
            raise ValueError(f"n_envs must be None or {given_envs}, the number of environments of env, got {n_envs!r}")
        if isinstance(env, str):
            wanted = cls._default_num_envs(env) if n_envs is None else n_envs
            env = make_vec(env, wanted, seed) if wanted > 1 else env
        return _as_vec_env(env)  # type: ignore[arg-type]

    @staticmethod
    def _default_num_envs(env_id: str) -> int:
        """Number of environments if only an id is given."""
        return default_num_envs(env_id)

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
        if space is not None:
            check_observation_space(space)  # before Stable-Baselines3 makes arrays for observations
        return OnPolicyAlgorithm._wrap_env(_as_vec_env(env), verbose, monitor_wrapper)  # type: ignore[arg-type]

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment.

        Returns:
            false if a callback stopped training.
        """
        collector = self._collector
        if n_rollout_steps != collector.n_steps:
            raise ValueError(
                f"n_steps must be {collector.n_steps}, as when the model was set up, got {n_rollout_steps}: pass a "
                "different value to load() or to a new model"
            )
        collector.actor.set_env(env)
        if not collector.collecting:  # otherwise a loaded model continues in the middle of a rollout
            callback.on_rollout_start()
            collector.start(env.num_envs, self._last_episode_starts)
        try:
            while collector.steps < n_rollout_steps:
                actions = collector.act(self._policy_theta, self._last_obs, env)  # type: ignore[arg-type]
                new_obs, rewards, dones, infos = collector.step(actions, env)
                self.num_timesteps += env.num_envs * self.learners
                if collector.has_news:
                    self._update_info_buffer(infos, dones)
                collector.add(actions, rewards, dones, new_obs, infos)
                self._last_obs, self._last_episode_starts = new_obs, dones
                callback.update_locals(locals())
                if not callback.on_step():  # must be last: a callback may save the model
                    return False
            self._rollout = collector.finish(self._functions.statistics())
            self._show_rollout(self._rollout, collector.starts)
            callback.update_locals(locals())
            callback.on_rollout_end()
        finally:
            collector.end()
        return True

    def train(self) -> None:
        """Perform one step of Algorithm 1 on the last rollout."""
        assert self._rollout is not None
        self._prepare_update()
        self._update_learning_rate(self.policy.optimizer)
        settings = self.annealed_settings()
        rollout = settings.batch(self._rollout)
        self.learner.step(rollout, settings.learning_rate, settings.meta_learning_rate)
        self._sync_policy()
        self._functions.update_statistics(rollout.observations)
        self._n_updates += 1
        if self._guidance.watches_inputs:
            self._guidance.see_inputs(*self._functions.inputs(rollout.observations))

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model.

        Raises:
            NotFiniteError: training has diverged. This is checked whenever metrics are logged, and at the end.
        """
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
        self.learner.check_finite()  # the effect of the last update shows in no loss yet
        return self


def _as_vec_env(env: GymEnv | VectorEnv | None) -> GymEnv | None:
    if not isinstance(env, VectorEnv):
        return env
    adapted = GymnasiumVecEnv(resetting_in_part(env))
    is_monitored = adapted.env_is_wrapped(Monitor)[0]  # its environments may be
    return adapted if is_monitored else VecMonitor(adapted)


def _num_envs_of(env: GymEnv | VectorEnv | str | None) -> int | None:
    """The number of environments; `None` if no environment exists yet."""
    if env is None or isinstance(env, str):
        return None
    return env.num_envs if isinstance(env, VecEnv | VectorEnv) else 1
