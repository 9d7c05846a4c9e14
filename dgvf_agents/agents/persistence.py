"""An algorithm that is saved with its learner and where it stands in training, and continues from there."""

from __future__ import annotations

import inspect
import io
import pathlib
import warnings
from abc import ABC
from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common import buffers, torch_layers
from stable_baselines3.common import policies as theirs
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import (
    ConstantSchedule,
    FloatSchedule,
    LinearSchedule,
    check_for_correct_spaces,
    get_system_info,
)
from stable_baselines3.common.vec_env import VecEnvWrapper
from torch.distributions import Distribution
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents import extractors, policies
from dgvf_agents.agents.arguments import RULE_SETTINGS
from dgvf_agents.agents.logging import get_log, restore_log
from dgvf_agents.agents.schedules import GeometricSchedule, value_at
from dgvf_agents.core import networks, optimizers, resnet
from dgvf_agents.hyperparameters import SCHEDULED
from dgvf_agents.storage.files import DamagedFileError, Source, damage_in, naming, write_bytes
from dgvf_agents.storage.model_file import Restoring, StoredModel, model_file, read_model
from dgvf_agents.storage.state import (
    Spaces,
    TrainingState,
    get_random_states,
    learner_template,
    progress_template,
    set_random_states,
    training_template,
    with_adam_settings,
)
from dgvf_agents.storage.template import Maybe, described, fitted
from dgvf_agents.storage.values import Vocabulary
from dgvf_envs.functional.env_state import get_env_state, set_env_state

Self = TypeVar("Self", bound="PersistentAlgorithm")

_CLASSES = (
    *(policies.CnnPolicy, policies.DGVFPolicy, policies.MlpPolicy, policies.MultiInputPolicy),
    *(policies.PaperMlpPolicy, policies.ResNetPolicy),
    *(theirs.ActorCriticPolicy, theirs.ActorCriticCnnPolicy, theirs.MultiInputActorCriticPolicy),
    *(extractors.AtariCNNExtractor, extractors.EncoderExtractor, extractors.GridCNNExtractor, extractors.MLPExtractor),
    *(extractors.MultiInputExtractor, extractors.ResNetExtractor, extractors.TanhExtractor),
    *(torch_layers.CombinedExtractor, torch_layers.FlattenExtractor, torch_layers.NatureCNN),
    *(networks.AtariCNNEncoder, networks.GridCNNEncoder, networks.MLPEncoder, resnet.ResNetEncoder),
    *(buffers.RolloutBuffer, buffers.DictRolloutBuffer, RMSpropTFLike),
)
_RECORDS = (
    *(ConstantSchedule, FloatSchedule, LinearSchedule, GeometricSchedule),
    *(optimizers.SGD, optimizers.RMSProp, optimizers.Adam),
)
VOCABULARY = Vocabulary(*({kind.__name__: kind for kind in kinds} for kinds in (_CLASSES, _RECORDS)))
"""The classes that model files have names for."""

NEEDED = (
    "policy_class",
    "policy_kwargs",
    "observation_space",
    "action_space",
    "learning_rate",
    "auxiliary_task",
    "inner_optimizer",
)
"""Attributes that a model cannot be built without."""

_NOT_SAVED = ("actor_settings", "device", "env", "policy", "tensorboard_log")
"""Arguments that are decided where a file is loaded, and the policy, which is built from its class."""

_SET_BY_ZOO = ("clip_range", "lr_schedule")
"""The `custom_objects` that RL Baselines3 Zoo passes to all algorithms."""

_LARGEST = {"n_envs": 1 << 16, "n_steps": 1 << 20, "question_window": 1 << 12}
"""Sizes that no parameter in a file has, at most."""

_PLAIN = (bool, int, float, str, list, tuple, dict, deque, np.ndarray, np.generic, type(None))


class PersistentAlgorithm(OnPolicyAlgorithm, ABC):
    """Saves and loads what an algorithm with a `DiscoveryLearner` is and where it stands."""

    learner: Any  # parts and methods of the one subclass
    _collector: Any
    _distribution: Any
    _functions: Any
    _prepare_update: Any
    _rollout: Any
    _sync_policy: Any
    seconds: float = 0.0
    """Wall time of training before this process."""
    trained_on: str | None = None
    """Type of the device that a loaded model was saved on."""
    _stored_training: TrainingState | None = None  # of a model loaded without environment
    _stored_log: dict[str, Any] | None = None  # until there is a logger

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
        if not isinstance(given, dict):
            with naming(given):
                stored = read_model(given, Restoring(VOCABULARY), weights_only=True)
                given = self._state_dicts(self._fitted(stored))
        super().set_parameters(_on_device(given, self.device), exact_match, device)
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
            include: other attributes to keep, such as a subclass's own.

        Raises:
            TypeError: an attribute is of a kind that not even pickle can write; the message names it.
            ValueError: `include` names what is no attribute, or what `load` would not restore.
        """
        self._prepare_update()
        included = {*(include or ())} - self._saved_names()
        refused = sorted(name for name in included if name not in vars(self) or not self._may_add(name))
        if refused:
            raise ValueError(f"include must name attributes of your own that the model has, got {', '.join(refused)}")
        names = self._saved_names() - {*(exclude or ())} | {*(include or ())}
        attributes = {name: vars(self)[name] for name in sorted(names) if name in vars(self)}
        schedules = {name: self.lr_schedule if name == "learning_rate" else getattr(self, name) for name in SCHEDULED}
        last_values = {name: value_at(given, self._current_progress_remaining) for name, given in schedules.items()}
        training, learner = self._training_state(), self.learner.get_state()
        if training.environment is None:  # episodes restart, and the unroll with them
            learner = learner._replace(unroll=None)
        statistics = self._functions.statistics()
        file = model_file(attributes, learner, statistics, training, last_values, VOCABULARY)
        write_bytes(path, file.to_bytes())  # type: ignore[arg-type]

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
        custom: Any = {} if custom_objects is None else custom_objects
        if not isinstance(custom, dict):
            raise ValueError(f"custom_objects must be a dict or None, got {custom_objects!r}")
        source: Source = path  # type: ignore[assignment]
        with naming(source):
            stored = read_model(source, Restoring(VOCABULARY, NEEDED, SCHEDULED, custom, trusted))
            attributes = cls._checked_attributes(stored, custom, trusted, kwargs)
        if print_system_info:
            print("== CURRENT SYSTEM INFO ==")
            get_system_info()
            print(f"== SAVED MODEL SYSTEM INFO ==\n{stored.versions}")
        if env is not None:
            env = cls._wrap_env(cls._env_to_wrap(env, {**attributes, **kwargs}), attributes.get("verbose", 0))
            check_for_correct_spaces(env, attributes["observation_space"], attributes["action_space"])
            if kwargs.get("n_envs", env.num_envs) != env.num_envs:
                raise ValueError(f"n_envs must be {env.num_envs}, as env has it, got {kwargs['n_envs']!r}")
            attributes["n_envs"] = env.num_envs
        with naming(source):
            stored = cls._without_memory(attributes, bool(custom) or trusted)._fitted(stored)
        model = cls._new(attributes["policy_class"], env, device)
        vars(model).update({**attributes, **kwargs})
        model._setup_model()
        with naming(source):
            changed = {name for name, value in kwargs.items() if value != attributes.get(name)}
            model._restore(stored, changed, force_reset)
        return model

    @classmethod
    def _new(cls: type[Self], policy: Any, env: Any, device: torch.device | str) -> Self:
        """A model that is not set up yet."""
        build: Any = cls
        return build(policy, env, device=device, _init_setup_model=False)

    @classmethod
    def _checked_attributes(
        cls, stored: StoredModel, custom: dict[str, Any], trusted: bool, changes: dict[str, Any]
    ) -> dict[str, Any]:
        """The attributes of a model from a file, with those that the file lacks from `custom`."""
        ours = stored.learner is not None
        saved = cls._saved_names()
        attributes = {name: value for name, value in stored.attributes.items() if ours or name in saved}
        attributes |= {name: value for name, value in custom.items() if name in NEEDED}
        for argument, names in (("custom_objects", custom), ("load()", changes)):
            unknown = sorted(set(names) - saved - set(attributes) - {*_SET_BY_ZOO, *_NOT_SAVED})
            if unknown:
                raise ValueError(f"{argument} must name attributes of the model, got {', '.join(unknown)}")
        missing = [name for name in NEEDED if name not in attributes]
        if missing:
            raise ValueError(
                f"the file must hold {', '.join(missing)}, which it does not: give them in custom_objects="
            )
        for name in sorted(attributes.keys() - saved):
            if not cls._may_add(name) or not (trusted or isinstance(attributes[name], _PLAIN)):
                kind = f"a {cls.__name__}'s, or plain data of your own"
                raise DamagedFileError(f"attributes in it must be {kind}, got {name!r:.80}")
        kinds = {"observation_space": gym.Space, "action_space": gym.Space, "policy_kwargs": dict}
        fitted("attributes", {name: attributes[name] for name in kinds}, kinds)
        policy = attributes["policy_class"]
        if not isinstance(policy, str) and not (isinstance(policy, type) and issubclass(policy, theirs.BasePolicy)):
            raise DamagedFileError(f"attributes.policy_class must be a policy, got {described(policy)}")
        sizes = {"B": attributes["n_envs"]} if isinstance(attributes.get("n_envs"), int) else {}
        for name, like in progress_template(attributes["observation_space"]).items():
            if name in attributes:
                attributes[name] = fitted(f"attributes.{name}", attributes[name], like, dict(sizes))
        for name, largest in _LARGEST.items():
            if isinstance(attributes.get(name), int) and attributes[name] > largest:
                raise DamagedFileError(f"attributes.{name} must be at most {largest}, got {attributes[name]}")
        kwargs = attributes["policy_kwargs"]
        kwargs.pop("device", None)
        if changes.get("policy_kwargs", kwargs) != kwargs:
            raise ValueError(f"policy_kwargs must be those in the file, {kwargs}, got {changes['policy_kwargs']}")
        return attributes

    @classmethod
    def _without_memory(cls: type[Self], attributes: dict[str, Any], of_callers: bool) -> Self:
        """A model with these attributes whose networks take no memory, however large a file says they are.

        Args:
            attributes: of the model.
            of_callers: whether classes may be the caller's, which may fail to be built without memory.
        """
        validates = Distribution._validate_args
        for device in ("meta", "cpu"):
            try:
                Distribution.set_default_validate_args(False)  # which reads numbers
                with damage_in("attributes"), warnings.catch_warnings(), torch.device(device):
                    warnings.simplefilter("ignore")  # they are given when the model itself is built
                    model = cls._new(attributes["policy_class"], None, "cpu")
                    vars(model).update(attributes)
                    model.device = torch.device(device)
                    model._setup_model()
                break
            except DamagedFileError:
                if device == "cpu" or not of_callers:
                    raise
            finally:
                Distribution.set_default_validate_args(validates)
        return model

    @classmethod
    def _env_to_wrap(cls, env: Any, attributes: dict[str, Any]) -> Any:
        """The environment that `load` was given, for a model with these attributes."""
        return env

    @classmethod
    def _saved_names(cls) -> set[str]:
        """Attributes that files hold: the constructor's arguments and Stable-Baselines3's own."""
        progress = progress_template(gym.spaces.Discrete(1))
        return {"policy_class", "observation_space", "action_space", *constructor_arguments(cls), *progress} - {
            *_NOT_SAVED
        }

    @classmethod
    def _may_add(cls, name: str) -> bool:
        """Whether a file may have an attribute by this name besides those that all have: not a method's or a part's."""
        annotated = {part for base in cls.__mro__ for part in vars(base).get("__annotations__", ())}
        return name.isidentifier() and not hasattr(cls, name) and name not in {*annotated, *_NOT_SAVED, "_logger"}

    def _excluded_save_params(self) -> list[str]:
        return sorted(set(vars(self)) - self._saved_names())

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        """A model that learns on by itself, in a copy of the environment."""
        buffer = io.BytesIO()
        self.save(buffer)
        env = _copied(self.env, memo)
        own = {name: vars(self)[name] for name in constructor_arguments(type(self)) if callable(vars(self).get(name))}
        copy = type(self).load(buffer, env, self.device, own, trusted=True, force_reset=False)
        copy.learner.set_state(self.learner.get_state())  # files leave out an unroll whose environment restarts
        memo[id(self)] = copy
        return copy

    def _fitted(self, stored: StoredModel) -> StoredModel:
        """A file's contents with its records, if it fits this model.

        Raises:
            DamagedFileError: it does not; the message names the part.
        """
        if stored.learner is None:
            return stored
        own, spaces = self.learner.get_state(), self._spaces()
        return replace(
            stored,
            learner=fitted("learner", stored.learner, learner_template(own, spaces)),
            statistics=fitted("statistics", stored.statistics, spaces.statistics),
            training=fitted("training", stored.training, Maybe(training_template(spaces))),
        )

    def _restore(self, stored: StoredModel, changed: set[str], force_reset: bool | None) -> None:
        """Take what a file holds, apart from attributes.

        Args:
            stored: what `_fitted` returned.
            changed: attributes that differ from the file's.
            force_reset: see `load`.
        """
        if stored.learner is None:
            self.set_parameters(stored.parameters or {}, exact_match=True, device=self.device)
        else:
            with damage_in("learner"):
                learner: Any = _on_device(stored.learner, self.device)
                self._functions.set_statistics(_on_device(stored.statistics, self.device))
                self.learner.set_state(with_adam_settings(learner, self.learner.get_state()))
            if changed & set(RULE_SETTINGS):
                self.learner.restart_unroll()
            self._sync_policy()
        if self.use_sde:  # before the random number generators are restored, since it draws
            self.policy.reset_noise()
        if stored.training is not None:
            self._set_training_state(_on_device(stored.training, self.device), force_reset)
        elif self.env is not None and force_reset is not False:
            self._last_obs = None

    def _spaces(self) -> Spaces:
        return Spaces(
            self.observation_space,
            self.action_space,
            self._distribution,
            self._functions.statistics(),
            self._collector.exploration,
            self.learner.functions.rule.targets.off_policy,
        )

    def _state_dicts(self, stored: StoredModel) -> dict[str, Any]:
        """A file's contents, as `get_parameters` returns them."""
        if stored.learner is None:
            return stored.parameters or {}
        own = self.learner.get_state()
        learner = with_adam_settings(stored.learner, own)  # type: ignore[arg-type]
        statistics = own.statistics if learner.statistics is None else learner.statistics
        meta = own.meta_optimizer if learner.meta_optimizer is None else learner.meta_optimizer
        return {
            **self._functions.state_dicts(learner.theta, stored.statistics),
            **({"question_net": learner.eta} if learner.eta else {}),
            "optimizers": {"inner": statistics, "meta": meta},
        }

    def _training_state(self) -> TrainingState:
        """Where training stands, apart from the learner."""
        log = self._stored_log or get_log(getattr(self, "_logger", None))
        if self.env is None and self._stored_training is not None:
            return self._stored_training._replace(device=self.device.type, rollout=self._rollout, log=log)
        return TrainingState(
            device=self.device.type,
            environment=self._environment_state(),
            random=get_random_states(self.device),
            **self._collector.get_state(),
            rollout=self._rollout,
            log=log,
        )

    def _set_training_state(self, state: TrainingState, force_reset: bool | None) -> None:
        self._rollout, self._stored_log, self.trained_on = state.rollout, state.log, state.device
        if self.env is None and force_reset is not True:  # it may come later, from a file that this model is saved to
            self._stored_training = state
        taken = force_reset is not True and self._take_environment_state(state.environment)
        if self.env is not None and not taken and force_reset is not False:
            self._last_obs = None
        if taken or force_reset is False:
            steps = self.n_steps if state.collection is None else state.collection.n_steps
            if steps != self.n_steps:
                raise ValueError(
                    f"n_steps must be {steps}, because the file was saved in the middle of a rollout of {steps} steps, "
                    f"got {self.n_steps}: force_reset=True drops that rollout and restarts episodes"
                )
            set_random_states(state.random, self.device)
            with damage_in("training.collection"):
                self._collector.set_state(state.generator, state.collection)

    def _environment_state(self) -> dict[str, Any] | None:
        try:
            return None if self.env is None else get_env_state(self.env)
        except NotImplementedError:  # it restarts
            return None

    def _take_environment_state(self, state: dict[str, Any] | None) -> bool:
        if self.env is None or state is None or self._last_obs is None:
            return False
        with damage_in("training.environment"):
            try:
                set_env_state(self.env, state)
            except ValueError:  # another world
                return False
        for own, space in (
            (self.env.observation_space, self.observation_space),
            (self.env.action_space, self.action_space),
        ):
            own._np_random = space._np_random  # they are one object while training
        return True

    def _setup_learn(self, *arguments: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        last_obs = self._last_obs
        result = super()._setup_learn(*arguments, **kwargs)
        if self._last_obs is not last_obs:  # the environment was reset
            self._collector.end()
        log, self._stored_log = self._stored_log, None
        if log is not None:
            restore_log(self.logger, log)
        return result


def constructor_arguments(cls: type) -> list[str]:
    """Names of the arguments of a class's constructor, and of those that it passes on to."""
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base) and base is not object]
    return sorted({name for constructor in constructors for name in inspect.signature(constructor).parameters})


def _copied(env: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of an environment. Stable-Baselines3's wrappers fail to be copied by `deepcopy` itself."""
    if not isinstance(env, VecEnvWrapper):
        return deepcopy(env, memo)
    copy = object.__new__(type(env))
    vars(copy).update(venv=_copied(env.venv, memo), class_attributes=env.class_attributes)
    vars(copy).update({name: deepcopy(value, memo) for name, value in vars(env).items() if name not in vars(copy)})
    return copy


def _on_device(tree: Any, device: torch.device) -> Any:
    """The same with its tensors on a device."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)
