"""DGVFImpala: IMPALA with an auxiliary task, as a Stable-Baselines3 algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.utils import LinearSchedule

from dgvf_agents.core.argument_checks import check_choice, check_fractions_below_one
from dgvf_agents.core.inner_update import AuxiliaryWeighting, Convention, EncoderMode
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.core.question_networks import QuestionEncoder
from dgvf_agents.core.targets import TargetRule, VTraceTargets
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.unroll import Horizon, Objective, Storage
from dgvf_agents.execution.compiling import Mode
from dgvf_agents.sb3.algorithm import LossReduction
from dgvf_agents.sb3.arguments import RULE_SETTINGS
from dgvf_agents.synchronous import SynchronousAlgorithm

Self = TypeVar("Self", bound="DGVFImpala")

RMSPropRule = Literal["tensorflow", "pytorch"]

BATCH_SIZE = 32
"""Trajectories per batch (paper, table 1)."""


class DGVFImpala(SynchronousAlgorithm):
    """IMPALA (Espeholt et al. 2018): an actor-critic with V-trace, and with an auxiliary task. By default, the task is
    to answer discovered questions.

    It is used like any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFImpala
    >>> model = DGVFImpala("CnnPolicy", "CollectObjectsSmall-v0").learn(1_000_000)  # doctest: +SKIP

    The defaults are the paper's hyperparameters of joint learning on Atari (appendix, table 1). They refer to losses
    that are summed over time and batch; see `loss_reduction`. The policy with the paper's network is `"ResNetPolicy"`.

    Acting and learning take turns in one process. Actions are sampled from the latest parameters, so importance ratios
    are 1 up to rounding, and V-trace's targets are multi-step returns.
    """

    rule_settings: ClassVar[tuple[str, ...]] = (*RULE_SETTINGS, "rho_bar", "c_bar")

    rho_bar: float
    c_bar: float
    rms_prop: RMSPropRule
    rms_prop_decay: float

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | VectorEnv | str | None,
        learning_rate: float | Schedule = LinearSchedule(6e-4, 0.0, 1.0),  # noqa: B008 - never modified
        n_steps: int = 20,
        gamma: float = 0.99,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        gae_lambda: float = 1.0,
        ent_coef: float | Schedule = 0.01,
        vf_coef: float = 0.25,
        max_grad_norm: float | None = 40.0,
        rms_prop: RMSPropRule = "tensorflow",
        rms_prop_eps: float = 0.1,
        rms_prop_decay: float = 0.99,
        loss_reduction: LossReduction = "sum",
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        auxiliary_task: str | Callable[[DGVFImpala], AuxiliaryTask] = "discovered",
        auxiliary_coefficient: float = 1e-4,
        auxiliary_weighting: AuxiliaryWeighting = "fixed",
        encoder_mode: EncoderMode = "joint",
        questions: int = 128,
        question_discount: float | None = None,
        question_window: int = 1,
        question_encoder: QuestionEncoder = "shared",
        unroll_length: int = 10,
        objective: Objective = "sum",
        horizon: Horizon = "unrolled",
        convention: Convention = "exact",
        storage: Storage = "graph",
        meta_learning_rate: float | Schedule = 6e-4,
        meta_epsilon: float = 1e-8,
        meta_max_grad_norm: float = 1.0,
        meta_max_discount_grad_norm: float | None = 10.0,
        meta_skip_norm: float = 1e6,
        inner_optimizer: Optimizer | None = None,
        mixed_precision: bool = False,
        n_envs: int | None = None,
        monitor_wrapper: bool = True,
        compile: Mode = "auto",
    ) -> None:
        """
        Args:
            policy: `"ResNetPolicy"`, `"CnnPolicy"`, `"MlpPolicy"`, `"MultiInputPolicy"`, `"PaperMlpPolicy"`, or an
                actor-critic policy class.
            env: an environment id (see `n_envs`), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′, the learning rate of the inner update; a number, or a function of the remaining progress
                (from 1 to 0). Default: from 6e-4 linearly to 0 (paper).
            n_steps: T, steps per environment and update (paper: 20).
            gamma: discount factor of the main task.
            rho_bar: ρ̄ > 0, bound of the importance ratios of temporal differences and of the policy gradient.
            c_bar: c̄ > 0, bound of the importance ratios of traces, at most `rho_bar`.
            gae_lambda: λ of V-trace, which multiplies the ratios of traces.
            ent_coef: c_H, entropy coefficient (paper: 0.01); a number, or a function of the remaining progress.
            vf_coef: c_v, coefficient of the squared value error (paper: 0.5 of half the squared error).
            max_grad_norm: maximum norm of inner gradients, which are clipped to it (paper: 40); `None`: no clipping.
            rms_prop: convention of RMSProp: `"tensorflow"`: ε inside the square root, initial second moment 1, as in
                IMPALA; `"pytorch"`: ε outside the square root, initial second moment 0. `inner_optimizer` chooses
                these independently.
            rms_prop_eps: ε of RMSProp (paper: 0.1).
            rms_prop_decay: decay of RMSProp's second moment (paper: 0.99).
            loss_reduction: losses that `max_grad_norm`, the maximum norms of meta-gradients, `meta_skip_norm` and the ε
                of both optimizers refer to: sums over time and batch, as in IMPALA, or means. The learner's losses, and
                those logged, are always means; settings for sums are converted, and steps are equal.
            use_sde: whether to use generalized state-dependent exploration (gSDE), for continuous actions.
            sde_sample_freq: steps between new exploration matrices of gSDE; -1: one per rollout.
            rollout_buffer_class: class of `rollout_buffer`, which shows the last rollout: `RolloutBuffer` or
                `DictRolloutBuffer`; `None`: the one for the observation space.
            rollout_buffer_kwargs: keyword arguments of the rollout buffer.
            stats_window_size: number of episodes that logged means are taken over.
            tensorboard_log: folder for TensorBoard logs; `None`: no logs.
            policy_kwargs: keyword arguments of the policy. An `optimizer_class` takes precedence over `rms_prop`.
            verbose: 0 for no output, 1 for info messages, 2 for debug messages.
            seed: seed of all random number generators; `None`: not seeded.
            device: device of the networks and updates: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, which uses CUDA if
                available.
            _init_setup_model: whether to build the networks at once.
            auxiliary_task: a name in `dgvf_agents.sb3.auxiliary_tasks.TASKS`, or a function that returns the task for
                the model; the model's policy is built by then.
            auxiliary_coefficient: c, weight of the auxiliary task (paper: 1e-4; 1e-3 for reward prediction).
            auxiliary_weighting: `"fixed"` multiplies the auxiliary loss, a sum over questions, by c (paper);
                `"gradient-norm"`: see `DGVFA2C`.
            encoder_mode: which losses train the encoder: `"joint"`: those of the main task and the auxiliary task;
                `"auxiliary"`: only that of the auxiliary task.
            questions: D, number of questions (paper: 128).
            question_discount: discount of all questions, in [0, 1); `None`: discounts are learned by the question
                network (paper).
            question_window: j, number of future observations that the question network sees.
            question_encoder: `"shared"`: the question network reads the agent's features of future observations
                (paper, joint learning); `"independent"`: it has an encoder of its own (paper, representation learning).
            unroll_length: L, inner updates per meta-update (paper: 10).
            objective: meta-loss: the `"sum"` of L^RL along the unroll, or L^RL at its `"end"`.
            horizon: `"unrolled"` or `"myopic"`; see `DGVFA2C`.
            convention: what the meta-gradient passes through: `"exact"` or `"surrogate"`; see
                `dgvf_agents.core.inner_update`.
            storage: `"graph"` stores the graph of the unroll and is faster; `"recompute"` uses less memory.
            meta_learning_rate: α, learning rate of Adam on η (paper: 6e-4); a number, or a function of the remaining
                progress.
            meta_epsilon: ε of Adam on η.
            meta_max_grad_norm: maximum norm of meta-gradients, which are clipped to it (paper: 1 for cumulants).
            meta_max_discount_grad_norm: separate maximum norm for the network that predicts discounts (paper: 10);
                `None`: clipped together with all other meta-parameters.
            meta_skip_norm: meta-gradients whose norm is larger or not finite are skipped and counted; may be infinite.
            inner_optimizer: optimizer of the inner update, a `dgvf_agents.core.optimizers.Optimizer`; `None`: the one
                selected by `rms_prop`.
            mixed_precision: whether encoders compute matrix products and convolutions in bfloat16.
            n_envs: number of environments if `env` is an id, the trajectories of a batch; default: 32, as in the paper.
                For any other `env`: its number of environments, or `None`.
            monitor_wrapper: whether to wrap an environment that is not vectorized in a `Monitor`.
            compile: whether updates run compiled; see `DGVFA2C`.

        Raises:
            ValueError: an argument is out of its range; the message gives its name, its value and the allowed values.
        """
        super().__init__({name: value for name, value in locals().items() if name not in ("self", "__class__")})

    @staticmethod
    def _default_num_envs(env_id: str) -> int:
        return BATCH_SIZE

    def _setup_model(self) -> None:
        self.normalize_advantage, self.use_rms_prop = False, True
        check_choice("rms_prop", self.rms_prop, RMSPropRule)
        check_choice("loss_reduction", self.loss_reduction, LossReduction)
        check_fractions_below_one(rms_prop_decay=self.rms_prop_decay)
        super()._setup_model()

    def _targets(self) -> TargetRule:
        return VTraceTargets(self.rho_bar, self.c_bar)

    def _policy_arguments(self) -> dict[str, Any]:
        if "optimizer_class" in self.policy_kwargs:
            return super()._policy_arguments()
        kind = RMSpropTFLike if self.rms_prop == "tensorflow" else torch.optim.RMSprop
        usual = {"alpha": self.rms_prop_decay, "eps": self.rms_prop_eps}
        given = self.policy_kwargs.get("optimizer_kwargs")
        return {
            **self.policy_kwargs,
            "optimizer_class": kind,
            "optimizer_kwargs": usual if given is None else given,
        }

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 10,
        tb_log_name: str = "DGVFImpala",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model. Arguments and the returned value are those of Stable-Baselines3's algorithms.

        Raises:
            NotFiniteError: training has diverged. This is checked whenever metrics are logged, and at the end.
        """
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
