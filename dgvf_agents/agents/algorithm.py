"""One algorithm under all agents: it builds its parts, collects experience from a source, and lets a learner learn."""

from __future__ import annotations

import inspect
import io
import pathlib
import pickle
from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.agents.arguments import (
    RULE_SETTINGS,
    RULE_STRUCTURE,
    build_task,
    check_arguments,
    check_given,
    check_learning,
    check_rule_settings,
    compilation_of,
    inner_optimizer_for,
    policy_arguments,
)
from dgvf_agents.agents.collecting import Collector, ExperienceSource, as_vec_env, looks_at_steps, made_env
from dgvf_agents.agents.extractors import check_observation_space
from dgvf_agents.agents.functional_policy import PolicyFunctions, functional_policy
from dgvf_agents.agents.logging import Guidance, record, restore_log
from dgvf_agents.agents.persistence import (
    LearnerPart,
    load_model,
    on_device,
    optimizers_of,
    read_parameters,
    save_model,
)
from dgvf_agents.agents.policies import ALIASES
from dgvf_agents.agents.rollout import RolloutView
from dgvf_agents.agents.schedules import AnnealedSettings, checked_value_at, value_at
from dgvf_agents.core.argument_checks import check_flags, check_sizes, checked_seed, keywords_of
from dgvf_agents.core.distributions import ActionDistribution, distribution_for
from dgvf_agents.core.inner_update import Numbers, UpdateRule
from dgvf_agents.core.metrics import InnerMetrics, check_metrics
from dgvf_agents.core.networks import Act
from dgvf_agents.core.optimizers import Adam, Optimizer, RMSProp, norm_for_means, optimizer_for_means
from dgvf_agents.core.targets import OnPolicyTargets, TargetRule
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.devices import device_of_model, warn_of_slow_bfloat16
from dgvf_agents.execution.learner_group import LearnerGroup
from dgvf_agents.execution.packing import KEY
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.hyperparameters import check_hyperparameters
from dgvf_agents.learner import DiscoveryLearner, LearnerState, MetaSettings, SingleLearner
from dgvf_agents.options import EncoderMode, LossReduction, Mode, StorageChoice
from dgvf_agents.storage.state import TrainingState
from dgvf_envs.sb3_adapter import default_num_envs

Self = TypeVar("Self", bound="DiscoveryAlgorithm")

_OF_STABLE_BASELINES3 = frozenset(inspect.signature(OnPolicyAlgorithm.__init__).parameters)
"""Arguments that Stable-Baselines3 keeps; all others are attributes by the same name."""


class DiscoveryAlgorithm(OnPolicyAlgorithm, ABC):
    """Builds the learner and its parts from an algorithm's arguments, and keeps policy and learner in sync."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = ALIASES

    policy: ActorCriticPolicy
    """Its `optimizer` tells the class, arguments and learning rate; statistics are in `learner`."""
    learner: SingleLearner
    """What learns, and its state."""
    task: AuxiliaryTask
    """The auxiliary task."""
    answer_net: torch.nn.Linear | None
    """The answer head; `None` for a task without answers."""
    compilation: Compilation
    """Which updates run compiled."""

    auxiliary_task: str | Callable[..., AuxiliaryTask]
    auxiliary_coefficient: float | Schedule
    encoder_mode: EncoderMode
    storage: StorageChoice
    unroll_length: int
    questions: int
    question_discount: float | None
    meta_learning_rate: float | Schedule
    meta_epsilon: float
    inner_optimizer: Optimizer | None
    mixed_precision: bool
    compile: Mode
    loss_reduction: LossReduction
    use_rms_prop: bool
    action_noise: None
    learners: int = 1
    """Learners that train together, each with `n_envs` environments."""
    seconds: float = 0.0
    """Wall time of training before this process."""
    trained_on: str | None = None
    """Type of the device that a loaded model was saved on."""

    _default_num_envs: Callable[[str], int] = staticmethod(default_num_envs)  # if only an id is given
    _learner_class: type[SingleLearner] = DiscoveryLearner
    _functions: PolicyFunctions
    _collector: Collector
    _source: ExperienceSource  # of the next rollout: the collector, unless others act
    _checked_meta_settings: Sequence[Any] = ()
    _policy_theta: Params  # packed θ, which the policy's parameters are views of
    _stored_training: TrainingState | None = None  # of a model loaded without environment
    _stored_log: dict[str, Any] | None = None  # until there is a logger

    def __init__(self, arguments: dict[str, Any]) -> None:
        """
        Args:
            arguments: of the subclass's constructor, by name.

        Raises:
            ValueError: one is out of its range.
        """
        given = dict(arguments)
        env, n_envs, set_up = given.pop("env"), given.pop("n_envs"), given.pop("_init_setup_model")
        rate = given["learning_rate"]
        if env is None and set_up:
            raise ValueError("env must be an environment or its id, got None: load() makes models without one")
        if n_envs is not None:
            check_sizes(n_envs=n_envs)
        checked_value_at("learning_rate", rate, 1.0)
        check_given(given)
        given["seed"] = checked_seed(given["seed"])
        given |= {"learning_rate": rate if callable(rate) else float(rate), "device": device_of_model(given["device"])}
        own = {name: given.pop(name) for name in given.keys() - _OF_STABLE_BASELINES3}
        env = made_env(env, n_envs, given["seed"], self._default_num_envs)
        super().__init__(env=env, _init_setup_model=False, **given)  # type: ignore[arg-type]
        vars(self).update(own)
        if set_up:
            self._setup_model()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "policy" and "learner" in vars(self):
            raise ValueError(
                "policy must not be assigned once the model is made, since the learner trains the model's own: load "
                "weights into it, with model.policy.load_state_dict(policy.state_dict())"
            )
        super().__setattr__(name, value)

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
        if space is not None:
            check_observation_space(space)  # before Stable-Baselines3 makes arrays for observations
        return OnPolicyAlgorithm._wrap_env(as_vec_env(env), verbose, monitor_wrapper)  # type: ignore[arg-type]

    @property
    def metrics(self) -> InnerMetrics | None:
        """Metrics of the last inner update; `None` before the first."""
        return self.learner.metrics

    @property
    def meta_updates(self) -> int:
        """Meta-updates so far."""
        return self.learner.meta_updates

    @property
    def meta_skipped(self) -> int:
        """Meta-gradients skipped so far."""
        return self.learner.meta_skipped

    @property
    def question_net(self) -> LearnerPart:
        """η, with state dicts like a network's."""
        return LearnerPart("eta", lambda: self.learner.eta, self.learner.set_eta)

    @property
    def optimizers(self) -> LearnerPart:
        """The inner optimizer and Adam on η, with state dicts."""
        return optimizers_of(self.learner)

    def _setup_model(self) -> None:
        check_arguments(vars(self))
        check_observation_space(self.observation_space)
        if self.mixed_precision:
            warn_of_slow_bfloat16(self.device)
        self._setup_lr_schedule()
        distribution_for(self.action_space)  # before Stable-Baselines3's message about other spaces
        self.set_random_seed(self.seed)
        self._setup_policy()
        self._distribution: ActionDistribution = distribution_for(self.action_space, self.policy.squash_output)
        with torch.random.fork_rng(devices=[]):  # the agent's own draws are the same with every task
            self.task = build_task(self)
            kind = self.mixed_precision, self.task.discovers, self.storage == "recompute", self.learners
            self._functions, self.answer_net = functional_policy(self.policy, self.task.num_answers, *kind)
        eta = {name: value.to(self.device) for name, value in self.task.initial_meta_params().items()}
        self.compilation = compilation_of(self)
        update_functions, theta = self._update_functions(eta), self._functions.params()
        self.learner = self._learner_class(
            update_functions,
            theta,
            self._optimizer.init(theta),
            eta,
            discovers=self.task.discovers,
            settings=self._meta_settings(),
            meta_epsilon=norm_for_means(self.meta_epsilon, self._samples_per_unit),
        )
        self._sync_policy()
        self._source = self._collector = Collector(
            self.policy,
            self._act(update_functions),
            self._distribution,
            self.compilation,
            lambda: self.learner.updates,
            n_steps=self.n_steps,
            num_envs=self.n_envs,
            sde_sample_freq=self.sde_sample_freq,
            off_policy=update_functions.rule.targets.off_policy,
            needs_final_observation=self.task.needs_final_observation,
            index_terminated=self.task.reads_features,
        )
        if self.seed is not None:
            self._collector.seed(self.seed)
        self._rollout: Rollout | None = None
        self._guidance = Guidance()
        buffer = (self.rollout_buffer_class, self.n_steps, self.n_envs, self.rollout_buffer_kwargs)
        with keywords_of("rollout_buffer_kwargs", self.rollout_buffer_kwargs):
            self.rollout_buffer = RolloutView(self.policy, self._functions.show, *buffer)  # type: ignore[assignment]

    def _setup_policy(self) -> None:
        """The policy, and the inner optimizer that its `optimizer_class` stands for."""
        kwargs = policy_arguments(self)
        given = kwargs["optimizer_class"], kwargs.get("optimizer_kwargs")
        with keywords_of("policy_kwargs", self.policy_kwargs):
            optimizer = self.inner_optimizer or inner_optimizer_for(*given)
            self._optimizer: Optimizer = optimizer_for_means(optimizer, self._samples_per_unit)
            self.policy = self.policy_class(  # type: ignore[assignment]
                self.observation_space, self.action_space, self.lr_schedule, use_sde=self.use_sde, **kwargs
            ).to(self.device)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, over all learners."""
        return self.n_steps * self.n_envs * self.learners

    @property
    def _group(self) -> LearnerGroup | None:
        """The learners that train together; `None`: this one alone."""
        return LearnerGroup(self.learners, self.device) if self.learners > 1 else None

    @property
    def _samples_per_unit(self) -> int:
        """Number of samples in the loss that gradient norms and ε refer to: N of `norm_for_means`."""
        return self.steps_per_update if self.loss_reduction == "sum" else 1

    def _norm(self, norm: float | None) -> float | None:
        """A maximum gradient norm for losses that are means, as the learner's are."""
        return None if norm is None else norm_for_means(norm, self._samples_per_unit)

    def _update_functions(self, eta: Params) -> UpdateFunctions:
        """Functions of the attributes as they are now."""
        rule = UpdateRule(
            network=self._functions,
            distribution=self._distribution,
            task=self.task,
            optimizer=self._optimizer,
            numbers=self._numbers(),
            targets=self._targets(),
            averaging=self._group,
            **{name: getattr(self, name) for name in RULE_STRUCTURE},
        )
        self._applied_settings = self._rule_settings()
        return UpdateFunctions(rule, eta, self.compilation)

    def _numbers(self) -> Numbers:
        """The numbers of updates, of the attributes as they are now."""
        return Numbers(
            gamma=float(self.gamma),
            vf_coef=float(self.vf_coef),
            auxiliary_coefficient=value_at(self.auxiliary_coefficient, 1.0),
            max_grad_norm=self._norm(self.max_grad_norm),
            epsilon=self._optimizer.epsilon if isinstance(self._optimizer, RMSProp | Adam) else None,
        )

    def _targets(self) -> TargetRule:
        """Targets of the main task."""
        return OnPolicyTargets()

    def _act(self, functions: UpdateFunctions) -> Act:
        """Samples actions."""
        return functions.packed.act

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        check_learning(self.env, tb_log_name)
        self._functions.check_policy()
        last_obs = self._last_obs
        result = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        if self._last_obs is not last_obs:  # the environment was reset
            self._collector.end()
        log, self._stored_log = self._stored_log, None
        if log is not None:
            restore_log(self.logger, log)
        remaining = max(0, self._total_timesteps - self.num_timesteps)
        self.compilation.last_update = self.learner.updates + -(-remaining // self.steps_per_update)
        if self.verbose >= 1 or progress_bar:
            self.compilation.tell = print
        return result

    def _meta_settings(self) -> MetaSettings:
        given: dict[str, Any] = {name: getattr(self, name) for name in MetaSettings.__dataclass_fields__}
        given |= {name: self._norm(norm) for name, norm in given.items() if name.endswith("_norm")}
        if self.storage == "auto" and self._functions.random_in_training:
            given["storage"] = "graph"  # dropout cannot be repeated
        return MetaSettings(**given)

    def _rule_settings(self) -> list[Any]:
        """What the update rule is built from, and which parameters are frozen."""
        return [getattr(self, name, None) for name in RULE_SETTINGS] + [self._functions.frozen]

    def _apply_settings(self) -> None:
        if self._rule_settings() != self._applied_settings:
            check_rule_settings(vars(self))
            self.learner.set_functions(self._update_functions(self.learner.eta))
        given = [getattr(self, name) for name in MetaSettings.__dataclass_fields__]
        if given != self._checked_meta_settings:
            check_hyperparameters(vars(self))
            self._checked_meta_settings, self.learner.settings = given, self._meta_settings()

    def _sync_policy(self) -> None:
        self._policy_theta = self.learner.packed_state.theta
        self._functions.show(self._policy_theta[KEY])

    def _prepare_update(self) -> None:
        """Let changed attributes and weights written into the policy take effect."""
        self._apply_settings()
        if not self._functions.shows(self._policy_theta[KEY]):
            self.learner.set_theta(self._functions.params())
            self._sync_policy()

    def annealed_settings(self) -> AnnealedSettings:
        """The schedules' values for the next update.

        Raises:
            ValueError: a schedule returns something else than a number in its range.
        """
        return AnnealedSettings.of(self)

    def set_state(self, learner: LearnerState, rollout: Rollout | None) -> None:
        """Set the learner's state after updates that were made elsewhere.

        Args:
            learner: its state.
            rollout: the last rollout; `None` if there was none.
        """
        self.learner.set_state(learner)
        self._n_updates, self._rollout = learner.updates, rollout
        self._sync_policy()

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment.

        Returns:
            false if a callback, of any of the learners, stopped training.
        """
        goes_on = self._collect(env, callback, rollout_buffer, n_rollout_steps)
        return goes_on if self._group is None else self._group.all(goes_on)

    def _collect(self, env: VecEnv, callback: BaseCallback, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        if n_rollout_steps != (source := self._source).n_steps:
            raise ValueError(
                f"n_steps must be {source.n_steps}, as when the model was set up, got {n_rollout_steps}: pass a "
                "different value to load() or to a new model"
            )
        if not source.collecting:  # otherwise a loaded model continues in the middle of a rollout
            callback.on_rollout_start()
        source.start(env, self._last_episode_starts, stepwise=looks_at_steps(callback))
        try:
            while source.steps < n_rollout_steps:
                n_steps = source.steps  # as Stable-Baselines3's callbacks know it
                step = source.advance(self._policy_theta, self._last_obs, env)  # type: ignore[arg-type]
                actions, new_obs, rewards, dones, infos, news = step
                self.num_timesteps += (source.steps - n_steps) * self.n_envs * self.learners
                for ended in news:
                    self._update_info_buffer(*ended)
                if new_obs is not None:
                    self._last_obs, self._last_episode_starts = new_obs, dones
                callback.update_locals(locals())
                if not callback.on_step():  # must be last: a callback may save the model
                    return False
            self._rollout = source.finish(self._functions.statistics())
            factors = (self.gamma, self.gae_lambda)
            self.rollout_buffer.show(self._rollout, source.starts, self._policy_theta[KEY], *factors)  # type: ignore[attr-defined]
            callback.update_locals(locals())
            callback.on_rollout_end()
        finally:
            source.end()
        return True

    def train(self) -> None:
        """Perform one step of Algorithm 1 on the last rollout."""
        assert self._rollout is not None
        self._prepare_update()
        self._update_learning_rate(self.policy.optimizer)
        settings = self.annealed_settings()
        rollout = settings.batch(self._rollout)
        try:
            self._update(rollout, settings)
        finally:  # also where it was interrupted
            self._sync_policy()
        self._functions.update_statistics(rollout.observations)
        if self._guidance.watches_inputs:
            self._guidance.see_inputs(*self._functions.inputs(rollout.observations))

    def _update(self, rollout: Rollout, settings: AnnealedSettings) -> None:
        self.learner.step(rollout, settings.learning_rate, settings.meta_learning_rate)
        self._n_updates += 1

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train the model, as Stable-Baselines3's algorithms do. TensorBoard shows the class as the run's name.

        Raises:
            NotFiniteError: training has diverged. This is checked whenever metrics are logged, and at the end.
        """
        name = type(self).__name__ if tb_log_name is None else tb_log_name
        super().learn(total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar)
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
        self.learner.check_finite()  # the effect of the last update shows in no loss yet
        return self

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Actions as environments get them in training: within the action space, and of its data type."""
        actions, state = super().predict(observation, state, episode_start, deterministic)
        return actions.astype(self.action_space.dtype, copy=False), state

    def dump_logs(self, iteration: int = 0) -> None:
        if self.metrics is not None:
            check_metrics(self.metrics, self._n_updates)
            record(self, self._guidance)
        super().dump_logs(iteration)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed all that is random, as Stable-Baselines3's A2C does; actions from the next rollout on."""
        super().set_random_seed(seed)
        if seed is not None and hasattr(self, "_collector"):
            self._collector.seed(seed)

    def set_parameters(
        self,
        load_path_or_dict: str | pathlib.Path | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Take parameters, as Stable-Baselines3's A2C does; they go where the model is, whatever `device` says.

        An unroll in progress restarts.

        Raises:
            DamagedFileError: a file is in neither format, not as it was written, or of another model.
        """
        given = load_path_or_dict
        state = given if isinstance(given, dict) else read_parameters(self, given)
        super().set_parameters(on_device(state, self.device), exact_match, device)
        self.learner.set_theta(self._functions.params())
        self._sync_policy()

    def save(
        self,
        path: str | pathlib.Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write the model and where it stands in training to a file, atomically.

        The file holds JSON and tensors (`dgvf_agents.storage.model_file`): the constructor's arguments, the learner's
        state and Stable-Baselines3's own attributes. What JSON and tensors cannot express, such as a function of the
        user's, is pickled beside them, and `load` ignores it unless it is told to trust the file.

        A model may be saved at any time, by a callback too. On the same machine and on the CPU, training continued from
        the file is bitwise equal to training that was never interrupted, if the environment can give its state: those
        of `dgvf_envs` can, under the wrappers that `dgvf_envs.functional.env_state` names. With any other, episodes and
        the unroll restart.

        Args:
            path: where to; gets the ending `.zip` if it has none. Or a file open for writing in binary.
            exclude: attributes to leave out.
            include: other attributes to keep, beside public ones of your own with plain data.

        Raises:
            NotFiniteError: training has diverged; nothing is written.
            TypeError: an attribute is of a kind that not even pickle can write; the message names it.
            ValueError: `include` names what is no attribute, or what `load` would not restore.
        """
        save_model(self, path, exclude, include)

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

        No code in the file is run unless `trusted`: nothing in our files is unpickled, and of Stable-Baselines3's only
        the weights are, by `torch.load(weights_only=True)`, which builds tensors and plain containers and nothing else.
        A warning names what only a pickle holds; if no model can be built without it, an error does. `custom_objects`
        can replace it.

        To continue training, pass an environment made like the one in the file:
        `load(path, env).learn(steps, reset_num_timesteps=False)`. Its state, and the random number generators' states
        of Python, NumPy and PyTorch, are then restored.

        Args:
            path: the file, with or without the ending `.zip`, or a file open for reading in binary.
            env: the environment; `None` to predict only.
            device: for the networks.
            custom_objects: attributes to take in place of those in the file, by name.
            print_system_info: whether to print the versions that the model was saved with, and those installed.
            force_reset: true: the environment is reset. False: it continues from where it is, or was when the model
                was saved. `None`: it continues if it takes the state in the file, and is reset if not.
            trusted: whether to unpickle. Whoever wrote the file can then run any code here.
            kwargs: attributes to change.

        Raises:
            DamagedFileError: the file is in neither format, or not as it was written; the message names the file and
                what in it is wrong.
            ValueError: the environment or an argument does not fit the file, or the file holds an attribute that the
                model needs as a pickle only.
        """
        check_flags(trusted=trusted)
        given = (path, env, device, custom_objects, print_system_info, force_reset, trusted, kwargs)
        return load_model(cls, *given)

    @classmethod
    def _env_to_wrap(cls, env: Any, attributes: dict[str, Any]) -> Any:
        """The environment that `load` was given, for a model with these attributes."""
        return env

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle is the file of `save`, and the environment.

        Raises:
            TypeError: the environment cannot be pickled.
        """
        try:
            pickle.dumps(self.env)
        except Exception as error:
            raise TypeError(
                f"env must be such that it can be pickled, got {self.env} ({error}): use save(path) and load(path, env)"
            ) from error
        buffer = io.BytesIO()
        self.save(buffer)
        load = partial(type(self).load, trusted=True)  # whoever unpickles trusts
        return load, (io.BytesIO(buffer.getvalue()), self.env, str(self.device))

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        answers = ["answer_net"] if self.answer_net is not None else []
        questions = ["question_net"] if self.learner.eta else []
        return ["policy", *answers, *questions, "optimizers"], []
