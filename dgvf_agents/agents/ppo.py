"""DGVFPPO: proximal policy optimization with an auxiliary task, as a Stable-Baselines3 algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.ppo_learner import PPOLearner, PPOSettings
from dgvf_agents.agents.schedules import AnnealedSettings, checked_value_at
from dgvf_agents.core.networks import Act
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.core.ppo import Clipping
from dgvf_agents.core.tasks import AuxiliaryTask, GVFTask
from dgvf_agents.core.types import Observations, Params, Rollout, SampledActions
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.hyperparameters import check_hyperparameters
from dgvf_agents.options import AuxiliaryWeighting, Convention, EncoderMode, Horizon, Objective, QuestionEncoder

Self = TypeVar("Self", bound="DGVFPPO")


class DGVFPPO(DiscoveryAlgorithm):
    """Proximal policy optimization with an auxiliary task. By default there is none, and it learns what PPO learns.

    It is used like any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFPPO
    >>> model = DGVFPPO("MlpPolicy", "CartPole-v1", auxiliary_task="discovered").learn(50_000)  # doctest: +SKIP

    The positional arguments are Stable-Baselines3's PPO's, in the same order and with the same defaults; without a task
    the random draws are PPO's, too. How questions are discovered through PPO's gradient steps is derived in
    docs/ppo.md; the paper has no PPO.

    `GVFTask`s have targets over whole rollouts. A task of your own, pixel control and reward prediction minimize their
    loss of single steps, which bootstraps from the next observation.
    """

    learner: PPOLearner
    batch_size: int
    n_epochs: int
    clip_range: float | Schedule
    clip_range_vf: float | Schedule | None
    normalize_advantage: bool
    target_kl: float | None
    answer_lambda: float | None
    _learner_class = PPOLearner

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | VectorEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float | Schedule = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        auxiliary_task: str | Callable[[DGVFPPO], AuxiliaryTask] = "none",
        auxiliary_coefficient: float | Schedule = 0.03,
        auxiliary_weighting: AuxiliaryWeighting = "gradient-norm",
        encoder_mode: EncoderMode = "joint",
        questions: int = 128,
        question_discount: float | None = 0.9,
        answer_lambda: float | None = None,
        question_window: int = 1,
        question_encoder: QuestionEncoder = "independent",
        unroll_length: int = 10,
        objective: Objective = "sum",
        horizon: Horizon = "unrolled",
        convention: Convention = "exact",
        head_rate: float = 1.0,
        meta_learning_rate: float | Schedule = 3e-4,
        meta_epsilon: float = 1e-8,
        meta_max_grad_norm: float = 1.0,
        meta_max_discount_grad_norm: float | None = None,
        meta_skip_norm: float = 1e3,
        mixed_precision: bool = False,
        inner_optimizer: Optimizer | None = None,
        n_envs: int | None = None,
        monitor_wrapper: bool = True,
    ) -> None:
        """
        Args:
            policy: `"MlpPolicy"`, `"CnnPolicy"` or `"MultiInputPolicy"`, which are PPO's; `"PaperMlpPolicy"`,
                `"PaperCnnPolicy"` or `"ResNetPolicy"`, which have the paper's networks; or an actor-critic policy
                class.
            env: an environment id (see `n_envs`), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′, learning rate of the inner update (paper: searched in 1e-4 … 7e-3 on the gridworlds; 6e-4
                on Atari); a number, or a function of the remaining progress, which falls from 1 to 0.
            n_steps: T, steps per environment and update (paper: 5 on the gridworlds, 20 on Atari); PPO: per rollout.
            batch_size: steps in a minibatch.
            n_epochs: passes over a rollout.
            gamma: discount factor of the main task.
            gae_lambda: λ of the main task's returns; 1 gives the paper's multi-step returns. IMPALA: multiplies the
                ratios of traces.
            clip_range: ε: the ratio of probabilities counts up to 1 ± ε; a number, or a function of the remaining
                progress, which falls from 1 to 0.
            clip_range_vf: largest change of a value in an iteration; `None`: not clipped; a number, or a function of
                the remaining progress, which falls from 1 to 0.
            normalize_advantage: whether to normalize the advantages of a batch to mean 0 and standard deviation 1.
            ent_coef: c_H, entropy coefficient (paper: searched in 1e-4 … 0.05 on the gridworlds; 0.01 on Atari); a
                number, or a function of the remaining progress, which falls from 1 to 0.
            vf_coef: c_v, coefficient of the value loss, which is the mean squared error (paper: 0.5 of half the squared
                error).
            max_grad_norm: maximum norm of inner gradients, which are clipped to it (paper: 40 on Atari); `None`: no
                clipping.
            use_sde: whether to use generalized state-dependent exploration (gSDE), for continuous actions.
            sde_sample_freq: steps between new exploration matrices of gSDE; -1: one per rollout.
            rollout_buffer_class: class of `rollout_buffer`, which shows the last rollout: `RolloutBuffer` or
                `DictRolloutBuffer`; `None`: the one for the observation space.
            rollout_buffer_kwargs: keyword arguments of the rollout buffer.
            target_kl: an iteration ends before a step whose estimate of the KL divergence exceeds 1.5 times this;
                `None`: never.
            stats_window_size: number of episodes that logged means are taken over.
            tensorboard_log: folder for TensorBoard logs; `None`: no logs.
            policy_kwargs: keyword arguments of the policy.
            verbose: 0 for no output, 1 for info messages, 2 for debug messages.
            seed: seed of all random number generators; `None`: not seeded.
            device: device of the networks and updates: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, which uses CUDA if
                available.
            _init_setup_model: whether to build the networks at once.
            auxiliary_task: a name in `dgvf_agents.options.Task`, or a function that returns the task for the model; the
                model's policy is built by then.
            auxiliary_coefficient: c, weight of the auxiliary task; see `auxiliary_weighting` (paper, Atari: 1e-4; 1e-3
                for reward prediction); a number, or a function of the remaining progress, which falls from 1 to 0.
            auxiliary_weighting: `"fixed"` multiplies the auxiliary loss, a sum over questions, by c (paper);
                `"gradient-norm"` scales it so that the norm of its gradient at the features is c times the main task's,
                whatever the scale of rewards and cumulants.
            encoder_mode: losses that train the encoder: `"joint"`: the main task's and the auxiliary task's;
                `"auxiliary"`: the auxiliary task's alone (paper, section 4.1).
            questions: D, number of questions (paper: 128).
            question_discount: discount of all questions, in [0, 1); `None`: discounts are learned by the question
                network (paper).
            answer_lambda: λ of the answers' targets; `None`: `gae_lambda`.
            question_window: j, number of future observations that the question network sees.
            question_encoder: what the question network reads: `"independent"`: observations, with an encoder of its own
                (paper, representation learning); `"shared"`: the agent's features of future observations (paper, joint
                learning).
            unroll_length: L, inner updates that the meta-gradient passes through (paper: 10).
            objective: meta-loss: the `"sum"` of the losses of all θ_k in the unroll, or the loss at its `"end"`.
            horizon: `"unrolled"`: the meta-gradient of each θ_k passes through all k updates before it; `"myopic"`:
                only through the last of them (paper, appendix).
            convention: what the meta-gradient passes through: `"exact"` or `"surrogate"`; see
                `dgvf_agents.core.inner_update`.
            head_rate: learning rate of the policy and value heads, as a multiple of `learning_rate`.
            meta_learning_rate: α, learning rate of Adam on η (paper, Atari: 6e-4); a number, or a function of the
                remaining progress, which falls from 1 to 0.
            meta_epsilon: ε of Adam on η.
            meta_max_grad_norm: maximum norm of meta-gradients, which are clipped to it (paper, table 1: 1 for
                cumulants); may be infinite.
            meta_max_discount_grad_norm: separate maximum norm for the head that predicts discounts (paper, table 1:
                10); `None`: clipped together with all other meta-parameters.
            meta_skip_norm: meta-gradients whose norm is larger or not finite are skipped and counted; may be infinite.
            mixed_precision: whether the encoders of agent and question network compute matrix products and convolutions
                in bfloat16. Heads, losses, returns, parameters, optimizers and the accumulated meta-gradient stay
                float32.
            inner_optimizer: optimizer of the gradient steps, a `dgvf_agents.core.optimizers.Optimizer`; `None`: Adam,
                or the one selected by `optimizer_class`.
            n_envs: number of environments if `env` is an id; default: 16 for environments of `dgvf_envs`, and 1 for
                others, as in PPO. For any other `env`: its number of environments, or `None`.
            monitor_wrapper: whether to wrap an environment that is not vectorized in a `Monitor`.

        Raises:
            ValueError: an argument is out of its range; the message gives its name, its value and the allowed values.
        """
        super().__init__({name: value for name, value in locals().items() if name not in ("self", "__class__")})

    def _setup_model(self) -> None:
        self.use_rms_prop = self.compile = False
        self.storage, self.loss_reduction = "auto", "mean"
        super()._setup_model()
        if self.task.discovers and not isinstance(self.task, GVFTask):
            raise ValueError(
                f"auxiliary_task must be a GVFTask where it discovers questions, got a {type(self.task).__name__}: "
                "PPO computes the targets of its answers once per rollout"
            )
        kind: Any = type(self.task)
        if isinstance(self.task, GVFTask) and (kind.ask, kind.loss) != (GVFTask.ask, GVFTask.loss):
            raise ValueError(
                f"auxiliary_task must not override ask() or loss() of GVFTask, got a {kind.__name__}: PPO computes "
                "targets by windows() and ask_windows(), once per rollout; a loss of its own needs an AuxiliaryTask"
            )
        self._check_iteration()
        size = self.n_steps * self.n_envs
        if self.env is not None and size % self.batch_size:
            warnings.warn(
                f"batch_size should divide n_steps x n_envs = {size}, got {self.batch_size}: the last minibatch of "
                f"every epoch has {size % self.batch_size} steps",
                stacklevel=2,
            )

    def _check_iteration(self) -> None:
        check_hyperparameters(vars(self))
        if self.normalize_advantage and self.batch_size < 2:
            raise ValueError("batch_size must be at least 2 where normalize_advantage is True, got 1")

    def _act(self, functions: UpdateFunctions) -> Act:
        """Acts as Stable-Baselines3's PPO does: by the policy itself, and PyTorch's random number generator."""

        def act(theta: Params, observations: Observations, drawn: Tensor) -> SampledActions:
            actions = self.policy.get_distribution(observations).get_actions()
            return SampledActions(actions.reshape(-1, *self._distribution.action_shape))

        return act

    def _update(self, rollout: Rollout, settings: AnnealedSettings) -> None:
        self._check_iteration()
        progress = self._current_progress_remaining
        given, lambda_ = self.clip_range_vf, self.gae_lambda if self.answer_lambda is None else self.answer_lambda
        value = None if given is None else checked_value_at("clip_range_vf", given, progress)
        clipping, learner = Clipping(checked_value_at("clip_range", self.clip_range, progress), value), self.learner
        learner.ppo = PPOSettings(self.batch_size, self.n_epochs, clipping, self.target_kl, lambda_)
        metrics = learner.step(rollout, settings.learning_rate, settings.meta_learning_rate)
        self._n_updates += learner.epochs
        if self.verbose >= 1 and learner.ppo.went_too_far(learner.last.kl):
            print(f"Early stopping at step {learner.epochs - 1} due to reaching max kl: {learner.last.kl:.2f}")
        rows: dict[str, Any] = {"loss": learner.last.loss, "approx_kl": learner.kl, "clip_fraction": learner.clipped}
        rows |= {"policy_gradient_loss": metrics.policy_loss, "clip_range": clipping.policy, "clip_range_vf": value}
        for name, row in rows.items():
            if row is not None:
                self.logger.record(f"train/{name}", float(row))
        learner.check_finite()

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model. Arguments and the returned value are the same as for Stable-Baselines3's PPO.

        Raises:
            NotFiniteError: training has diverged. This is checked whenever metrics are logged, and at the end.
        """
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
