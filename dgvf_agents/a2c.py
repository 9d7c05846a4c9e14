"""DGVFA2C: the actor-critic with auxiliary tasks, used like any Stable-Baselines3 algorithm."""

from __future__ import annotations

import io
import pathlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.core.argument_checks import (
    check_choice,
    check_counts,
    check_flags,
    check_fractions,
    check_not_negative,
    check_positive,
    check_positive_if_given,
    check_positive_or_infinite,
    check_seed,
    is_finite_number,
    is_integer,
)
from dgvf_agents.core.distributions import distribution_for
from dgvf_agents.core.inner_update import (
    AuxiliaryWeighting,
    Convention,
    EncoderMode,
    InnerMetrics,
    InnerState,
    UpdateRule,
)
from dgvf_agents.core.losses import ActorCriticWeights
from dgvf_agents.core.networks import QuestionNetwork, linear
from dgvf_agents.core.optimizers import Optimizer, global_norm
from dgvf_agents.core.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    GVFTask,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)
from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.core.unroll import Horizon, Objective, Storage, Unroll
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.execution.devices import device_of_model, upload
from dgvf_agents.execution.packing import PackedFunctions, clip_meta_gradient
from dgvf_agents.learner_state import LearnerState
from dgvf_agents.rollout.builder import Arrays, RolloutBuilder
from dgvf_agents.rollout.checks import check_learned, check_metrics, step
from dgvf_agents.rollout.environment_actions import for_environment
from dgvf_agents.rollout.simulation import ActingAhead, foreseeable
from dgvf_agents.sb3.extractors import PreprocessedEncoder, check_observation_space, window_space
from dgvf_agents.sb3.functional_policy import PolicyFunctions
from dgvf_agents.sb3.guidance import Guidance
from dgvf_agents.sb3.inner_optimizer import inner_optimizer_for
from dgvf_agents.sb3.logging import record_update
from dgvf_agents.sb3.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, PaperMlpPolicy
from dgvf_agents.sb3.rollout_buffer import RolloutView, check_rollout_buffer_class, fill_buffer
from dgvf_agents.sb3.schedules import checked_value_at
from dgvf_agents.storage.loading import load_model
from dgvf_agents.storage.model_file import write_bytes
from dgvf_agents.storage.saving import on_device, read_parameters, stored_file
from dgvf_agents.storage.training_state import random_state, replay_unroll, restore_log
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, default_num_envs, make_vec

Self = TypeVar("Self", bound="DGVFA2C")

TASKS = ("discovered", "random", "reward-prediction", "pixel-control", "none")
"""The auxiliary tasks that go by a name."""


class DGVFA2C(OnPolicyAlgorithm):
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
    policy: ActorCriticPolicy
    """Its `optimizer` tells the class, arguments and learning rate; statistics are in `learner_state`."""
    metrics: InnerMetrics | None
    """What the last inner update reports; `None` before the first."""
    seconds: float = 0.0
    """Wall time that training took before this process, as whoever trains wrote it down; saved with the model."""
    _collecting: bool = False  # in the middle of a rollout
    _drawn_noise: np.ndarray | None = None
    _rollout_starts: np.ndarray | None = None
    _pending_unroll: dict[str, Any] | None = None  # of a loaded model, until training goes on
    _pending_environment: dict[str, Any] | None = None  # of a model loaded without one, to be saved again
    _pending_log: dict[str, Any] | None = None
    _trained_on: str | None = None  # of a loaded model: the kind of device it was on
    _entropy_changes: bool = False  # so that every batch has a c_H of its own
    _unroll_settings: tuple[Any, ...] | None = None  # that the unroll began with; files of earlier versions do not tell

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
            auxiliary_task: a name of `TASKS`, or a function that builds a task for the model, which has its policy.
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
                (paper, table 1: 10); `None` for together with all else. See `dgvf_agents.core.optimizers`.
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
        copies = _copies_of(env)
        if n_envs is not None and copies is not None and n_envs != copies:
            raise ValueError(f"n_envs must be left out where env is no id, or be its {copies}, got {n_envs!r}")
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
        self.meta_updates = 0
        self.meta_skipped = 0
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return OnPolicyAlgorithm._wrap_env(_as_vec_env(env), verbose, monitor_wrapper)  # type: ignore[arg-type]

    def _check_arguments(self) -> None:
        """Raise where an attribute is out of its range, whether the constructor or `load` was given it."""
        check_counts(
            questions=self.questions,
            question_window=self.question_window,
            unroll_length=self.unroll_length,
            n_steps=self.n_steps,
            stats_window_size=self._stats_window_size,
        )
        check_flags(
            use_rms_prop=self.use_rms_prop,
            use_sde=self.use_sde,
            normalize_advantage=self.normalize_advantage,
            mixed_precision=self.mixed_precision,
            compile=self.compile,
        )
        check_seed(self.seed)
        check_positive(rms_prop_eps=self.rms_prop_eps, meta_epsilon=self.meta_epsilon)
        check_positive_or_infinite(meta_max_grad_norm=self.meta_max_grad_norm, meta_skip_norm=self.meta_skip_norm)
        check_positive_if_given(meta_max_discount_grad_norm=self.meta_max_discount_grad_norm)
        if not callable(self.meta_learning_rate):
            check_positive(meta_learning_rate=self.meta_learning_rate)
        for name in ("learning_rate", "ent_coef", "meta_learning_rate"):
            checked_value_at(name, getattr(self, name), 1.0)
        discount = self.question_discount
        if not (discount is None or (is_finite_number(discount) and 0.0 <= discount < 1.0)):
            raise ValueError(f"question_discount must lie in [0, 1) or be None, got {discount!r}")
        often = self.sde_sample_freq
        if not is_integer(often) or (often != -1 and often < 1):
            raise ValueError(f"sde_sample_freq must be an integer >= 1 or -1, got {often!r}")
        _check_auxiliary_task(self.auxiliary_task)
        if self.inner_optimizer is not None and not isinstance(self.inner_optimizer, Optimizer):
            raise ValueError(
                f"inner_optimizer must be None or a dgvf_agents.core.optimizers.Optimizer, got {self.inner_optimizer!r}"
            )
        check_choice("auxiliary_weighting", self.auxiliary_weighting, AuxiliaryWeighting)
        check_choice("encoder_mode", self.encoder_mode, EncoderMode)
        check_choice("objective", self.objective, Objective)
        check_choice("horizon", self.horizon, Horizon)
        check_choice("storage", self.storage, Storage)
        check_choice("convention", self.convention, Convention)
        check_rollout_buffer_class(self.rollout_buffer_class)

    def _setup_model(self) -> None:
        self._check_arguments()
        check_observation_space(self.observation_space)
        squashed = bool(self.policy_kwargs.get("squash_output", False))
        self._distribution = distribution_for(self.action_space, squashed)
        self._for_environment = for_environment(self.action_space, squashed)
        self._entropy_changes = self._entropy_changes or callable(self.ent_coef)
        self._setup_lr_schedule()
        self._action_rng = np.random.default_rng()  # where there is no seed
        self.set_random_seed(self.seed)
        self._setup_policy()
        self.task = self._build_task()
        self.answer_net = linear(self._features_dim, self.task.num_answers, 1.0) if self.task.num_answers else None
        if self.answer_net is not None:
            self.answer_net.to(self.device)
        self._functions = PolicyFunctions(self.policy, self.answer_net, self.mixed_precision)
        if self.storage == "recompute" and self.task.discovers and self._functions.random_in_training:
            raise ValueError("storage must be 'graph' where features extractors drop units at random, got 'recompute'")
        eta = _to(self.task.initial_meta_params(), self.device)
        self._build_updates(eta)
        self._act = Compiled(self._packed.act, self.compile, self.device)
        theta = self._functions.params()
        if self.task.num_answers and not self._functions.split(theta)[0]:
            kind = type(self.policy.features_extractor).__name__
            warnings.warn(
                f"features_extractor_class {kind} has no parameters: answers cannot shape it, and layers of net_arch "
                "belong to the heads. Use MlpPolicy, CnnPolicy or MultiInputPolicy, or an extractor that learns",
                stacklevel=3,
            )
        self.learner_state = LearnerState(self._packed, self._optimizer.init(theta), eta, self.meta_epsilon)
        self._take(InnerState(self._packed.theta.pack(theta), self.learner_state.optimizer))
        self._unroll: Unroll | None = None
        self._unroll_random: list[list[Tensor]] = []  # before each of its updates
        self._rollout_steps = self.n_steps
        self._builder = RolloutBuilder(
            self.n_steps,
            self.n_envs,
            self.observation_space,
            self._distribution.action_shape,
            self._distribution.action_dtype,
            self.device,
            self.task.needs_final_observation,
        )
        self._ahead: ActingAhead | None = None
        self._foreseen: np.ndarray | None = None
        self._rollout: Rollout | None = None
        self._setup_rollout_buffer()
        self._guidance = Guidance()
        self.metrics = None
        self._meta_loss: Tensor | None = None
        self._meta_gradient_norm: Tensor | None = None

    def _setup_policy(self) -> None:
        """The policy, and the inner optimizer that its `optimizer_class` stands for."""
        kwargs = dict(self.policy_kwargs)
        if self.inner_optimizer is not None and "optimizer_class" in kwargs:
            raise ValueError(f"inner_optimizer must be None where optimizer_class is given, got {self.inner_optimizer}")
        if "optimizer_class" not in kwargs:
            alternative = kwargs.pop("optimizer_kwargs", None)
            if self.use_rms_prop:
                kwargs["optimizer_class"], usual = torch.optim.RMSprop, {"alpha": 0.99, "eps": self.rms_prop_eps}
            else:
                kwargs["optimizer_class"], usual = torch.optim.Adam, {"eps": 1e-5}
            kwargs["optimizer_kwargs"] = usual if alternative is None else alternative
        kind, arguments = kwargs["optimizer_class"], kwargs.get("optimizer_kwargs")
        self._optimizer = self.inner_optimizer or inner_optimizer_for(kind, arguments)
        self.policy = self.policy_class(  # type: ignore[assignment]
            self.observation_space, self.action_space, self.lr_schedule, use_sde=self.use_sde, **kwargs
        ).to(self.device)
        if not isinstance(self.policy, ActorCriticPolicy):
            raise ValueError(f"policy must be an ActorCriticPolicy, got {self.policy_class.__name__}")

    @property
    def _features_dim(self) -> int:
        """F: what answers are linear in, the features of both encoders where there are two."""
        return self.policy.features_dim * (1 if self.policy.share_features_extractor else 2)

    def _setup_rollout_buffer(self) -> None:
        """What callbacks see of a rollout."""
        several = isinstance(self.observation_space, gym.spaces.Dict)
        kind = self.rollout_buffer_class or (DictRolloutBuffer if several else RolloutBuffer)
        buffer = kind(
            self.n_steps,
            self.observation_space,
            self.action_space,
            device=self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **self.rollout_buffer_kwargs,
        )
        self.rollout_buffer = RolloutView(buffer)  # type: ignore[assignment]

    def _build_updates(self, eta: Params) -> None:
        """The inner update and the meta-loss, of the attributes as they are now."""
        _check_settings(self.gamma, self.gae_lambda, self.vf_coef, self.auxiliary_coefficient, self.max_grad_norm)
        if self.normalize_advantage and self.n_steps * self.n_envs < 2:
            raise ValueError("normalize_advantage must be False where n_steps x n_envs is 1, got True")
        self._learner = UpdateRule(
            network=self._functions,
            distribution=self._distribution,
            task=self.task,
            optimizer=self._optimizer,
            weights=ActorCriticWeights(self.vf_coef, self._entropy_weight()),
            discount=self.gamma,
            gae_lambda=self.gae_lambda,
            normalize_advantages=self.normalize_advantage,
            auxiliary_coefficient=self.auxiliary_coefficient,
            auxiliary_weighting=self.auxiliary_weighting,
            encoder_mode=self.encoder_mode,
            convention=self.convention,
            max_gradient_norm=self.max_grad_norm,
        )
        self._built_with = self._settings()
        self._packed = PackedFunctions(self._learner, eta)
        compiled = self.compile and not self._functions.random_in_training  # dynamo cannot trace it in a pullback
        self._update = Compiled(self._packed.update, compiled, self.device)
        self._score = Compiled(self._packed.score, compiled, self.device)
        self._scored_update = Compiled(self._packed.scored_update, compiled, self.device)

    def _settings(self) -> tuple[Any, ...]:
        """The attributes that updates are built with and that may be changed while training."""
        return (
            self.vf_coef,
            self.gamma,
            self.gae_lambda,
            self.normalize_advantage,
            self.auxiliary_coefficient,
            self.auxiliary_weighting,
            self.encoder_mode,
            self.convention,
            self.max_grad_norm,
        )

    def _settings_of_unroll(self) -> tuple[Any, ...]:
        """What all updates of an unroll have in common; c_H only where batches have none of their own."""
        return (*self._settings(), None if self._entropy_changes else self._learner.weights.entropy)

    def _follow_settings(self) -> None:
        """Let attributes take effect that were changed since the last update, by a callback or by `load`.

        An unroll that began with others is given up: its meta-gradient would go through updates of two kinds.
        """
        if self._settings() != self._built_with:
            self._build_updates(self.learner_state.named_eta())
        if callable(self.ent_coef) or self.ent_coef != self._learner.weights.entropy:
            self._entropy_changes = True
        if self._unroll_settings not in (None, self._settings_of_unroll()):
            self._unroll = self._pending_unroll = None

    def _build_task(self) -> AuxiliaryTask:
        if callable(self.auxiliary_task):
            task = self.auxiliary_task(self)
            if not isinstance(task, AuxiliaryTask):
                raise ValueError(f"auxiliary_task must return an AuxiliaryTask where it is a function, got {task!r}")
            return task
        if self.auxiliary_task in ("discovered", "random"):
            kind: type[GVFTask] = DiscoveredGVFs if self.auxiliary_task == "discovered" else RandomGVFs
            return kind(self._question_network(), self.question_discount, self.question_window)
        if self.auxiliary_task == "pixel-control":
            if not isinstance(self.action_space, gym.spaces.Discrete):
                raise ValueError(
                    "auxiliary_task must not be 'pixel-control' unless actions are Discrete, got actions of "
                    f"{self.action_space}"
                )
            return PixelControl.over(self.observation_space.shape or (), int(self.action_space.n))
        return RewardPrediction() if self.auxiliary_task == "reward-prediction" else NoTask()

    def _question_network(self) -> QuestionNetwork:
        """A network like the agent's, independent of it, on windows of future observations."""
        space = window_space(self.observation_space, self.question_window)
        policy = self.policy
        extractor = policy.features_extractor_class(space, **policy.features_extractor_kwargs)
        encoder = PreprocessedEncoder(
            extractor, space, policy.normalize_images, mixed_precision=self.mixed_precision
        ).eval()
        return QuestionNetwork(encoder, encoder.features, self.questions, self.question_discount is None).to(
            self.device
        )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment; false where the callback asks to stop."""
        assert self._last_obs is not None
        if n_rollout_steps != self._rollout_steps:
            raise ValueError(
                f"n_steps must stay {self._rollout_steps} once a model is set up, got {n_rollout_steps}: give another "
                "to load() or to a new model"
            )
        self._look_ahead(env)
        if not self._collecting:  # else a loaded model goes on in the middle of a rollout
            self._builder.clear()
            callback.on_rollout_start()
            self._rollout_starts = self._last_episode_starts
            self._drawn_noise = self._distribution.draw_noise(self._action_rng, n_rollout_steps, env.num_envs)
        self._collecting = True
        try:
            return self._collect(env, callback, rollout_buffer, n_rollout_steps)
        finally:
            self._collecting = False

    def _collect(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """The steps of a rollout that are still missing."""
        assert self._drawn_noise is not None
        builder = self._builder
        noise = upload(self._drawn_noise, self.device)
        for t in range(builder.steps, n_rollout_steps):
            observations: Any = self._last_obs
            _check_observations(observations, self.observation_space)
            observed = builder.observe(observations)
            if self.use_sde and (t == 0 or (self.sde_sample_freq > 0 and t % self.sde_sample_freq == 0)):
                with torch.no_grad():
                    self.policy.reset_noise(env.num_envs)
            actions = self._actions(observations, observed, noise, t)
            new_obs: Any
            new_obs, rewards, dones, infos = step(env, self._for_environment(actions))
            self.num_timesteps += env.num_envs
            self._update_info_buffer(infos, dones)
            builder.add(actions, rewards, dones, new_obs, infos)
            self._last_obs = new_obs
            self._last_episode_starts = dones
            callback.update_locals(locals())
            if not callback.on_step():  # last of all: a callback may save the model
                return False
        self._rollout = builder.build(self._functions.statistics())
        self._show_rollout(self._rollout, self._rollout_starts)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _entropy_weight(self) -> float:
        """c_H now."""
        return checked_value_at("ent_coef", self.ent_coef, self._current_progress_remaining)

    def _weighted(self, rollout: Rollout) -> Rollout:
        """The rollout with the c_H that it is learned from under."""
        if not self._entropy_changes:
            return rollout
        return rollout._replace(entropy_weight=rollout.rewards.new_full((), self._entropy_weight()))

    def _learning_rate(self) -> Tensor:
        """α′ now, written by the device itself: copying a number there would wait for all that goes on."""
        learning_rate = checked_value_at("learning_rate", self.lr_schedule, self._current_progress_remaining)
        return torch.full((), learning_rate, device=self.device)

    def _look_ahead(self, env: VecEnv) -> None:
        """Act several steps ahead where the environment is a world of ours; compiled only, NumPy is faster else."""
        world = foreseeable(env) if self.compile else None
        if world is None:
            self._ahead = None
        elif self._ahead is None or self._ahead.env is not world:
            self._ahead = ActingAhead(self._packed.act, world, self.n_steps, self.device)

    def _show_rollout(self, rollout: Rollout, starts: np.ndarray | None) -> None:
        """Let `rollout_buffer` show a rollout, with the values that the policy had while collecting it."""
        theta, gamma, gae_lambda = self._theta, self.gamma, self.gae_lambda

        def fill(buffer: RolloutBuffer) -> None:
            buffer.gamma, buffer.gae_lambda = gamma, gae_lambda
            self._show(theta)
            try:
                fill_buffer(buffer, self.policy, rollout, np.ones(self.n_envs, bool) if starts is None else starts)
            finally:
                self._show(self._theta)

        self.rollout_buffer.show(fill)  # type: ignore[attr-defined]

    def _actions(self, observations: Arrays, observed: Observations, noise: Tensor, t: int) -> np.ndarray:
        """Actions `[B, ...]` for the observations of step t, which the device has too, drawn with `noise[t]`."""
        ahead = self._ahead
        if ahead is not None:
            if t % ahead.steps == 0:
                assert isinstance(observations, np.ndarray)  # the worlds foreseen have no Dict observations
                self._foreseen = ahead.actions(self._theta, noise[t : t + ahead.steps], observations)
            elif not ahead.env.expecting:  # something else has moved it
                self._foreseen = None
            if self._foreseen is not None:
                return self._foreseen[t % ahead.steps]
        with torch.no_grad():
            drawn = self._act(self._theta, observed, self._noise(noise[t]))
        return drawn.cpu().numpy()

    def _noise(self, drawn: Tensor) -> Tensor:
        """What actions are drawn with: `drawn`, or the exploration matrices of gSDE."""
        if not self.use_sde:
            return drawn
        exploration = self.policy.action_dist
        assert isinstance(exploration, StateDependentNoiseDistribution)
        return exploration.exploration_matrices

    def train(self) -> None:
        """One inner update on the batch just collected; before it, the meta-update where one is due (Algorithm 1).

        The batch was generated by θ_k, so it scores θ_k first. After L updates that score completes the unroll, and the
        same batch begins the next one: no sample is wasted.
        """
        assert self._rollout is not None
        self._follow_settings()
        self._update_learning_rate(self.policy.optimizer)
        learning_rate = self._learning_rate()
        rollout = self._weighted(self._rollout)
        if self.task.discovers:
            self.metrics = self._train_discovering(rollout, learning_rate)
        else:
            state = InnerState(self._theta, self.learner_state.optimizer)
            with torch.no_grad():
                state, self.metrics = self._update(state, self.learner_state.eta, rollout, learning_rate)
            self._take(state)
        self._functions.update_statistics(self._rollout.observations)
        self._n_updates += 1
        if self._guidance.watches_inputs:
            self._guidance.see_inputs(*self._functions.inputs(self._rollout.observations))

    def _train_discovering(self, rollout: Rollout, learning_rate: Tensor) -> InnerMetrics:
        replay_unroll(self)
        unroll = self._unroll
        if unroll is not None and unroll.updates >= self.unroll_length:  # more where that was made less
            self._meta_loss = unroll.score(rollout)
            self._meta_update(unroll.gradient())
            unroll = None
        if unroll is None:
            unroll, self._unroll_random = self._new_unroll(), []
        self._unroll_random.append(random_state(self.device))
        if self.objective == "sum" and self.unroll_length > 1:
            metrics, self._meta_loss = unroll.score_and_update(rollout, learning_rate)
        else:
            metrics = unroll.update(rollout, learning_rate)
        self._unroll = unroll
        self._take(unroll.state)
        return metrics

    def next_update(self) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
        """The inner update that the last rollout leads to, for analysis.

        Returns:
            the update as a function of one vector, that vector now, and how many of its entries, the first, are θ's;
            the others are the optimizer's statistics.

        Raises:
            RuntimeError: there was no rollout yet.
        """
        if self._rollout is None:
            raise RuntimeError("next_update() was called before any rollout: call it from a callback's on_rollout_end")
        self._follow_settings()
        learning_rate = self._learning_rate()
        state = InnerState(self._theta, self.learner_state.optimizer)
        rollout = self._weighted(self._rollout)
        update = self._packed.update_of_vector(self.learner_state.eta, rollout, learning_rate)
        return update, self._packed.vector(state), self._packed.theta.size

    def _new_unroll(self) -> Unroll:
        self._unroll_settings = self._settings_of_unroll()
        return Unroll(
            self._update,
            self._score,
            InnerState(self._theta, self.learner_state.optimizer),
            self.learner_state.eta,
            scored_update=self._scored_update,
            horizon=self.horizon,
            storage=self.storage,
            length=self.unroll_length,
        )

    def _meta_update(self, gradient: Params) -> None:
        """One Adam step on η, unless the meta-gradient is not to be trusted."""
        norm = global_norm(gradient)
        self._meta_gradient_norm = norm
        # Read on the processor, which waits for the device once per meta-update: what is skipped is counted and saved,
        # Adam's state included, and the next action has to be waited for anyway.
        if not float(norm) <= self.meta_skip_norm:  # also where it is NaN
            self.meta_skipped += 1
            return
        most, most_of_discounts = self.meta_max_grad_norm, self.meta_max_discount_grad_norm
        learning_rate = checked_value_at(
            "meta_learning_rate", self.meta_learning_rate, self._current_progress_remaining
        )
        clipped = clip_meta_gradient(gradient, self._packed.eta, most, most_of_discounts)
        self.learner_state.meta_step(clipped, learning_rate)
        self.meta_updates += 1

    def _take(self, state: InnerState) -> None:
        self._theta, self.learner_state.optimizer = state
        self._show(self._theta)

    def _show(self, theta: Params) -> None:
        """Let the policy's own parameters be these; whoever writes into them writes into θ."""
        self._functions.show(self._packed.theta.views(theta))

    def dump_logs(self, iteration: int = 0) -> None:
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
            record_update(self, self.metrics)
        super().dump_logs(iteration)

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str = "A2C",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train; arguments and what comes back are those of Stable-Baselines3's A2C, the name of its logs too.

        Raises:
            NotFiniteError: training has diverged. It is looked for where metrics are logged, and at the end.
        """
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
        check_learned(self)  # the last update's own, which no loss has told yet
        return self

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed all that is random, as Stable-Baselines3's A2C does; actions from the next rollout on."""
        super().set_random_seed(seed)
        if seed is not None:
            self._action_rng = np.random.default_rng(seed)

    def set_parameters(
        self,
        load_path_or_dict: str | pathlib.Path | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Take parameters, as Stable-Baselines3's A2C does; they go where the model is, whatever `device` says."""
        if not isinstance(load_path_or_dict, dict):
            load_path_or_dict = read_parameters(load_path_or_dict)
        super().set_parameters(on_device(load_path_or_dict, self.device), exact_match, device)
        self._unroll = self._pending_unroll = None  # it leads to parameters that are gone
        self._take(InnerState(self._packed.theta.pack(self._functions.params()), self.learner_state.optimizer))

    def save(
        self,
        path: str | pathlib.Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write the model and where it stands in training to a file, atomically.

        The file holds JSON and tensors (`dgvf_agents.storage.model_file`). What these cannot express, such as a
        function of the user's, is pickled beside them, and `load` ignores it unless it is told to trust the file.

        A model may be saved at any time, by a callback too. Training that goes on from the file is bitwise that which
        goes on here, on the same machine and on the CPU, where the environment can give its state: those of
        `dgvf_envs` can, under the wrappers that `dgvf_envs.functional.env_state` names. With any other, episodes and
        the unroll restart.

        Args:
            path: where to; gets the ending `.zip` where it has none. Or a file open for writing in binary.
            exclude: attributes to leave out besides those that always are.
            include: attributes to keep nevertheless.

        Raises:
            TypeError: an attribute is of a kind that not even pickle can write; the message names it.
        """
        write_bytes(path, stored_file(self, exclude, include).to_bytes())  # type: ignore[arg-type]

    @classmethod
    def load(
        cls: type[Self],
        path: str | pathlib.Path | io.BufferedIOBase,
        env: GymEnv | VectorEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool | None = None,
        *,
        trusted: bool = False,
        **kwargs: Any,
    ) -> Self:
        """A model from a file that `save` wrote, or Stable-Baselines3's `save`.

        No code in the file is run, unless `trusted` says so: nothing in a file of ours is unpickled, and of
        Stable-Baselines3's the weights only, by `torch.load(weights_only=True)`, which builds tensors and plain
        containers and nothing else. What only a pickle holds is warned of, or, where no model can be built without it,
        refused; `custom_objects` can stand in for it.

        To go on training, give an environment made like the one in the file:
        `load(path, env).learn(steps, reset_num_timesteps=False)`. It is then put where the saved one was, and the
        random number generators of Python, NumPy and PyTorch with it.

        Args:
            path: the file, with or without the ending `.zip`, or a file open for reading in binary.
            env: the environment; `None` to predict only.
            device: for the networks.
            custom_objects: attributes to take in place of those in the file, by name.
            print_system_info: whether to print what the model was saved with, and what there is now.
            force_reset: true: the environment begins anew. False: it goes on from where it is, or was when the model
                was saved. `None`: it goes on if it takes the state in the file, and begins anew if not.
            trusted: whether to unpickle. Whoever wrote the file can then run any code of theirs here.
            kwargs: attributes to change.

        Raises:
            DamagedFileError: it is neither format, or not as it was written.
            ValueError: the environment or an argument does not fit the file, or the file holds an attribute that the
                model needs as a pickle only.
        """
        return load_model(cls, path, env, device, custom_objects, print_system_info, force_reset, trusted, kwargs)

    def _setup_learn(self, *arguments: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        last_obs = self._last_obs
        result = super()._setup_learn(*arguments, **kwargs)
        if self._last_obs is not last_obs:  # the environment began anew
            self._collecting = False
        restore_log(self)
        return result

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        answers = ["answer_net"] if self.answer_net is not None else []
        questions = ["learner_state.questions"] if self.learner_state.eta else []
        return ["policy", *answers, *questions, "learner_state.optimizers"], []

    def _excluded_save_params(self) -> list[str]:
        live = ("_functions", "_learner", "_packed", "_theta", "_unroll")
        compiled = ("_update", "_score", "_scored_update", "_act")
        made = (
            "_built_with",
            "_distribution",
            "_for_environment",
            "_optimizer",
            "answer_net",
            "learner_state",
            "lr_schedule",
        )
        last = (
            "_ahead",
            "_foreseen",
            "_builder",
            "_guidance",
            "_rollout",
            "_rollout_steps",
            "metrics",
            "_meta_loss",
            "_meta_gradient_norm",
        )
        stored = ("_action_rng", "_collecting", "_drawn_noise", "_rollout_starts", "_pending_unroll", "_pending_log")
        drawn = ("_unroll_random", "_trained_on", "_pending_environment")
        ours = (*made, *live, *compiled, *last, *stored, *drawn)
        return [*super()._excluded_save_params(), "task", "rollout_buffer", *ours]


def _as_vec_env(env: GymEnv | VectorEnv | None) -> GymEnv | None:
    if not isinstance(env, VectorEnv):
        return env
    adapted = GymnasiumVecEnv(env)
    return adapted if adapted.env_is_wrapped(Monitor)[0] else VecMonitor(adapted)  # it may report its episodes itself


def _check_settings(
    gamma: float, gae_lambda: float, vf_coef: float, auxiliary_coefficient: float, max_grad_norm: float | None
) -> None:
    check_fractions(gamma=gamma, gae_lambda=gae_lambda)
    check_not_negative(vf_coef=vf_coef, auxiliary_coefficient=auxiliary_coefficient)
    check_positive_if_given(max_grad_norm=max_grad_norm)


def _copies_of(env: GymEnv | VectorEnv | str | None) -> int | None:
    """How many there are of an environment; `None` where there is none yet, but an id."""
    if env is None or isinstance(env, str):
        return None
    return env.num_envs if isinstance(env, VecEnv | VectorEnv) else 1


def _check_auxiliary_task(given: Any) -> None:
    if isinstance(given, AuxiliaryTask):
        raise ValueError(
            f"auxiliary_task must be one of {TASKS} or a function that builds a task for the model, got a "
            f"{type(given).__name__}: pass lambda model: task"
        )
    if not (given in TASKS if isinstance(given, str) else callable(given)):
        raise ValueError(f"auxiliary_task must be one of {TASKS} or a function, got {given!r}")


def _to(params: Params, device: torch.device) -> Params:
    return {name: value.to(device) for name, value in params.items()}


def _check_observations(observations: Arrays, space: gym.Space) -> None:
    if isinstance(space, gym.spaces.Dict):
        for name, inner in space.spaces.items():
            _check_observations(observations[name], inner)
    elif observations.shape[1:] != space.shape:  # type: ignore[union-attr]
        shape = observations.shape[1:]  # type: ignore[union-attr]
        raise ValueError(f"observations must have shape {space.shape}, the environment gave {shape}")
