"""An algorithm that is saved with its learner and where it stands in training, and continues from there."""

from __future__ import annotations

import inspect
import io
import pathlib
from abc import ABC
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeVar

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import check_for_correct_spaces, get_system_info
from stable_baselines3.common.vec_env import VecEnvWrapper
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents.arguments import RULE_SETTINGS, SCHEDULES
from dgvf_agents.agents.logging import get_log, restore_log
from dgvf_agents.agents.schedules import value_at
from dgvf_agents.storage.environment_validation import check_environment
from dgvf_agents.storage.learner_validation import check_learner
from dgvf_agents.storage.loading import NEEDED, StoredModel, read_learned, read_stored
from dgvf_agents.storage.model_file import damage_in, write_bytes
from dgvf_agents.storage.random_states import get_random_states, set_random_states
from dgvf_agents.storage.saving import stored_file
from dgvf_agents.storage.training_validation import check_attributes, check_training
from dgvf_agents.storage.validation import Spaces
from dgvf_envs.functional.env_state import get_env_state, set_env_state

Self = TypeVar("Self", bound="PersistentAlgorithm")

_PROGRESS = (
    "policy_class",
    "observation_space",
    "action_space",
    "n_envs",
    "num_timesteps",
    "seconds",
    "start_time",
    "ep_info_buffer",
    "ep_success_buffer",
    "_current_progress_remaining",
    "_episode_num",
    "_last_episode_starts",
    "_last_obs",
    "_last_original_obs",
    "_n_updates",
    "_num_timesteps_at_start",
    "_stats_window_size",
    "_total_timesteps",
)
"""Attributes of Stable-Baselines3's algorithms that files hold besides the constructor's arguments."""

_NOT_SAVED = ("device", "env", "policy", "tensorboard_log")
"""Arguments that are decided where a file is loaded, and the policy, which is built from its class."""

_COLLECTION = ("environment", "random", "actor", "collecting", "steps", "starts", "exploration")
"""What a model loaded without an environment hands on when it is saved again."""


class PersistentAlgorithm(OnPolicyAlgorithm, ABC):
    """Saves and loads what an algorithm with a `DiscoveryLearner` is and where it stands."""

    seconds: float = 0.0
    """Wall time of training before this process."""
    trained_on: str | None = None
    """Type of the device that a loaded model was saved on."""
    learner: Any  # parts and methods of the one subclass
    _collector: Any
    _distribution: Any
    _functions: Any
    _prepare_update: Any
    _rollout: Any
    _sync_policy: Any
    _stored_training: dict[str, Any] | None = None  # of a model loaded without environment
    _stored_log: dict[str, Any] | None = None  # until there is a logger

    def set_parameters(
        self,
        load_path_or_dict: str | pathlib.Path | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Take parameters, as Stable-Baselines3's A2C does; they go where the model is, whatever `device` says.

        An unroll in progress restarts.
        """
        given = load_path_or_dict
        parameters = given if isinstance(given, dict) else self._state_dicts(read_learned(given))
        super().set_parameters(_on_device(parameters, self.device), exact_match, device)
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
        """
        self._prepare_update()
        names = self._saved_names() - {*(exclude or ())} | {*(include or ())}
        attributes = {name: vars(self)[name] for name in sorted(names) if name in vars(self)}
        schedules = {name: self.lr_schedule if name == "learning_rate" else getattr(self, name) for name in SCHEDULES}
        last_values = {name: value_at(given, self._current_progress_remaining) for name, given in schedules.items()}
        training, learner = self._training_state(), self.learner.get_state()
        if training["environment"] is None:  # episodes restart, and the unroll with them
            learner = learner._replace(unroll=None)
        statistics = self._functions.statistics()
        write_bytes(path, stored_file(attributes, learner, statistics, training, last_values).to_bytes())  # type: ignore[arg-type]

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
        `load(path, env).learn(steps, reset_num_timesteps=False)`. Its state, and that of the random number generators
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
            DamagedFileError: the file is in neither format, or not as it was written.
            ValueError: the environment or an argument does not fit the file, or the file holds an attribute that the
                model needs as a pickle only.
        """
        stored = read_stored(path, custom_objects, trusted)  # type: ignore[arg-type]
        if print_system_info:
            print("== CURRENT SYSTEM INFO ==")
            get_system_info()
            print(f"== SAVED MODEL SYSTEM INFO ==\n{stored.versions}")
        needed = {name: value for name, value in (custom_objects or {}).items() if name in NEEDED}
        attributes = {**stored.attributes, **needed}  # those that the file lacks too
        _check_attributes(attributes, kwargs)
        if env is not None:
            to_wrap = cls._env_to_wrap(env, {**attributes, **kwargs})
            env = cls._wrap_env(to_wrap, attributes.get("verbose", 0))
            check_for_correct_spaces(env, attributes["observation_space"], attributes["action_space"])
            attributes["n_envs"] = env.num_envs
        build: Any = cls
        model = build(attributes["policy_class"], env, device=device, _init_setup_model=False)
        vars(model).update({**attributes, **kwargs})
        model._setup_model()
        model._restore(stored, {name for name, value in kwargs.items() if value != attributes.get(name)}, force_reset)
        return model

    @classmethod
    def _env_to_wrap(cls, env: Any, attributes: dict[str, Any]) -> Any:
        """The environment that `load` was given, for a model with these attributes."""
        return env

    @classmethod
    def _saved_names(cls) -> set[str]:
        """Attributes that files hold: the constructor's arguments and Stable-Baselines3's own."""
        return {*constructor_arguments(cls), *_PROGRESS} - set(_NOT_SAVED)

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

    def _restore(self, stored: StoredModel, changed: set[str], force_reset: bool | None) -> None:
        """Take what a file holds, apart from attributes.

        Args:
            stored: what the file holds.
            changed: attributes that are not those of the file.
            force_reset: see `load`.
        """
        if stored.learner is None:
            self.set_parameters(stored.parameters or {}, exact_match=True, device=self.device)
        else:
            self._restore_learner(stored, changed)
        if self.use_sde:  # before the random number generators are restored, since it draws
            self.policy.reset_noise()
        if stored.training is not None:
            training = _on_device(stored.training, self.device)
            with damage_in("training"):
                check_training(training, self._spaces(), self._collector.get_state()["exploration"])
            self._set_training_state(training, force_reset)
        elif self.env is not None and force_reset is not False:
            self._last_obs = None

    def _spaces(self) -> Spaces:
        statistics = self._functions.statistics()
        off_policy = self.learner.functions.rule.targets.off_policy
        return Spaces(self.observation_space, self.action_space, self._distribution, statistics, off_policy)

    def _restore_learner(self, stored: StoredModel, changed: set[str]) -> None:
        assert stored.learner is not None
        with damage_in("learner"):
            self._functions.set_statistics(_on_device(stored.statistics, self.device))
            learner = _on_device(stored.learner, self.device)
            check_learner(learner, self.learner, self._spaces())
            self.learner.set_state(learner)
        if changed & set(RULE_SETTINGS):
            self.learner.restart_unroll()
        self._sync_policy()

    def _state_dicts(self, stored: StoredModel) -> dict[str, Any]:
        """What a file holds, as `get_parameters` returns it."""
        if stored.learner is None:
            return stored.parameters or {}
        learner = stored.learner
        own = self.learner.statistics if learner.statistics is None else learner.statistics
        meta = self.learner.meta_optimizer_state if learner.meta_optimizer is None else learner.meta_optimizer
        return {
            **self._functions.state_dicts(learner.theta, stored.statistics),
            **({"question_net": learner.eta} if learner.eta else {}),
            "optimizers": {"inner": own, "meta": meta},
        }

    def _training_state(self) -> dict[str, Any]:
        """Where training stands, apart from the learner."""
        state = {
            "device": self.device.type,
            "environment": self._environment_state(),
            "random": get_random_states(self.device),
            **self._collector.get_state(),
            "rollout": self._rollout,
            "log": self._stored_log or get_log(getattr(self, "_logger", None)),
        }
        if self.env is None and self._stored_training is not None:
            state |= self._stored_training
        return state

    def _set_training_state(self, state: dict[str, Any], force_reset: bool | None) -> None:
        self._rollout, self._stored_log, self.trained_on = state["rollout"], state["log"], state["device"]
        if self.env is None and force_reset is not True:  # it may come later, from a file that this model is saved to
            self._stored_training = {name: state[name] for name in _COLLECTION}
        taken = force_reset is not True and self._take_environment_state(state["environment"])
        if self.env is not None and not taken and force_reset is not False:
            self._last_obs = None
        if taken or force_reset is False:
            set_random_states(state["random"], self.device)
            self._collector.set_state(state)

    def _environment_state(self) -> dict[str, Any] | None:
        try:
            return None if self.env is None else get_env_state(self.env)
        except NotImplementedError:  # it restarts
            return None

    def _take_environment_state(self, state: dict[str, Any] | None) -> bool:
        if self.env is None or state is None or self._last_obs is None:
            return False
        with damage_in("environment"):
            num_envs = check_environment(state)
            try:
                set_env_state(self.env, state)
            except ValueError:  # another world
                return False
            if num_envs not in (None, self.env.num_envs):
                raise ValueError(f"it must be of {self.env.num_envs} environments, got {num_envs}")
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


def _check_attributes(attributes: dict[str, Any], changes: dict[str, Any]) -> None:
    missing = [name for name in NEEDED if name not in attributes]
    if missing:
        raise ValueError(f"the file must hold {', '.join(missing)}, which it does not: give them in custom_objects=")
    with damage_in("attributes"):
        check_attributes(attributes)
    kwargs = attributes["policy_kwargs"]
    kwargs.pop("device", None)
    if "policy_kwargs" in changes and changes["policy_kwargs"] != kwargs:
        raise ValueError(f"policy_kwargs must be those in the file, {kwargs}, got {changes['policy_kwargs']}")


def _on_device(tree: Any, device: torch.device) -> Any:
    """The same with its tensors on a device."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)
