"""An algorithm's arguments: their checks, and the auxiliary task and the optimizer that they stand for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from dgvf_agents.agents.extractors import window_space
from dgvf_agents.agents.functional_policy import encoder_like, encoder_widths
from dgvf_agents.agents.policies import check_observations, check_policy_kwargs
from dgvf_agents.agents.rollout import check_rollout_buffer_class
from dgvf_agents.agents.schedules import checked_value_at
from dgvf_agents.core.argument_checks import check_counts, check_flags, checked_seed, is_integer
from dgvf_agents.core.inner_update import Numbers, UpdateRule
from dgvf_agents.core.networks import QuestionNetwork
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, RMSProp
from dgvf_agents.core.question_networks import QuestionFunctions, SharedQuestionNetwork
from dgvf_agents.core.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    GVFTask,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.hyperparameters import SCHEDULED, Hyperparameters, check_hyperparameters, record
from dgvf_agents.options import RMSPropRule, Task

RULE_STRUCTURE = tuple(name for name in record() if name in UpdateRule.__dataclass_fields__)
"""Hyperparameters that are fields of the update rule."""

RULE_SETTINGS = (
    *RULE_STRUCTURE,
    *(name for name in record() if name in Numbers._fields and name != "ent_coef"),
    "rho_bar",
    "c_bar",
)
"""Attributes that the update rule is built from; they may change while training, which restarts the unroll. Batches
bring the entropy coefficient of their own."""


def check_given(given: Mapping[str, Any]) -> None:
    """Check what Stable-Baselines3's constructor takes for granted.

    Args:
        given: arguments of an algorithm's constructor, or attributes, by name.

    Raises:
        ValueError: one is out of its range.
    """
    policy, verbose, log = given.get("policy", ""), given["verbose"], given["tensorboard_log"]
    if not (isinstance(policy, str) or (isinstance(policy, type) and issubclass(policy, ActorCriticPolicy))):
        found = getattr(policy, "__name__", policy)
        raise ValueError(f"policy must be a policy's name or an ActorCriticPolicy class, got {found}")
    if not (is_integer(verbose) and verbose >= 0):
        raise ValueError(f"verbose must be an integer >= 0, got {verbose!r}")
    check_flags(**{name: given[name] for name in ("use_sde", "use_rms_prop", "monitor_wrapper") if name in given})
    if not (log is None or isinstance(log, str | Path)):
        raise ValueError(f"tensorboard_log must be a path or None, got {log!r}")
    for name in ("policy_kwargs", "rollout_buffer_kwargs"):
        if not isinstance(given[name], dict | None):
            raise ValueError(f"{name} must be a dict or None, got {given[name]!r}")


def check_arguments(given: Mapping[str, Any]) -> None:
    """
    Args:
        given: an algorithm's attributes by name.

    Raises:
        ValueError: one is out of its range; the message names it, its value and what is allowed.
    """
    check_hyperparameters(given)
    check_rule_settings(given)
    for name in SCHEDULED:
        if given.get(name) is None:
            continue
        for progress_remaining in (1.0, 0.0):
            checked_value_at(name, given[name], progress_remaining)
    check_counts(stats_window_size=given["_stats_window_size"])
    check_given(given)
    if given["use_sde"] and not isinstance(given["action_space"], gym.spaces.Box):
        raise ValueError(f"use_sde must be False unless actions are a Box, got True with {given['action_space']}")
    if not (isinstance(given["compile"], bool) or given["compile"] == "auto"):
        raise ValueError(f"compile must be True, False or 'auto', got {given['compile']!r}")
    checked_seed(given["seed"])
    frequency = given["sde_sample_freq"]
    if not is_integer(frequency) or (frequency != -1 and frequency < 1):
        raise ValueError(f"sde_sample_freq must be an integer >= 1 or -1, got {frequency!r}")
    optimizer = given["inner_optimizer"]
    if not (optimizer is None or isinstance(optimizer, Optimizer)):
        raise ValueError(f"inner_optimizer must be None or a dgvf_agents.core.optimizers.Optimizer, got {optimizer!r}")
    check_auxiliary_task(given["auxiliary_task"])
    check_rollout_buffer_class(given["rollout_buffer_class"])


def check_rule_settings(given: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: one of `RULE_SETTINGS` is out of its range.
    """
    check_hyperparameters({name: given[name] for name in RULE_SETTINGS if name in given})
    if given["normalize_advantage"] and given["n_steps"] * given["n_envs"] < 2:
        raise ValueError("normalize_advantage must be False where n_steps x n_envs is 1, got True")


def check_learning(env: Any, log_name: str) -> None:
    """
    Raises:
        ValueError: there is no environment, or logs would lie outside their folder.
    """
    if env is None:
        raise ValueError("env must be given to load() or set_env() before learn(), got None")
    folder = Path(log_name)
    if folder.is_absolute() or ".." in folder.parts:
        raise ValueError(f"tb_log_name must name a folder inside tensorboard_log, got {log_name!r}")


def check_auxiliary_task(given: Any) -> None:
    """
    Raises:
        ValueError: it is neither a name in `Task` nor a function.
    """
    names = get_args(Task)
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, AuxiliaryTask):
        raise ValueError(
            f"auxiliary_task must be one of {names} or a function that builds a task for the model, got "
            f"{'the class' if kind is given else 'a'} {kind.__name__}: pass lambda model: {kind.__name__}(...)"
        )
    if not (given in names if isinstance(given, str) else callable(given)):
        raise ValueError(f"auxiliary_task must be one of {names} or a function, got {given!r}")


def build_task(model: Any) -> AuxiliaryTask:
    """The auxiliary task of a model that has its policy.

    Raises:
        ValueError: a function returns something else, or the task does not fit the policy's action space.
    """
    given, policy, learns_discounts = model.auxiliary_task, model.policy, model.question_discount is None
    if callable(given):
        task = given(model)
        if not isinstance(task, AuxiliaryTask):
            raise ValueError(f"auxiliary_task must return an AuxiliaryTask where it is a function, got {task!r}")
        if not is_integer(task.num_answers) or task.num_answers < 0:
            raise ValueError(f"num_answers of auxiliary_task must be an integer >= 0, got {task.num_answers!r}")
        return task
    if given in ("discovered", "random"):
        kind: type[GVFTask] = DiscoveredGVFs if given == "discovered" else RandomGVFs
        sizes = model.questions, learns_discounts
        network: QuestionFunctions
        if model.question_encoder == "shared":
            features = model.question_window * sum(encoder_widths(policy))
            network = SharedQuestionNetwork(features, *sizes).to(policy.device)
        else:
            network = question_network(policy, *sizes, model.question_window, model.mixed_precision)
        return kind(network, model.question_discount, model.question_window)
    for name in ("questions", "unroll_length"):
        if (value := getattr(model, name)) != getattr(Hyperparameters, name):
            warnings.warn(f"{name}={value} has no effect while auxiliary_task is {given!r}", stacklevel=2)
    if given == "pixel-control":
        if not isinstance(policy.action_space, gym.spaces.Discrete):
            raise ValueError(
                "auxiliary_task must not be 'pixel-control' unless actions are Discrete, got actions of "
                f"{policy.action_space}"
            )
        space = policy.observation_space  # in binary images, such as Collect-Objects's, a cell for every pixel
        binary = {"cell": 1, "border": 0, "scale": 1.0} if isinstance(space, gym.spaces.MultiBinary) else {}
        return PixelControl.over(space.shape or (), int(policy.action_space.n), **binary)  # type: ignore[arg-type]
    return RewardPrediction() if given == "reward-prediction" else NoTask()


def compilation_of(model: Any) -> Compilation:
    """Which updates of a model run compiled."""
    functions = model._functions
    eager = (
        (model.compile == "auto" and model.device.type == "cpu" and functions.faster_eagerly)
        or functions.random_in_training  # dropout would become a constant
        or model.learners > 1  # collectives cannot be traced with their derivatives
    )
    return Compilation(False if eager else model.compile, model.device)


def question_network(
    policy: ActorCriticPolicy, questions: int, learns_discounts: bool, window: int = 1, mixed_precision: bool = False
) -> QuestionNetwork:
    """A question network with an encoder like the policy's own, on windows of future observations."""
    encoder = encoder_like(policy, window_space(policy.observation_space, window), mixed_precision)
    return QuestionNetwork(encoder, encoder.features, questions, learns_discounts).to(policy.device)


_RMS_PROP: dict[RMSPropRule, type[torch.optim.Optimizer]] = {
    "pytorch": torch.optim.RMSprop,
    "tensorflow": RMSpropTFLike,
}


def policy_arguments(model: Any) -> dict[str, Any]:
    """A model's `policy_kwargs` with RMSProp, or with A2C's Adam, unless they name another optimizer.

    Raises:
        ValueError: one is out of its range, the policy does not take the observations, or there is an inner optimizer
            beside the one that they name.
    """
    kwargs = dict(model.policy_kwargs)
    check_policy_kwargs(kwargs)
    check_observations(model.policy_class, model.observation_space, kwargs)
    if "optimizer_class" in kwargs:
        if model.inner_optimizer is not None:
            raise ValueError(
                f"inner_optimizer must be None where optimizer_class is given, got {model.inner_optimizer}"
            )
        usual = {"eps": 1e-5} if kwargs["optimizer_class"] is torch.optim.Adam else {}  # as Stable-Baselines3's
        given = kwargs.get("optimizer_kwargs")
        return {**kwargs, "optimizer_kwargs": usual if given is None else given}
    if model.use_rms_prop:
        kind = _RMS_PROP[model.rms_prop]
        usual = {"alpha": model.rms_prop_decay, "eps": model.rms_prop_eps}
    else:
        kind, usual = torch.optim.Adam, {"eps": 1e-5}
    given = kwargs.get("optimizer_kwargs")
    return {**kwargs, "optimizer_class": kind, "optimizer_kwargs": usual if given is None else given}


_WITHOUT_EFFECT = {
    "momentum": 0,
    "dampening": 0,
    "nesterov": False,
    "centered": False,
    "weight_decay": 0,
    "amsgrad": False,
    "maximize": False,
}
"""Arguments that may be given these values only: others have no differentiable counterpart here."""

_ABOUT_SPEED = ("foreach", "fused", "capturable", "differentiable")
"""Arguments that change how PyTorch computes, not what."""


def inner_optimizer_for(
    optimizer_class: type[torch.optim.Optimizer], optimizer_kwargs: Mapping[str, Any] | None = None
) -> Optimizer:
    """The differentiable optimizer of the inner update for a policy's `optimizer_class` and `optimizer_kwargs`.

    Raises:
        ValueError: there is none; the message says which there are.
    """
    given = {name: value for name, value in (optimizer_kwargs or {}).items() if name not in _ABOUT_SPEED}
    optimizer = _made(optimizer_class, given)
    for name, value in given.items():
        if name not in _WITHOUT_EFFECT:
            raise ValueError(f"optimizer_kwargs must be arguments of {optimizer_class.__name__}, got {name!r}")
        if value != _WITHOUT_EFFECT[name]:
            raise ValueError(
                f"optimizer_kwargs must have {name}={_WITHOUT_EFFECT[name]!r}, got {value!r}: all tasks share "
                f"optimizers that a meta-gradient can go through, which have no {name}"
            )
    return optimizer


def _made(optimizer_class: type[torch.optim.Optimizer], given: dict[str, Any]) -> Optimizer:
    """The optimizer, its arguments taken out of `given`."""
    if optimizer_class is RMSpropTFLike:
        return RMSProp.tensorflow(given.pop("eps", 1e-8), given.pop("alpha", 0.99))
    if optimizer_class is torch.optim.RMSprop:
        return RMSProp.pytorch(given.pop("eps", 1e-8), given.pop("alpha", 0.99))
    if optimizer_class in (torch.optim.Adam, torch.optim.AdamW):
        beta1, beta2 = given.pop("betas", (0.9, 0.999))
        decoupled = optimizer_class is torch.optim.AdamW
        weight_decay = given.pop("weight_decay", 0.01) if decoupled else 0.0
        return Adam(beta1, beta2, given.pop("eps", 1e-8), weight_decay)
    if optimizer_class is torch.optim.SGD:
        return SGD()
    raise ValueError(
        "optimizer_class must be RMSpropTFLike, or RMSprop, Adam, AdamW or SGD of torch.optim: all tasks share "
        f"optimizers that a meta-gradient can go through; got {getattr(optimizer_class, '__name__', optimizer_class)}. "
        "Pass inner_optimizer= a dgvf_agents.core.optimizers.Optimizer for one of your own"
    )
