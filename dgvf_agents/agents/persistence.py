"""Models in files: an algorithm with its learner and where it stands in training."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common import buffers, torch_layers
from stable_baselines3.common import policies as theirs
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.utils import (
    ConstantSchedule,
    FloatSchedule,
    LinearSchedule,
    check_for_correct_spaces,
    get_system_info,
)
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents import extractors, policies
from dgvf_agents.agents.arguments import RULE_SETTINGS
from dgvf_agents.agents.logging import get_log
from dgvf_agents.agents.schedules import GeometricSchedule, TabulatedSchedule
from dgvf_agents.core import networks, optimizers, resnet
from dgvf_agents.hyperparameters import SCHEDULED, check_hyperparameters, record
from dgvf_agents.learner import SingleLearner
from dgvf_agents.storage.files import DamagedFileError, Source, damage_in, naming, with_ending, write_bytes
from dgvf_agents.storage.model_file import StoredModel, model_file, opened, stable_baselines3_weights, stored_model
from dgvf_agents.storage.state import (
    TrainingState,
    get_random_states,
    learner_template,
    progress_template,
    set_random_states,
    training_template,
    with_adam_settings,
)
from dgvf_agents.storage.values import Maybe, Vocabulary, described, fitted
from dgvf_envs.functional.env_state import get_env_state, set_env_state

Model = TypeVar("Model")

_CLASSES = (
    *(policies.DGVFPolicy, policies.PaperCnnPolicy, policies.PaperMlpPolicy, policies.ResNetPolicy),
    *(theirs.ActorCriticPolicy, theirs.ActorCriticCnnPolicy, theirs.MultiInputActorCriticPolicy),
    *(extractors.AtariCNNExtractor, extractors.EncoderExtractor, extractors.GridCNNExtractor, extractors.MLPExtractor),
    *(extractors.MultiInputExtractor, extractors.ResNetExtractor),
    *(torch_layers.CombinedExtractor, torch_layers.FlattenExtractor, torch_layers.NatureCNN),
    *(networks.AtariCNNEncoder, networks.GridCNNEncoder, networks.MLPEncoder, resnet.ResNetEncoder),
    *(buffers.RolloutBuffer, buffers.DictRolloutBuffer, RMSpropTFLike),
)
_RECORDS = (
    *(ConstantSchedule, FloatSchedule, LinearSchedule, GeometricSchedule, TabulatedSchedule),
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


def save_model(model: Any, path: Any, exclude: Iterable[str] | None, include: Iterable[str] | None) -> None:
    """`DiscoveryAlgorithm.save`."""
    model._prepare_update()
    model.learner.check_finite()  # before a good file is replaced
    cls, kept = type(model), {*(include or ())}
    refused = sorted(name for name in kept - saved_names(cls) if name not in vars(model) or not may_add(cls, name))
    if refused:
        raise ValueError(f"include must name attributes of your own that the model has, got {', '.join(refused)}")
    plain = {name for name, value in vars(model).items() if isinstance(value, _PLAIN) and not name.startswith("_")}
    names = (saved_names(cls) | {name for name in plain if may_add(cls, name)}) - {*(exclude or ())} | kept
    attributes = {name: vars(model)[name] for name in sorted(names) if name in vars(model)}
    schedules = {name: getattr(model, name, None) for name in SCHEDULED} | {"learning_rate": model.lr_schedule}
    tables = {name: TabulatedSchedule.of(given) for name, given in schedules.items() if callable(given)}
    training, learner = _training_state(model), model.learner.get_state()
    if training.environment is None:  # episodes restart, and the unroll with them
        learner = learner._replace(unroll=None)
    statistics = model._functions.statistics()
    file = model_file(attributes, learner, statistics, training, tables, VOCABULARY)
    write_bytes(with_ending(path), file.to_bytes())


def load_model(
    kind: type[Model],
    path: Any,
    env: Any,
    device: torch.device | str,
    custom_objects: dict[str, Any] | None,
    print_system_info: bool,
    force_reset: bool | None,
    trusted: bool,
    changes: dict[str, Any],
) -> Model:
    """`DiscoveryAlgorithm.load`; `changes` are its other keyword arguments."""
    custom: Any = {} if custom_objects is None else custom_objects
    if not isinstance(custom, dict):
        raise ValueError(f"custom_objects must be a dict or None, got {custom_objects!r}")
    check_hyperparameters(custom)
    source: Source = path
    cls: Any = kind
    with naming(source):
        stored = stored_model(opened(source), VOCABULARY, NEEDED, custom, trusted)
        attributes = _checked_attributes(cls, stored, custom, trusted, changes)
    if print_system_info:
        print("== CURRENT SYSTEM INFO ==")
        get_system_info()
        print(f"== SAVED MODEL SYSTEM INFO ==\n{stored.versions}")
    if env is not None:
        env = cls._wrap_env(cls._env_to_wrap(env, {**attributes, **changes}), attributes.get("verbose", 0))
        check_for_correct_spaces(env, attributes["observation_space"], attributes["action_space"])
        attributes["n_envs"] = env.num_envs
    if changes.get("n_envs", attributes["n_envs"]) != attributes["n_envs"]:
        of = "as env has it" if env is not None else "as the model was saved"
        other = "" if env is not None else ": pass env with another number"
        raise ValueError(f"n_envs must be {attributes['n_envs']}, {of}, got {changes['n_envs']!r}{other}")
    with naming(source):
        stored = _fitted(_without_memory(cls, attributes, bool(custom) or trusted), stored)
    model = _new(cls, attributes["policy_class"], env, device)
    vars(model).update({**attributes, **changes})
    model._setup_model()
    changed = {name: attributes.get(name) for name, value in changes.items() if value != attributes.get(name)}
    with naming(source):
        _restore(model, stored, changed, force_reset)
    return model


def read_parameters(model: Any, source: Source) -> dict[str, Any]:
    """The parameters of a file, as `get_parameters` returns them."""
    with naming(source):
        file = opened(source)
        if isinstance(file, bytes):
            return stable_baselines3_weights(file)
        return _state_dicts(model, _fitted(model, stored_model(file, VOCABULARY, (), None)))


@final
class LearnerPart:
    """A part of the learner's state with a state dict, which Stable-Baselines3's `set_parameters` asks for."""

    def __init__(self, name: str, get: Callable[[], dict[str, Any]], set_: Callable[[dict[str, Any]], None]) -> None:
        """
        Args:
            name: of the part.
            get: returns its state, nested dicts of tensors and numbers.
            set_: restores what `get` returned.
        """
        self._name, self._get, self._set = name, get, set_

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        return self._get()

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Restore what `state_dict` returned; if not `strict`, the entries that it has.

        Raises:
            ValueError: names or shapes differ.
        """
        own = self._get()
        given = state if strict else {**own, **state}
        if set(given) != set(own):
            raise ValueError(f"{self._name} must have the names {sorted(own)}, got {sorted(given)}")
        self._set(given)


def optimizers_of(learner: SingleLearner) -> LearnerPart:
    """The inner optimizer's statistics and the state of Adam on η."""

    def set_state(state: dict[str, Any]) -> None:
        learner.set_statistics(state["inner"])
        learner.set_meta_optimizer_state(state["meta"])

    return LearnerPart(
        "optimizers", lambda: {"inner": learner.statistics, "meta": learner.meta_optimizer_state}, set_state
    )


def saved_names(cls: type) -> set[str]:
    """Attributes that files hold: the constructor's arguments and Stable-Baselines3's own."""
    progress = progress_template(gym.spaces.Discrete(1))
    return {"policy_class", "observation_space", "action_space", *constructor_arguments(cls), *progress} - {*_NOT_SAVED}


def may_add(cls: type, name: str) -> bool:
    """Whether a file may have an attribute by this name besides ours: not a method's, part's or argument's."""
    ours = next(base for base in cls.__mro__ if base.__module__.startswith("dgvf_agents."))
    annotated = {part for base in ours.__mro__ for part in vars(base).get("__annotations__", ())}
    taken = {*annotated, *dir(ours), *record(), *_NOT_SAVED, "_logger"}
    return name.isidentifier() and name not in taken and not hasattr(inspect.getattr_static(cls, name, None), "__get__")


def _new(kind: Any, policy: Any, env: Any, device: torch.device | str) -> Any:
    """A model that is not set up yet."""
    return kind(policy, env, device=device, _init_setup_model=False)


def _checked_attributes(
    cls: Any, stored: StoredModel, custom: dict[str, Any], trusted: bool, changes: dict[str, Any]
) -> dict[str, Any]:
    """The attributes of a model from a file, with those that the file lacks from `custom`."""
    saved = saved_names(cls)
    attributes = stored.attributes | {name: value for name, value in custom.items() if name in NEEDED}
    for argument, names in (("custom_objects", custom), ("load()", changes)):
        unknown = sorted(set(names) - saved - set(attributes) - {*_SET_BY_ZOO, *_NOT_SAVED})
        if unknown:
            raise ValueError(f"{argument} must name attributes of the model, got {', '.join(unknown)}")
    missing = [name for name in NEEDED if name not in attributes]
    if missing:
        raise ValueError(f"the file must hold {', '.join(missing)}, which it does not: give them in custom_objects=")
    for name in sorted(attributes.keys() - saved):
        if not may_add(cls, name) or not (trusted or isinstance(attributes[name], _PLAIN)):
            other = " (load it with the class that saved it)" if name in record() else ""
            kind = f"a {cls.__name__}'s{other}, or plain data of your own"
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


class _Memoryless(TorchFunctionMode):
    """Tensors without memory stay so, where Stable-Baselines3 moves a policy's layers to the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.Tensor.to and args[0].is_meta else func(*args, **(kwargs or {}))


def _without_memory(cls: Any, attributes: dict[str, Any], of_callers: bool) -> Any:
    """A model with these attributes whose networks take no memory, however large a file says they are.

    Args:
        cls: the algorithm.
        attributes: of the model.
        of_callers: whether classes may be the caller's, which may fail to be built without memory.
    """
    validates = Distribution._validate_args
    for device in ("meta", "cpu"):
        try:
            Distribution.set_default_validate_args(False)  # which reads numbers
            with damage_in("attributes"), warnings.catch_warnings(), torch.device(device), _Memoryless():
                warnings.simplefilter("ignore")  # they are given when the model itself is built
                model = _new(cls, attributes["policy_class"], None, "cpu")
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


def _fitted(model: Any, stored: StoredModel) -> StoredModel:
    """A file's contents with its records, if it fits this model.

    Raises:
        DamagedFileError: it does not; the message names the part.
    """
    return stored._replace(
        learner=fitted("learner", stored.learner, learner_template(model)),
        statistics=fitted("statistics", stored.statistics, model._functions.statistics()),
        training=fitted("training", stored.training, Maybe(training_template(model))),
    )


def _restore(model: Any, stored: StoredModel, changed: dict[str, Any], force_reset: bool | None) -> None:
    """Take what a file holds, apart from attributes.

    Args:
        model: not set up from a file yet.
        stored: what `_fitted` returned.
        changed: attributes that differ from the file's, with the file's values.
        force_reset: see `load`.

    Raises:
        ValueError: parameters in the file are not those of the changed model.
    """
    structure = sorted(name for name in changed if name not in record() or record()[name].kind == "structure")
    try:
        with damage_in("learner"):
            learner = on_device(stored.learner, model.device)
            model._functions.set_statistics(on_device(stored.statistics, model.device))
            model.learner.set_state(with_adam_settings(learner, model.learner.get_state()))
    except DamagedFileError as error:  # the file fits the model without changes: see `_fitted`
        if not structure:
            raise
        texts = (f"{name} {changed[name]!r}, got {getattr(model, name)!r}" for name in structure)
        raise ValueError(f"load() must keep what decides a file's parameters: {'; '.join(texts)}") from error
    if changed.keys() & set(RULE_SETTINGS):
        model.learner.restart_unroll()
    model._sync_policy()
    if model.use_sde:  # before the random number generators are restored, since it draws
        model.policy.reset_noise()
    if stored.training is not None:
        _set_training_state(model, on_device(stored.training, model.device), force_reset)
    elif model.env is not None and force_reset is not False:
        model._last_obs = None


def _state_dicts(model: Any, stored: StoredModel) -> dict[str, Any]:
    """A file's contents, as `get_parameters` returns them."""
    own = model.learner.get_state()
    learner = with_adam_settings(stored.learner, own)
    statistics = own.statistics if learner.statistics is None else learner.statistics
    meta = own.meta_optimizer if learner.meta_optimizer is None else learner.meta_optimizer
    return {
        **model._functions.state_dicts(learner.theta, stored.statistics),
        **({"question_net": learner.eta} if learner.eta else {}),
        "optimizers": {"inner": statistics, "meta": meta},
    }


def _training_state(model: Any) -> TrainingState:
    """Where training stands, apart from the learner."""
    log = model._stored_log or get_log(getattr(model, "_logger", None))
    if model.env is None and model._stored_training is not None:
        return model._stored_training._replace(device=model.device.type, rollout=model._rollout, log=log)
    return TrainingState(
        device=model.device.type,
        environment=_environment_state(model),
        random=get_random_states(model.device),
        **model._collector.get_state(),
        rollout=model._rollout,
        log=log,
    )


def _set_training_state(model: Any, state: TrainingState, force_reset: bool | None) -> None:
    model._rollout, model._stored_log, model.trained_on = state.rollout, state.log, state.device
    if model.env is None and force_reset is not True:  # it may come later, from a file that this model is saved to
        model._stored_training = state
    taken = force_reset is not True and _set_environment_state(model, state.environment)
    if model.env is not None and not taken and force_reset is not False:
        model._last_obs = None
    if taken or force_reset is False:
        steps = model.n_steps if state.collection is None else state.collection.n_steps
        if steps != model.n_steps:
            raise ValueError(
                f"n_steps must be {steps}, because the file was saved in the middle of a rollout of {steps} steps, "
                f"got {model.n_steps}: force_reset=True drops that rollout and restarts episodes"
            )
        set_random_states(state.random, model.device)
        with damage_in("training.collection"):
            model._collector.set_state(state.generator, state.collection)


def _environment_state(model: Any) -> dict[str, Any] | None:
    try:
        return None if model.env is None else get_env_state(model.env)
    except NotImplementedError:  # it restarts
        return None


def _set_environment_state(model: Any, state: dict[str, Any] | None) -> bool:
    if model.env is None or state is None or model._last_obs is None:
        return False
    with damage_in("training.environment"):
        try:
            set_env_state(model.env, state)
        except ValueError:  # another world
            return False
    for own, space in (
        (model.env.observation_space, model.observation_space),
        (model.env.action_space, model.action_space),
    ):
        own._np_random = space._np_random  # they are one object while training
    return True


def constructor_arguments(cls: type) -> list[str]:
    """Names of the arguments of a class's constructor, and of those that it passes on to."""
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base) and base is not object]
    return sorted({name for constructor in constructors for name in inspect.signature(constructor).parameters})


def on_device(tree: Any, device: torch.device) -> Any:
    """The same with its tensors on a device; one that occurs several times is moved once."""
    return tree_map_only(torch.Tensor, cache(lambda tensor: tensor.to(device)), tree)
