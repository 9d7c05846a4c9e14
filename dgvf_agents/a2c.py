"""DGVFA2C: advantage actor-critic with an auxiliary task, as a Stable-Baselines3 algorithm."""

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
from dgvf_agents.execution.compiling import Mode
from dgvf_agents.execution.devices import device_of_model
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
    """Advantage actor-critic with an auxiliary task. By default, the task is to answer discovered questions.

    It is used like any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFA2C
    >>> model = DGVFA2C("MlpPolicy", "PuddleWorld-v0").learn(1_000_000)  # doctest: +SKIP

    The positional arguments are those of Stable-Baselines3's A2C, in the same order and with the same defaults. By
    default, the main task and the auxiliary task train the encoder jointly. The paper's settings are the presets of
    `dgvf train`; `dgvf_agents.runs.train.build` makes a model from a preset.
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
        compile: Mode = "auto",
    ) -> None:
        """
        Args:
            policy: `"MlpPolicy"`, `"CnnPolicy"`, `"MultiInputPolicy"`, `"PaperMlpPolicy"`, or an actor-critic policy
                class.
            env: an environment id (see `n_envs`), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′, the learning rate of the inner update; a number, or a function of the remaining progress
                (from 1 to 0).
            n_steps: T, steps per environment and update (paper: 5).
            gamma: discount factor of the main task.
            gae_lambda: λ of the main task's returns; 1 gives the paper's multi-step returns.
            ent_coef: c_H, entropy coefficient (A2C: 0; paper: searched in 1e-4 … 0.05); a number, or a function of the
                remaining progress.
            vf_coef: c_v, coefficient of the value loss, which is the mean squared error.
            max_grad_norm: maximum norm of inner gradients, which are clipped to it; `None`: no clipping.
            rms_prop_eps: ε of RMSProp (paper: 1e-5), outside the square root.
            use_rms_prop: whether to use PyTorch's RMSProp, as A2C does, or Adam with ε = 1e-5. `optimizer_class` in
                `policy_kwargs` takes precedence; Stable-Baselines3's `RMSpropTFLike` selects TensorFlow's RMSProp.
            use_sde: whether to use generalized state-dependent exploration (gSDE), for continuous actions.
            sde_sample_freq: steps between new exploration matrices of gSDE; -1: one per rollout.
            rollout_buffer_class: class of `rollout_buffer`, which shows the last rollout: `RolloutBuffer` or
                `DictRolloutBuffer`; `None`: the one for the observation space.
            rollout_buffer_kwargs: keyword arguments of the rollout buffer.
            normalize_advantage: whether to normalize the advantages of a batch to mean 0 and standard deviation 1.
            stats_window_size: number of episodes that logged means are taken over.
            tensorboard_log: folder for TensorBoard logs; `None`: no logs.
            policy_kwargs: keyword arguments of the policy.
            verbose: 0 for no output, 1 for info messages, 2 for debug messages.
            seed: seed of all random number generators; `None`: not seeded.
            device: device of the networks and updates: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, which uses CUDA if
                available.
            _init_setup_model: whether to build the networks at once.
            auxiliary_task: a name in `dgvf_agents.sb3.auxiliary_tasks.TASKS`, or a function that returns the task for
                the model; the model's policy is built by then.
            auxiliary_coefficient: c, weight of the auxiliary task; see `auxiliary_weighting`.
            auxiliary_weighting: `"gradient-norm"` scales the auxiliary loss so that the norm of its gradient at the
                features is c times that of the main task's, whatever the scale of rewards and cumulants; `"fixed"`
                multiplies the auxiliary loss, a sum over questions, by c (paper).
            encoder_mode: which losses train the encoder: `"joint"`: those of the main task and the auxiliary task;
                `"auxiliary"`: only that of the auxiliary task (paper, section 4).
            questions: D, number of questions (paper: 128).
            question_discount: discount of all questions, in [0, 1); `None`: discounts are learned by the question
                network.
            question_window: j, number of future observations that the question network sees.
            unroll_length: L, inner updates per meta-update (paper: 10).
            objective: meta-loss: the `"sum"` of L^RL along the unroll, or L^RL at its `"end"`.
            horizon: `"unrolled"`: the meta-gradient of each θ_k passes through all k updates before it; `"myopic"`:
                only through the last of them (paper, appendix).
            convention: what the meta-gradient passes through: `"exact"` or `"surrogate"`; see
                `dgvf_agents.core.inner_update`.
            storage: `"graph"` stores the graph of the unroll and is faster; `"recompute"` uses less memory.
            meta_learning_rate: α, learning rate of Adam on η; a number, or a function of the remaining progress.
            meta_epsilon: ε of Adam on η.
            meta_max_grad_norm: maximum norm of meta-gradients, which are clipped to it (paper, table 1: 1 for
                cumulants); may be infinite.
            meta_max_discount_grad_norm: separate maximum norm for the head that predicts discounts (paper, table 1:
                10); `None`: clipped together with all other meta-parameters. See `dgvf_agents.core.optimizers`.
            meta_skip_norm: meta-gradients whose norm is larger or not finite are skipped and counted; may be infinite.
            inner_optimizer: optimizer of the inner update, a `dgvf_agents.core.optimizers.Optimizer`; `None`: the one
                selected by `use_rms_prop` and `optimizer_class`.
            mixed_precision: whether encoders, those of the agent and of the question network, compute matrix products
                and convolutions in bfloat16. Heads, losses, returns, parameters, optimizers and the accumulated
                meta-gradient stay float32.
            n_envs: number of environments if `env` is an id; default: 16 for environments of `dgvf_envs`, as in the
                paper, and 1 for others, as in A2C. For any other `env`: its number of environments, or `None`.
            monitor_wrapper: whether to wrap an environment that is not vectorized in a `Monitor`.
            compile: whether updates run compiled, which is faster and gives equal results up to rounding. `"auto"`:
                training starts at once, other processes compile meanwhile, and updates from the 1,000th on run
                compiled, in calls of `learn` that end after the 4,000th or later. Updates with dropout are never
                compiled.

        Raises:
            ValueError: an argument is out of its range; the message gives its name, its value and the allowed values.
        """
        if n_envs is not None:
            check_counts(n_envs=n_envs)
        checked_value_at("learning_rate", learning_rate, 1.0)
        check_seed(seed)
        if policy_kwargs is not None and not isinstance(policy_kwargs, dict):
            raise ValueError(f"policy_kwargs must be a dict or None, got {policy_kwargs!r}")
        given_envs = _num_envs_of(env)
        if n_envs is not None and given_envs is not None and n_envs != given_envs:
            raise ValueError(f"n_envs must be None or {given_envs}, the number of environments of env, got {n_envs!r}")
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
                self.num_timesteps += env.num_envs
                if dones.any() or not collector.simulates:
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
        tb_log_name: str = "A2C",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model. Arguments, defaults and the returned value are those of Stable-Baselines3's A2C.

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
    adapted = GymnasiumVecEnv(env)
    is_monitored = adapted.env_is_wrapped(Monitor)[0]  # its environments may be
    return adapted if is_monitored else VecMonitor(adapted)


def _num_envs_of(env: GymEnv | VectorEnv | str | None) -> int | None:
    """The number of environments; `None` if no environment exists yet."""
    if env is None or isinstance(env, str):
        return None
    return env.num_envs if isinstance(env, VecEnv | VectorEnv) else 1
