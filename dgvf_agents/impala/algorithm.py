"""DGVFImpala: IMPALA with an auxiliary task, as a Stable-Baselines3 algorithm."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar, final

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.arguments import policy_arguments
from dgvf_agents.agents.persistence import constructor_arguments
from dgvf_agents.core.argument_checks import check_sizes, checked_seed
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.core.targets import TargetRule, VTraceTargets
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.execution.learner_group import LearnerGroup, check_group, rank
from dgvf_agents.execution.packing import KEY
from dgvf_agents.impala.actors import ActorSpec, EnvFactory, RemoteEnvs, factory_of, wrapped
from dgvf_agents.impala.cluster import AUTHENTICATION, shared_address
from dgvf_agents.impala.fleet import ActorFleet, FleetSource
from dgvf_agents.impala.settings import ActorSettings, check_actors
from dgvf_agents.impala.transport import Parameters, batch_of
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

Self = TypeVar("Self", bound="DGVFImpala")


BATCH_SIZE = 32
"""Trajectories per batch (paper, table 1)."""

_LOCAL = ("actors", "compile", "device", "envs_per_actor", "seed", "stats_window_size", "tensorboard_log", "verbose")
"""Constructor arguments that need not be the same in all learners."""


@final
class DGVFImpala(DiscoveryAlgorithm):
    """IMPALA (Espeholt et al. 2018): an actor-critic with V-trace, and with an auxiliary task. By default, the task is
    to answer discovered questions.

    It is used like any Stable-Baselines3 algorithm:

    >>> from dgvf_agents import DGVFImpala
    >>> model = DGVFImpala("PaperCnnPolicy", "CollectObjectsSmall-v0").learn(1_000_000)  # doctest: +SKIP

    The defaults are the paper's hyperparameters of joint learning on Atari (appendix, table 1). They refer to losses
    that are summed over time and batch; see `loss_reduction`. The policy with the paper's network is `"ResNetPolicy"`.

    By default, acting and learning take turns in one process. Actions are sampled from the latest parameters, so
    importance ratios are 1 up to rounding, and V-trace's targets are multi-step returns. With `actors`, other processes
    act with slightly older parameters while this one learns. Steps are counted when they are learned from, and
    callbacks' `on_step` is called once per batch.
    """

    rho_bar: float
    c_bar: float
    actors: int
    envs_per_actor: int | None
    actor_settings: ActorSettings | None
    _fleet: ActorFleet | None = None
    _common: tuple[Any, ...] = ()  # what all learners had when they last trained together

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | VectorEnv | EnvFactory | str | None,
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
        auxiliary_coefficient: float | Schedule = 1e-4,
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
        head_rate: float = 1.0,
        storage: StorageChoice = "auto",
        meta_learning_rate: float | Schedule = 6e-4,
        meta_epsilon: float = 1e-8,
        meta_max_grad_norm: float = 1.0,
        meta_max_discount_grad_norm: float | None = 10.0,
        meta_skip_norm: float = 1e6,
        inner_optimizer: Optimizer | None = None,
        mixed_precision: bool = False,
        n_envs: int | None = None,
        actors: int = 0,
        envs_per_actor: int | None = None,
        actor_settings: ActorSettings | None = None,
        learners: int = 1,
        monitor_wrapper: bool = True,
        compile: Mode = "auto",
    ) -> None:
        """
        Args:
            policy: `"ResNetPolicy"`, `"PaperCnnPolicy"`, `"MlpPolicy"`, `"MultiInputPolicy"`, `"PaperMlpPolicy"`, or an
                actor-critic policy class.
            env: an environment id (see `n_envs`), a Gymnasium environment or vector environment, a `VecEnv`, or a
                function `(num_envs, seed) -> vector environment`. With actors: an id or a function, because actors make
                their environments themselves.
            learning_rate: α′, learning rate of the inner update (paper: searched in 1e-4 … 7e-3 on the gridworlds; 6e-4
                on Atari); a number, or a function of the remaining progress, which falls from 1 to 0.
            n_steps: T, steps per environment and update (paper: 5 on the gridworlds, 20 on Atari); PPO: per rollout.
            gamma: discount factor of the main task.
            rho_bar: ρ̄ > 0, bound of the importance ratios of temporal differences and of the policy gradient.
            c_bar: c̄ > 0, bound of the importance ratios of traces, at most `rho_bar`.
            gae_lambda: λ of the main task's returns; 1 gives the paper's multi-step returns. IMPALA: multiplies the
                ratios of traces.
            ent_coef: c_H, entropy coefficient (paper: searched in 1e-4 … 0.05 on the gridworlds; 0.01 on Atari); a
                number, or a function of the remaining progress, which falls from 1 to 0.
            vf_coef: c_v, coefficient of the value loss, which is the mean squared error (paper: 0.5 of half the squared
                error).
            max_grad_norm: maximum norm of inner gradients, which are clipped to it (paper: 40 on Atari); `None`: no
                clipping.
            rms_prop: convention of RMSProp: `"pytorch"`: ε outside the square root, initial second moment 0;
                `"tensorflow"`: ε inside the square root, initial second moment 1, as in IMPALA. The paper does not say.
            rms_prop_eps: ε of RMSProp (paper: 1e-5 on the gridworlds, 0.1 on Atari).
            rms_prop_decay: decay of RMSProp's second moment (paper: 0.99).
            loss_reduction: losses that `max_grad_norm`, the maximum norms of meta-gradients, `meta_skip_norm` and the ε
                of both optimizers refer to: `"mean"` over time and batch, or `"sum"` as in IMPALA. The learner's
                losses, and those logged, are always means; values for sums are converted, and steps are equal.
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
                selected by `rms_prop`.
            mixed_precision: whether the encoders of agent and question network compute matrix products and convolutions
                in bfloat16. Heads, losses, returns, parameters, optimizers and the accumulated meta-gradient stay
                float32.
            n_envs: the trajectories of a batch: number of environments if `env` is an id or a function; default: 32, as
                in the paper. For any other `env`: its number of environments, or `None`.
            actors: number of distributed actors, which collect rollouts while the learner learns; needs Ray. 0: acting
                and learning take turns in this process.
            envs_per_actor: number of environments of each actor, a divisor of `n_envs`. A batch is made of the next
                `n_envs / envs_per_actor` rollouts that arrive, from whichever actors. Default: the largest divisor that
                lets each actor contribute one rollout, or 1.
            actor_settings: how actors are called and supervised; `None`: the defaults of `ActorSettings`.
            learners: number of learners that train together, each in a process of its own with `n_envs` trajectories
                and with `actors`: the processes of `torch.distributed`. Together they are one learner whose batch has
                `learners` x `n_envs` trajectories.
            monitor_wrapper: whether to wrap an environment that is not vectorized in a `Monitor`.
            compile: whether updates run compiled; see `DGVFA2C`. Those of several learners never do.

        Raises:
            ValueError: an argument is out of its range; the message gives its name, its value and the allowed values.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        seed = checked_seed(seed)
        super().__init__({**given, "env": _environments(env, n_envs, seed, actors)})

    @staticmethod
    def _default_num_envs(env_id: str) -> int:
        return BATCH_SIZE

    def _setup_model(self) -> None:
        self.normalize_advantage, self.use_rms_prop = False, True
        check_sizes(learners=self.learners)
        check_actors(self.actors, self.envs_per_actor)
        if self.envs_per_actor is not None and self.n_envs % self.envs_per_actor:
            raise ValueError(f"envs_per_actor must divide n_envs = {self.n_envs}, got {self.envs_per_actor!r}")
        if not (self.actor_settings is None or isinstance(self.actor_settings, ActorSettings)):
            raise ValueError(f"actor_settings must be None or an ActorSettings, got {self.actor_settings!r}")
        super()._setup_model()

    def _targets(self) -> TargetRule:
        return VTraceTargets(self.rho_bar, self.c_bar)

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 10,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model. Arguments and the returned value are the same as for Stable-Baselines3's algorithms.

        Raises:
            LearnerGroupError: `torch.distributed` does not connect `learners` processes.
            NotFiniteError: training has diverged. This is checked whenever metrics are logged, and at the end.
            ValueError: learners have different settings.
        """
        bar = progress_bar and self._learner_index == 0
        arguments = (total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, bar)
        plan = {"total_timesteps": total_timesteps, "reset_num_timesteps": reset_num_timesteps}
        with nullcontext() if (group := self._group) is None else self._in_step(group, plan):
            if not self.actors:
                return super().learn(*arguments)
            resumed = self.learner.updates > 0
            self._fleet = ActorFleet(self._actor_spec(), self.actors, self._fleet_settings(), resumed)
            batch = partial(batch_of, device=self.device, index_terminated=self.task.reads_features)
            rollouts = self.n_envs // self._envs_per_actor
            self._source = FleetSource(self._fleet, self.n_steps, rollouts, self._parameters, batch)
            try:
                return super().learn(*arguments)
            finally:
                self._fleet.stop()
                self._fleet, self._source = None, self._collector

    def dump_logs(self, iteration: int = 0) -> None:
        if self._fleet is not None:
            self._fleet.record(self.logger)
        super().dump_logs(iteration)

    @property
    def _envs_per_actor(self) -> int:
        """By default the largest divisor of `n_envs` that lets each actor contribute a rollout to a batch, or 1."""
        sizes = range(1, max(1, self.n_envs // self.actors) + 1)
        return self.envs_per_actor or max(size for size in sizes if self.n_envs % size == 0)

    def _fleet_settings(self) -> ActorSettings:
        """Settings of this learner's actors. All learners use the cluster of learner 0, in namespaces of their own."""
        settings, index, group = self.actor_settings or ActorSettings(), self._learner_index, self._group
        if group is None:
            return settings
        address = shared_address(settings.address, self.actors * self.learners) if index == 0 else None
        address, mode = group.from_first((address, os.environ.get(AUTHENTICATION)))
        if mode is not None:  # Ray sets it where it starts a cluster, and asks for a token then
            os.environ[AUTHENTICATION] = mode
        namespace = f"{settings.namespace}-{index}" if settings.namespace and index else settings.namespace
        return dataclasses.replace(settings, address=address, namespace=namespace)

    def _parameters(self) -> Parameters:
        """Parameters that actors act with."""
        self._prepare_update()  # weights may have been written into the policy
        statistics = {name: value.cpu().numpy() for name, value in self._functions.statistics().items()}
        return Parameters(self.learner.updates, self._policy_theta[KEY].cpu().numpy(), statistics)

    def _actor_spec(self) -> ActorSpec:
        names = ("n_steps", "policy_class", "observation_space", "action_space", "use_sde", "sde_sample_freq")
        return ActorSpec(
            environment=factory_of(self.env, self.actors),
            num_envs=self._envs_per_actor,
            seed=self.seed if self.seed is None or self._learner_index == 0 else _seed(self.seed, self._learner_index),
            policy_kwargs=policy_arguments(self),
            num_answers=self.task.num_answers,
            mixed_precision=self.mixed_precision,
            needs_final_observation=self.task.needs_final_observation,
            **{name: getattr(self, name) for name in names},
        )

    @classmethod
    def _env_to_wrap(cls, env: Any, attributes: dict[str, Any]) -> Any:
        return _environments(env, attributes.get("n_envs"), attributes.get("seed"), attributes.get("actors", 0))

    # --- several learners ---------------------------------------------------------------------------------------------

    @property
    def _learner_index(self) -> int:
        """Which of the learners this one is, 0 … P - 1."""
        return rank() if self.learners > 1 else 0

    @contextmanager
    def _in_step(self, group: LearnerGroup, plan: Mapping[str, Any]) -> Iterator[None]:
        """Train in step with the other learners, each in a process of its own, with equal θ and η.

        They all start from the state of learner 0, which logs. Updates average over their batches, so they stay equal.

        Args:
            group: the learners.
            plan: arguments of `learn` that must be the same in all learners.

        Raises:
            LearnerGroupError: `torch.distributed` does not connect the learners.
            ValueError: learners have different settings.
        """
        check_group(self.learners)
        self._check_settings(group, plan)
        if self._learner_index and not self._custom_logger:
            self.set_logger(Logger(None, []))
        self._prepare_update()  # weights may have been written into the policy
        now = (self.learner.packed_state, self.learner.packed_eta)  # updates create new tensors
        unchanged = bool(self._common) and all(one is other for one, other in zip(now, self._common, strict=True))
        if not group.all(unchanged):
            self._start_from_first(group)
        yield
        self._common = (self.learner.packed_state, self.learner.packed_eta)
        group.all(True)  # leave together: others may still use what learner 0 started

    def _check_settings(self, group: LearnerGroup, plan: Mapping[str, Any]) -> None:
        if self.get_vec_normalize_env() is not None:
            raise ValueError(
                f"env must not be a VecNormalize for learners = {self.learners}: each learner would have its own "
                "statistics"
            )
        own = vars(self)
        names = [name for name in constructor_arguments(type(self)) if name not in _LOCAL]
        given = {name: own[name] for name in names if isinstance(own.get(name, self), int | float | str | None)}
        first, *others = group.of_each({**given, **plan})
        for index, other in enumerate(others, 1):
            for name in first:
                if first[name] != other.get(name):
                    raise ValueError(
                        f"{name} must be the same in all learners, got {first[name]!r} in learner 0 and "
                        f"{other.get(name)!r} in learner {index}"
                    )

    def _start_from_first(self, group: LearnerGroup) -> None:
        """Take the state of learner 0. The unroll in progress restarts; learner 0 alone continues its episodes."""
        if self._collector.collecting:  # in the middle of a rollout, as a loaded model may be
            self.num_timesteps -= self._collector.steps * self.n_envs * self.learners
            self._collector.end()
        state = tree_map_only(torch.Tensor, torch.Tensor.cpu, self.learner.get_state()._replace(unroll=None))
        state, self.num_timesteps = group.from_first((state, self.num_timesteps))
        self.set_state(state, self._rollout)
        if index := self._learner_index:
            self.set_random_seed(_seed(self.seed, index, state.updates))
            self._last_obs = None


def _environments(env: Any, n_envs: int | None, seed: int | None, actors: int) -> Any:
    """The learner's environment: made if a function is given, and a stand-in if actors make theirs."""
    count = BATCH_SIZE if n_envs is None else n_envs
    check_sizes(n_envs=count)
    if actors and env is not None:
        return env if isinstance(env, RemoteEnvs) else RemoteEnvs(factory_of(env, actors), count)
    if callable(env) and not isinstance(env, gym.Env | VectorEnv | VecEnv | str):
        return wrapped(env, count, seed)
    return env


def _seed(seed: int | None, *where: int) -> int:
    """A seed that differs from the run's."""
    return int(np.random.SeedSequence(None if seed is None else [seed, *where]).generate_state(1)[0]) >> 1
