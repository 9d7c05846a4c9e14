"""DGVFA2C: the actor-critic with auxiliary tasks, used like any Stable-Baselines3 algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from dgvf_agents.core.argument_checks import check_counts, check_seed
from dgvf_agents.core.finite import check_metrics
from dgvf_agents.core.inner_update import AuxiliaryWeighting, Convention, EncoderMode
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.unroll import Horizon, Objective, Storage
from dgvf_agents.execution.devices import device_of_model
from dgvf_agents.rollout.checks import step
from dgvf_agents.sb3.extractors import check_observation_space
from dgvf_agents.sb3.policies import (
    CnnPolicy,
    MlpPolicy,
    MultiInputPolicy,
    PaperMlpPolicy,
)
from dgvf_agents.sb3.schedules import checked_value_at
from dgvf_agents.storage.persistence import PersistentAlgorithm
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, default_num_envs, make_vec

Self = TypeVar("Self", bound="DGVFA2C")


class DGVFA2C(PersistentAlgorithm):
    """Advantage actor-critic with an auxiliary task for its encoder, discovered questions by default.

    Used as any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFA2C
    >>> model = DGVFA2C("MlpPolicy", "PuddleWorld-v0").learn(1_000_000)  # doctest: +SKIP

    It takes the arguments of Stable-Baselines3's A2C, in their order and with their defaults; the main task and the
    auxiliary task train the encoder jointly. The paper's own settings are the presets of `dgvf train`, which
    `dgvf_agents.runs.train.build` makes models of.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
        "PaperMlpPolicy": PaperMlpPolicy,
    }

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | VectorEnv | str | None,
        learning_rate: float | Schedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        ent_coef: float | Schedule = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        normalize_advantage: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        auxiliary_task: str | Callable[[DGVFA2C], AuxiliaryTask] = "discovered",
        auxiliary_coefficient: float = 0.03,
        auxiliary_weighting: AuxiliaryWeighting = "gradient-norm",
        encoder_mode: EncoderMode = "joint",
        questions: int = 128,
        question_discount: float | None = 0.9,
        question_window: int = 1,
        unroll_length: int = 10,
        objective: Objective = "sum",
        horizon: Horizon = "unrolled",
        convention: Convention = "exact",
        storage: Storage = "graph",
        meta_learning_rate: float | Schedule = 3e-4,
        meta_epsilon: float = 1e-8,
        meta_max_grad_norm: float = 1.0,
        meta_max_discount_grad_norm: float | None = None,
        meta_skip_norm: float = 1e3,
        inner_optimizer: Optimizer | None = None,
        mixed_precision: bool = False,
        n_envs: int | None = None,
        monitor_wrapper: bool = True,
        compile: bool = True,
    ) -> None:
        """
        Args:
            policy: `"MlpPolicy"`, `"CnnPolicy"`, `"MultiInputPolicy"`, `"PaperMlpPolicy"`, or an actor-critic policy
                class.
            env: an id (`n_envs` copies are made), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′ of the inner update; a number or a function of the remaining progress.
            n_steps: T, steps per environment and update (paper: 5).
            gamma: discount of the main task.
            gae_lambda: λ of the main task's returns; 1 for the paper's multi-step returns.
            ent_coef: c_H, entropy coefficient (A2C: 0; paper: searched in 1e-4 … 0.05); a number or a function of the
                remaining progress.
            vf_coef: c_v, factor on the mean squared value error.
            max_grad_norm: inner gradients are clipped to this norm; `None` for no clipping.
            rms_prop_eps: ε of RMSProp, in units of a gradient (paper: 1e-5).
            use_rms_prop: PyTorch's RMSProp, as A2C has it; Adam with ε = 1e-5 when false. `optimizer_class` of
                `policy_kwargs` takes precedence: `RMSpropTFLike` of Stable-Baselines3 is TensorFlow's RMSProp.
            use_sde: whether exploration depends on the state (gSDE), for continuous actions.
            sde_sample_freq: steps between new exploration matrices; -1 for once a rollout.
            rollout_buffer_class: `RolloutBuffer` or `DictRolloutBuffer`, in which `rollout_buffer` shows the last
                rollout; the one that fits when left out.
            rollout_buffer_kwargs: its arguments.
            normalize_advantage: whether a batch's advantages are given mean 0 and standard deviation 1.
            stats_window_size: episodes that logged means are over.
            tensorboard_log: folder for TensorBoard.
            policy_kwargs: arguments of the policy.
            verbose: 0, 1 or 2.
            seed: of everything random.
            device: for networks and updates: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"` for CUDA where there is any.
            _init_setup_model: whether networks are built at once.
            auxiliary_task: a name of `dgvf_agents.sb3.auxiliary_tasks.TASKS`, or a function that builds a task for the
                model, which has its policy.
            auxiliary_coefficient: c, the weight of the auxiliary task; `auxiliary_weighting` says in what unit.
            auxiliary_weighting: `"gradient-norm"`: at the features the gradient of the auxiliary loss is scaled to c
                times the norm of the main task's, whatever the scale of rewards and cumulants; `"fixed"`: c multiplies
                the auxiliary loss, a sum over questions, as in the paper.
            encoder_mode: `"joint"`: main task and auxiliary task train the encoder; `"auxiliary"`: the auxiliary task
                alone (paper, section 4).
            questions: D, the number of questions (paper: 128).
            question_discount: discount of all questions in [0, 1); `None` lets the question network learn them.
            question_window: j, the future observations a question sees.
            unroll_length: L, inner updates per meta-update (paper: 10).
            objective: `"sum"` of the meta-losses along the unroll, or the one at its `"end"`.
            horizon: `"unrolled"`, or `"myopic"` (paper, appendix).
            convention: `"exact"` or `"surrogate"`; see `dgvf_agents.core.inner_update`.
            storage: `"graph"` is faster, `"recompute"` takes less memory.
            meta_learning_rate: α of Adam on η; a number or a schedule.
            meta_epsilon: ε of that Adam.
            meta_max_grad_norm: norm that meta-gradients are scaled down to (paper, table 1: 1 for cumulants).
            meta_max_discount_grad_norm: norm that those of the head for discounts are scaled down to by themselves
                (paper, table 1: 10); `None` for together with all else. See `dgvf_agents.core.meta_clipping`.
            meta_skip_norm: a meta-gradient with a larger norm, or one that is not finite, is skipped and counted. It
                and `meta_max_grad_norm` may be infinite.
            inner_optimizer: in place of RMSProp, one that `optimizer_class` has no name for.
            mixed_precision: whether products within encoders, the agent's and the question network's, are of bfloat16
                numbers. Heads, losses, returns, parameters, both optimizers and the meta-gradient's sum stay float32.
            n_envs: copies to make of an id. When left out: 16 of a world of `dgvf_envs`, as the paper has it, and one
                of any other, as A2C has it. Beside anything but an id, the number it has, or nothing.
            monitor_wrapper: whether an environment that is not vectorized is wrapped in a `Monitor`.
            compile: whether updates are compiled; they are slower and equal otherwise. With dropout they never are.

        Raises:
            ValueError: an argument is out of its range; the message names it, its value and what is allowed.
        """
        if n_envs is not None:
            check_counts(n_envs=n_envs)
        checked_value_at("learning_rate", learning_rate, 1.0)
        check_seed(seed)
        if policy_kwargs is not None and not isinstance(policy_kwargs, dict):
            raise ValueError(f"policy_kwargs must be a dict or None, got {policy_kwargs!r}")
        given_envs = _num_envs_of(env)
        if n_envs is not None and given_envs is not None and n_envs != given_envs:
            raise ValueError(f"n_envs must be left out where env is no id, or be its {given_envs}, got {n_envs!r}")
        if isinstance(env, str):
            wanted = default_num_envs(env) if n_envs is None else n_envs
            env = make_vec(env, wanted, seed) if wanted > 1 else env
        super().__init__(
            policy=policy,
            env=_as_vec_env(env),  # type: ignore[arg-type]
            learning_rate=learning_rate if callable(learning_rate) else float(learning_rate),
            n_steps=n_steps,
            gamma=gamma,
            gae_lambda=gae_lambda,
            ent_coef=ent_coef,  # type: ignore[arg-type]
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,  # type: ignore[arg-type]
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            monitor_wrapper=monitor_wrapper,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device_of_model(device),
            _init_setup_model=False,
        )
        self.rms_prop_eps = rms_prop_eps
        self.use_rms_prop = use_rms_prop
        self.normalize_advantage = normalize_advantage
        self.auxiliary_task = auxiliary_task
        self.auxiliary_coefficient = auxiliary_coefficient
        self.auxiliary_weighting: AuxiliaryWeighting = auxiliary_weighting
        self.encoder_mode: EncoderMode = encoder_mode
        self.questions = questions
        self.question_discount = question_discount
        self.question_window = question_window
        self.unroll_length = unroll_length
        self.objective = objective
        self.horizon = horizon
        self.convention = convention
        self.storage = storage
        self.meta_learning_rate = meta_learning_rate
        self.meta_epsilon = meta_epsilon
        self.meta_max_grad_norm = meta_max_grad_norm
        self.meta_max_discount_grad_norm = meta_max_discount_grad_norm
        self.meta_skip_norm = meta_skip_norm
        self.inner_optimizer = inner_optimizer
        self.mixed_precision = mixed_precision
        self.compile = compile
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
        if space is not None:
            check_observation_space(space)  # before Stable-Baselines3 makes arrays for observations
        return OnPolicyAlgorithm._wrap_env(_as_vec_env(env), verbose, monitor_wrapper)  # type: ignore[arg-type]

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment; false if the callback asks to stop."""
        collector = self._collector
        if n_rollout_steps != collector.n_steps:
            raise ValueError(
                f"n_steps must stay {collector.n_steps} once a model is set up, got {n_rollout_steps}: give another to "
                "load() or to a new model"
            )
        collector.actor.watch(env)
        if not collector.collecting:  # else a loaded model continues in the middle of a rollout
            callback.on_rollout_start()
            collector.start(env.num_envs, self._last_episode_starts)
        try:
            while collector.steps < n_rollout_steps:
                actions = collector.act(self._policy_theta, self._last_obs, env)  # type: ignore[arg-type]
                new_obs: Any
                new_obs, rewards, dones, infos = step(env, collector.for_environment(actions))
                self.num_timesteps += env.num_envs
                self._update_info_buffer(infos, dones)
                collector.add(actions, rewards, dones, new_obs, infos)
                self._last_obs, self._last_episode_starts = new_obs, dones
                callback.update_locals(locals())
                if not callback.on_step():  # last of all: a callback may save the model
                    return False
            self._rollout = collector.finish(self._functions.statistics())
            self._show_rollout(self._rollout, collector.starts)
            callback.update_locals(locals())
            callback.on_rollout_end()
        finally:
            collector.end()
        return True

    def train(self) -> None:
        """One step of Algorithm 1 on the batch just collected."""
        assert self._rollout is not None
        self._prepare_update()
        self._update_learning_rate(self.policy.optimizer)
        progress = self._current_progress_remaining
        rollout = self._batch(self._rollout)
        learning_rate = checked_value_at("learning_rate", self.lr_schedule, progress)
        meta_learning_rate = checked_value_at("meta_learning_rate", self.meta_learning_rate, progress)
        self.learner.step(rollout, learning_rate, meta_learning_rate)
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
        tb_log_name: str = "A2C",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train; arguments and the returned value are those of Stable-Baselines3's A2C, and so is the logs' name.

        Raises:
            NotFiniteError: training has diverged. This is checked where metrics are logged, and at the end.
        """
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
        self.learner.check_finite()  # the last update, whose effect no loss has shown yet
        return self


def _as_vec_env(env: GymEnv | VectorEnv | None) -> GymEnv | None:
    if not isinstance(env, VectorEnv):
        return env
    adapted = GymnasiumVecEnv(env)
    return adapted if adapted.env_is_wrapped(Monitor)[0] else VecMonitor(adapted)  # it may report its episodes itself


def _num_envs_of(env: GymEnv | VectorEnv | str | None) -> int | None:
    """The number of environments; `None` where there is none yet, but an id."""
    if env is None or isinstance(env, str):
        return None
    return env.num_envs if isinstance(env, VecEnv | VectorEnv) else 1
