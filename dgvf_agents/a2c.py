"""DGVFA2C: the actor-critic with auxiliary tasks, used like any Stable-Baselines3 algorithm."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize
from torch import Tensor

from dgvf_agents.acting_ahead import ActingAhead, foreseeable
from dgvf_agents.compiling import Compiled
from dgvf_agents.distributions import distribution_for
from dgvf_agents.learner_state import LearnerState
from dgvf_agents.losses import ActorCriticWeights
from dgvf_agents.metagradient import (
    Convention,
    EncoderMode,
    Horizon,
    InnerMetrics,
    InnerState,
    Learner,
    Objective,
    Storage,
    Unroll,
    check_choice,
)
from dgvf_agents.networks import QuestionNetwork
from dgvf_agents.optimizers import Optimizer, RMSProp, clip_by_global_norm, global_norm
from dgvf_agents.packing import PackedLearner
from dgvf_agents.policies import CnnPolicy, DGVFPolicy, MlpPolicy, PolicyFunctions, PreprocessedEncoder
from dgvf_agents.rollout_builder import RolloutBuilder
from dgvf_agents.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    GVFTask,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)
from dgvf_agents.types import Params, Rollout
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec

Self = TypeVar("Self", bound="DGVFA2C")

TASKS = ("discovered", "random", "reward-prediction", "pixel-control", "none")
"""The auxiliary tasks that go by a name."""


class DGVFA2C(OnPolicyAlgorithm):
    """Advantage actor-critic whose encoder is trained by auxiliary tasks, discovered questions by default.

    Used as any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFA2C
    >>> model = DGVFA2C("MlpPolicy", "PuddleWorld-v0").learn(1_000_000)  # doctest: +SKIP

    Defaults are the paper's (Veeriah et al. 2019, sections 4.2 and 5.1 and the appendix) where it gives them.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpPolicy": MlpPolicy, "CnnPolicy": CnnPolicy}
    policy: DGVFPolicy
    metrics: InnerMetrics | None
    """What the last inner update reports; `None` before the first."""

    def __init__(
        self,
        policy: str | type[DGVFPolicy],
        env: GymEnv | VectorEnv | str | None,
        learning_rate: float | Schedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        ent_coef: float = 0.01,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = None,
        rms_prop_eps: float = 1e-5,
        auxiliary_task: str | Callable[[DGVFA2C], AuxiliaryTask] = "discovered",
        auxiliary_coefficient: float = 0.1,
        encoder_mode: EncoderMode | None = None,
        questions: int = 128,
        question_discount: float | None = 0.9,
        question_window: int = 1,
        unroll_length: int = 10,
        objective: Objective = "sum",
        horizon: Horizon = "unrolled",
        convention: Convention = "exact",
        storage: Storage = "graph",
        meta_learning_rate: float = 3e-4,
        meta_max_grad_norm: float = 1.0,
        meta_skip_norm: float = 1e3,
        inner_optimizer: Optimizer | None = None,
        n_envs: int = 16,
        compile: bool = True,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        """
        Args:
            policy: `"MlpPolicy"`, `"CnnPolicy"` or a `DGVFPolicy` class.
            env: an id (`n_envs` copies are made), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′ of the inner update; a number or a function of the remaining progress.
            n_steps: T, steps per environment and update (paper: 5).
            gamma: discount of the main task.
            ent_coef: c_H, factor on the entropy bonus.
            vf_coef: c_v, factor on the mean squared value error.
            max_grad_norm: norm that inner gradients are scaled down to; `None` for never.
            rms_prop_eps: ε of RMSProp (paper: 1e-5).
            auxiliary_task: a name of `TASKS`, or a function that builds a task for the model, before its policy.
            auxiliary_coefficient: c, factor on the answer loss.
            encoder_mode: `"auxiliary"`: only the task trains the encoder, `"joint"`: the main task too. When left out:
                `"joint"` without a task, `"auxiliary"` with one.
            questions: D, the number of questions (paper: 128).
            question_discount: discount of all questions in [0, 1); `None` lets the question network learn them.
            question_window: j, the future observations a question sees.
            unroll_length: L, inner updates per meta-update (paper: 10).
            objective: `"sum"` of the meta-losses along the unroll, or the one at its `"end"`.
            horizon: `"unrolled"`, or `"myopic"` (paper, appendix).
            convention: `"exact"` or `"surrogate"`; see `dgvf_agents.metagradient`.
            storage: `"graph"` is faster, `"recompute"` takes less memory.
            meta_learning_rate: α of Adam on η.
            meta_max_grad_norm: norm that meta-gradients are scaled down to (paper, table 1: 1).
            meta_skip_norm: a meta-gradient with a larger norm, or one that is not finite, is skipped and counted.
            inner_optimizer: in place of RMSProp.
            n_envs: copies to make of an id (paper: 16).
            compile: whether updates are compiled; they are slower and equal otherwise.
            stats_window_size: episodes that logged means are over.
            tensorboard_log: folder for TensorBoard.
            policy_kwargs: arguments of the policy.
            verbose: 0, 1 or 2.
            seed: of everything random.
            device: for the networks.
            _init_setup_model: whether networks are built at once.

        Raises:
            ValueError: an argument is out of its range; the message names it, its value and what is allowed.
        """
        counts = {
            "questions": questions,
            "question_window": question_window,
            "unroll_length": unroll_length,
            "n_envs": n_envs,
            "n_steps": n_steps,
        }
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")
        for name, number in (("meta_learning_rate", meta_learning_rate), ("meta_skip_norm", meta_skip_norm)):
            if not number > 0:
                raise ValueError(f"{name} must be > 0, got {number!r}")
        if isinstance(auxiliary_task, str) and auxiliary_task not in TASKS:
            raise ValueError(f"auxiliary_task must be one of {TASKS} or a function, got {auxiliary_task!r}")
        check_choice("objective", objective, Objective)
        check_choice("horizon", horizon, Horizon)
        check_choice("storage", storage, Storage)
        if isinstance(env, str):
            env = make_vec(env, n_envs, seed)
        super().__init__(
            policy=policy,
            env=_as_vec_env(env),  # type: ignore[arg-type]
            learning_rate=learning_rate,
            n_steps=n_steps,
            gamma=gamma,
            gae_lambda=1.0,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,  # type: ignore[arg-type]
            use_sde=False,
            sde_sample_freq=-1,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.rms_prop_eps = rms_prop_eps
        self.auxiliary_task = auxiliary_task
        self.auxiliary_coefficient = auxiliary_coefficient
        self.encoder_mode: EncoderMode = encoder_mode or ("joint" if auxiliary_task == "none" else "auxiliary")
        self.questions = questions
        self.question_discount = question_discount
        self.question_window = question_window
        self.unroll_length = unroll_length
        self.objective = objective
        self.horizon = horizon
        self.convention = convention
        self.storage = storage
        self.meta_learning_rate = meta_learning_rate
        self.meta_max_grad_norm = meta_max_grad_norm
        self.meta_skip_norm = meta_skip_norm
        self.inner_optimizer = inner_optimizer or RMSProp(epsilon=rms_prop_eps)
        self.compile = compile
        self.meta_updates = 0
        self.meta_skipped = 0
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return OnPolicyAlgorithm._wrap_env(_as_vec_env(env), verbose, monitor_wrapper)  # type: ignore[arg-type]

    def _setup_model(self) -> None:
        distribution = distribution_for(self.action_space)
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        self.task = self._build_task()
        self.policy = self.policy_class(  # type: ignore[assignment]
            self.observation_space,
            self.action_space,
            self.lr_schedule,
            **{**self.policy_kwargs, "answers": self.task.answers},
        ).to(self.device)
        self._functions = PolicyFunctions(self.policy)
        self._learner = Learner(
            network=self._functions,
            distribution=distribution,
            task=self.task,
            optimizer=self.inner_optimizer,
            weights=ActorCriticWeights(self.vf_coef, self.ent_coef),
            discount=self.gamma,
            auxiliary_coefficient=self.auxiliary_coefficient,
            encoder_mode=self.encoder_mode,
            convention=self.convention,
            max_gradient_norm=self.max_grad_norm,
        )
        eta = _to(self.task.initial_meta_params(), self.device)
        self._compile_functions(eta)
        theta = self._functions.params()
        self._theta = self._packed.theta.pack(theta)
        self.learner_state = LearnerState(self._packed, self.inner_optimizer.init(theta), eta, self.meta_learning_rate)
        self.rollout_buffer = None  # type: ignore[assignment]  # it lacks next observations and rewrites rewards
        self._unroll: Unroll | None = None
        self._action_rng = np.random.default_rng(self.seed)
        self._builder = RolloutBuilder(
            self.n_steps, self.n_envs, self.observation_space.shape or (), self.observation_space.dtype
        )
        self._ahead: ActingAhead | None = None
        self._foreseen: np.ndarray | None = None
        self._rollout: Rollout | None = None
        self.metrics = None
        self._meta_loss: Tensor | None = None
        self._meta_gradient_norm: Tensor | None = None

    def _compile_functions(self, eta: Params) -> None:
        self._packed = PackedLearner(self._learner, eta)
        self._update = Compiled(self._packed.update, self.compile)
        self._score = Compiled(self._packed.score, self.compile)
        self._scored_update = Compiled(self._packed.scored_update, self.compile)
        self._act = Compiled(self._packed.act, self.compile)

    def _build_task(self) -> AuxiliaryTask:
        if callable(self.auxiliary_task):
            return self.auxiliary_task(self)
        if self.auxiliary_task in ("discovered", "random"):
            kind: type[GVFTask] = DiscoveredGVFs if self.auxiliary_task == "discovered" else RandomGVFs
            return kind(self._question_network(), self.questions, self.question_discount, self.question_window)
        if self.auxiliary_task == "pixel-control":
            assert isinstance(self.action_space, gym.spaces.Discrete)
            return PixelControl(int(self.action_space.n))
        return RewardPrediction() if self.auxiliary_task == "reward-prediction" else NoTask()

    def _question_network(self) -> QuestionNetwork:
        """A network like the agent's, independent of it, on windows of future observations."""
        space = _window_space(self.observation_space, self.question_window)
        kwargs = self.policy_kwargs
        kind = kwargs.get("features_extractor_class") or self.policy_class.default_extractor(space)  # type: ignore
        extractor = kind(space, **(kwargs.get("features_extractor_kwargs") or {}))
        encoder = PreprocessedEncoder(extractor, space, kwargs.get("normalize_images", True))
        return QuestionNetwork(encoder, encoder.features, self.questions, self.question_discount is None).to(
            self.device
        )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment; false where the callback asks to stop."""
        assert self._last_obs is not None
        builder = self._builder
        builder.clear()
        self._look_ahead(env)
        callback.on_rollout_start()
        drawn = self._action_rng.random((n_rollout_steps, env.num_envs), dtype=np.float32)
        uniforms = torch.from_numpy(drawn).to(self.device)
        for t in range(n_rollout_steps):
            observations = self._last_obs
            assert isinstance(observations, np.ndarray)
            if observations.shape[1:] != self.observation_space.shape:
                raise ValueError(
                    f"observations must have shape {self.observation_space.shape}, the environment gave "
                    f"{observations.shape[1:]}"
                )
            actions = self._actions(observations, uniforms, t)
            new_obs, rewards, dones, infos = env.step(actions)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            assert isinstance(new_obs, np.ndarray)
            builder.add(observations, actions, rewards, dones, new_obs, infos)
            self._last_obs = new_obs
            self._last_episode_starts = dones
        self._rollout = builder.build(self.device)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _look_ahead(self, env: VecEnv) -> None:
        """Act several steps ahead where the environment is a world of ours; compiled only, NumPy is faster else."""
        world = foreseeable(env) if self.compile else None
        self._foreseen = None
        if world is None:
            self._ahead = None
        elif self._ahead is None or self._ahead.env is not world:
            self._ahead = ActingAhead(self._packed.act, world, self.n_steps, self.device)

    def _actions(self, observations: np.ndarray, uniforms: Tensor, t: int) -> np.ndarray:
        """Actions `[B]` for the observations of step t, drawn with `uniforms[t]`."""
        ahead = self._ahead
        if ahead is not None:
            if t % ahead.steps == 0:
                self._foreseen = ahead.actions(self._theta, uniforms[t : t + ahead.steps])
            elif not ahead.env.expecting:  # something else has moved it
                self._foreseen = None
            if self._foreseen is not None:
                return self._foreseen[t % ahead.steps]
        with torch.no_grad():
            drawn = self._act(self._theta, torch.from_numpy(observations).to(self.device), uniforms[t])
        return drawn.cpu().numpy()

    def train(self) -> None:
        """One inner update on the batch just collected; before it, the meta-update where one is due (Algorithm 1).

        The batch was generated by θ_k, so it scores θ_k first. After L updates that score completes the unroll, and the
        same batch begins the next one: no sample is wasted.
        """
        assert self._rollout is not None
        self._update_learning_rate([])
        learning_rate = torch.tensor(self.lr_schedule(self._current_progress_remaining), device=self.device)
        if self.task.discovers:
            self.metrics = self._train_discovering(self._rollout, learning_rate)
        else:
            state = InnerState(self._theta, self.learner_state.optimizer)
            with torch.no_grad():
                state, self.metrics = self._update(state, self.learner_state.eta, self._rollout, learning_rate)
            self._take(state)
        self._n_updates += 1

    def _train_discovering(self, rollout: Rollout, learning_rate: Tensor) -> InnerMetrics:
        unroll = self._unroll
        if unroll is not None and unroll.updates == self.unroll_length:
            self._meta_loss = unroll.score(rollout)
            self._meta_update(unroll.gradient())
            unroll = None
        if unroll is None:
            unroll = self._new_unroll()
        if self.objective == "sum" and self.unroll_length > 1:
            metrics, self._meta_loss = unroll.score_and_update(rollout, learning_rate)
        else:
            metrics = unroll.update(rollout, learning_rate)
        self._unroll = unroll
        self._take(unroll.state)
        return metrics

    def _new_unroll(self) -> Unroll:
        return Unroll(
            self._update,
            self._score,
            InnerState(self._theta, self.learner_state.optimizer),
            self.learner_state.eta,
            scored_update=self._scored_update,
            horizon=self.horizon,
            storage=self.storage,
        )

    def _meta_update(self, gradient: Params) -> None:
        """One Adam step on η, unless the meta-gradient is not to be trusted."""
        norm = global_norm(gradient)
        self._meta_gradient_norm = norm
        if not float(norm) <= self.meta_skip_norm:  # also where it is NaN
            self.meta_skipped += 1
            return
        self.learner_state.meta_step(clip_by_global_norm(gradient, self.meta_max_grad_norm))
        self.meta_updates += 1

    def _take(self, state: InnerState) -> None:
        self._theta, self.learner_state.optimizer = state
        self._functions.show(self._packed.theta.unpack(self._theta))

    def dump_logs(self, iteration: int = 0) -> None:
        if self.metrics is not None:
            self._record(self.metrics)
        super().dump_logs(iteration)

    def _record(self, metrics: InnerMetrics) -> None:
        record = self.logger.record
        record("train/n_updates", self._n_updates, exclude="tensorboard")
        record("train/learning_rate", self.lr_schedule(self._current_progress_remaining))
        record("train/explained_variance", metrics.explained_variance.item())
        record("train/entropy_loss", -metrics.entropy.item())
        record("train/policy_loss", metrics.policy_loss.item())
        record("train/value_loss", metrics.value_loss.item())
        record("train/gradient_norm", metrics.gradient_norm.item())
        if self.task.answers:
            record("train/answer_loss", metrics.answer_loss.item())
        if isinstance(self.task, GVFTask) and self._rollout is not None:
            with torch.no_grad():
                cumulants, discounts = self.task.ask(self.learner_state.named_eta(), self._rollout)
            record("questions/cumulant_variance", cumulants.flatten(0, 1).var(0).mean().item())
            for name, fraction in (("min", 0.0), ("median", 0.5), ("max", 1.0)):
                record(f"questions/discount_{name}", torch.quantile(discounts.flatten(), fraction).item())
        if self.task.discovers:
            record("meta/updates", self.meta_updates)
            record("meta/skipped", self.meta_skipped)
            if self._meta_gradient_norm is not None and self._meta_loss is not None:
                record("meta/gradient_norm", self._meta_gradient_norm.item())
                record("meta/loss", self._meta_loss.item())

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str = "DGVFA2C",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        if isinstance(self.env, VecNormalize):
            raise ValueError("env must not be a VecNormalize: it changes rewards and observations between updates")
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def set_parameters(
        self,
        load_path_or_dict: str | pathlib.Path | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        super().set_parameters(load_path_or_dict, exact_match, device)  # type: ignore[arg-type]
        self._unroll = None  # it leads to parameters that are gone
        self._theta = self._packed.theta.pack(self._functions.params())

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "learner_state"], []

    def _excluded_save_params(self) -> list[str]:
        live = ("_functions", "_learner", "_packed", "_theta", "_update", "_score", "_scored_update", "_act", "_unroll")
        last = ("_ahead", "_foreseen", "_builder", "_rollout", "metrics", "_meta_loss", "_meta_gradient_norm")
        return [*super()._excluded_save_params(), "task", "rollout_buffer", *live, *last]


def _as_vec_env(env: GymEnv | VectorEnv | None) -> GymEnv | None:
    return VecMonitor(GymnasiumVecEnv(env)) if isinstance(env, VectorEnv) else env


def _to(params: Params, device: torch.device) -> Params:
    return {name: value.to(device) for name, value in params.items()}


def _window_space(space: gym.Space, window: int) -> gym.Space:
    """The space of j observations joined along their first axis."""
    if window == 1:
        return space
    if isinstance(space, gym.spaces.Box):
        return gym.spaces.Box(
            np.concatenate([space.low] * window),
            np.concatenate([space.high] * window),
            dtype=space.dtype,
        )
    if isinstance(space, gym.spaces.MultiBinary) and space.shape is not None and len(space.shape) > 0:
        return gym.spaces.MultiBinary((window * space.shape[0], *space.shape[1:]))
    raise ValueError(f"question_window must be 1 for observations of {space}, got {window!r}")
