"""DGVFA2C: advantage actor-critic with an auxiliary task, as a Stable-Baselines3 algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.options import (
    AuxiliaryWeighting,
    Convention,
    EncoderMode,
    Horizon,
    LossReduction,
    Mode,
    Objective,
    QuestionEncoder,
    RMSPropRule,
    StorageChoice,
)

Self = TypeVar("Self", bound="DGVFA2C")


class DGVFA2C(DiscoveryAlgorithm):
    """Advantage actor-critic with an auxiliary task. By default there is none, and it learns what A2C learns.

    It is used like any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFA2C
    >>> model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", auxiliary_task="discovered").learn(1_000_000)  # doctest: +SKIP

    The positional arguments are Stable-Baselines3's A2C's, in the same order and with the same defaults. By
    default, the main task and the auxiliary task train the encoder jointly. The paper's settings are the presets of
    `dgvf train`; `dgvf_agents.train.train.build` makes a model from a preset.
    """

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
        rms_prop: RMSPropRule = "pytorch",
        rms_prop_decay: float = 0.99,
        loss_reduction: LossReduction = "mean",
        auxiliary_task: str | Callable[[DGVFA2C], AuxiliaryTask] = "none",
        auxiliary_coefficient: float | Schedule = 0.03,
        auxiliary_weighting: AuxiliaryWeighting = "gradient-norm",
        encoder_mode: EncoderMode = "joint",
        questions: int = 128,
        question_discount: float | None = 0.9,
        question_window: int = 1,
        question_encoder: QuestionEncoder = "independent",
        unroll_length: int = 10,
        objective: Objective = "sum",
        horizon: Horizon = "unrolled",
        convention: Convention = "exact",
        head_rate: float = 1.0,
        storage: StorageChoice = "auto",
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
            policy: `"MlpPolicy"`, `"CnnPolicy"` or `"MultiInputPolicy"`, which are A2C's; `"PaperMlpPolicy"`,
                `"PaperCnnPolicy"` or `"ResNetPolicy"`, which have the paper's networks; or an actor-critic policy
                class.
            env: an environment id (see `n_envs`), a Gymnasium environment or vector environment, or a `VecEnv`.
            learning_rate: α′, learning rate of the inner update (paper: searched in 1e-4 … 7e-3 on the gridworlds; 6e-4
                on Atari); a number, or a function of the remaining progress, which falls from 1 to 0.
            n_steps: T, steps per environment and update (paper: 5 on the gridworlds, 20 on Atari); PPO: per rollout.
            gamma: discount factor of the main task.
            gae_lambda: λ of the main task's returns; 1 gives the paper's multi-step returns. IMPALA: multiplies the
                ratios of traces.
            ent_coef: c_H, entropy coefficient (paper: searched in 1e-4 … 0.05 on the gridworlds; 0.01 on Atari); a
                number, or a function of the remaining progress, which falls from 1 to 0.
            vf_coef: c_v, coefficient of the value loss, which is the mean squared error (paper: 0.5 of half the squared
                error).
            max_grad_norm: maximum norm of inner gradients, which are clipped to it (paper: 40 on Atari); `None`: no
                clipping.
            rms_prop_eps: ε of RMSProp (paper: 1e-5 on the gridworlds, 0.1 on Atari).
            use_rms_prop: whether to use RMSProp, as A2C does (see `rms_prop`), or Adam with ε = 1e-5. `optimizer_class`
                in `policy_kwargs` takes precedence.
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
            rms_prop: convention of RMSProp: `"pytorch"`: ε outside the square root, initial second moment 0;
                `"tensorflow"`: ε inside the square root, initial second moment 1, as in IMPALA. The paper does not say.
            rms_prop_decay: decay of RMSProp's second moment (paper: 0.99).
            loss_reduction: losses that `max_grad_norm`, the maximum norms of meta-gradients, `meta_skip_norm` and the ε
                of both optimizers refer to: `"mean"` over time and batch, or `"sum"` as in IMPALA. The learner's
                losses, and those logged, are always means; values for sums are converted, and steps are equal.
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
            storage: `"graph"` stores the graph of the unroll and is faster; `"recompute"` uses less memory; `"auto"`:
                the first of them that fits in the memory that is free when training begins.
            meta_learning_rate: α, learning rate of Adam on η (paper, Atari: 6e-4); a number, or a function of the
                remaining progress, which falls from 1 to 0.
            meta_epsilon: ε of Adam on η.
            meta_max_grad_norm: maximum norm of meta-gradients, which are clipped to it (paper, table 1: 1 for
                cumulants); may be infinite.
            meta_max_discount_grad_norm: separate maximum norm for the head that predicts discounts (paper, table 1:
                10); `None`: clipped together with all other meta-parameters.
            meta_skip_norm: meta-gradients whose norm is larger or not finite are skipped and counted; may be infinite.
            inner_optimizer: optimizer of the inner update, a `dgvf_agents.core.optimizers.Optimizer`; `None`: the one
                selected by `use_rms_prop` and `optimizer_class`.
            mixed_precision: whether the encoders of agent and question network compute matrix products and convolutions
                in bfloat16. Heads, losses, returns, parameters, optimizers and the accumulated meta-gradient stay
                float32.
            n_envs: number of environments if `env` is an id; default: 16 for environments of `dgvf_envs`, as in the
                paper, and 1 for others, as in A2C. For any other `env`: its number of environments, or `None`.
            monitor_wrapper: whether to wrap an environment that is not vectorized in a `Monitor`.
            compile: whether updates run compiled, which is faster and gives equal results up to rounding. `"auto"`:
                training starts at once, on the CPU other processes compile meanwhile, and updates from the 1,000th on
                run compiled, in calls of `learn` that end after the 4,000th or later. Updates with dropout are never
                compiled.

        Raises:
            ValueError: an argument is out of its range; the message gives its name, its value and the allowed values.
        """
        super().__init__({name: value for name, value in locals().items() if name not in ("self", "__class__")})
