"""Differentiable counterparts of the optimizers that a policy may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, RMSProp
from dgvf_agents.options import RMSPropRule

_RMS_PROP: dict[RMSPropRule, type[torch.optim.Optimizer]] = {
    "pytorch": torch.optim.RMSprop,
    "tensorflow": RMSpropTFLike,
}


def with_optimizer(
    policy_kwargs: Mapping[str, Any],
    rms_prop: RMSPropRule | None,
    epsilon: float,
    decay: float,
    inner_optimizer: Optimizer | None,
) -> dict[str, Any]:
    """A policy's arguments with RMSProp, or with A2C's Adam, unless they name another optimizer.

    Args:
        policy_kwargs: keyword arguments of the policy.
        rms_prop: convention of RMSProp; `None`: Adam.
        epsilon: ε of RMSProp.
        decay: decay of RMSProp's second moment.
        inner_optimizer: the optimizer that updates use in place of the policy's.

    Raises:
        ValueError: there is an inner optimizer beside the one that they name.
    """
    kwargs = dict(policy_kwargs)
    if "optimizer_class" in kwargs:
        if inner_optimizer is not None:
            raise ValueError(f"inner_optimizer must be None where optimizer_class is given, got {inner_optimizer}")
        return kwargs
    kind = torch.optim.Adam if rms_prop is None else _RMS_PROP[rms_prop]
    usual = {"eps": 1e-5} if rms_prop is None else {"alpha": decay, "eps": epsilon}
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

    Of `RMSprop`, `Adam` and `AdamW`, ε moves into the root, squared: √v + ε has an infinite derivative in v at 0, and
    √(v + ε²) is the same number for v far from ε² on either side.

    Raises:
        ValueError: there is none; the message says which there are.
    """
    given = dict(optimizer_kwargs or {})
    for name in _ABOUT_SPEED:
        given.pop(name, None)
    optimizer = _made(optimizer_class, given)
    for name, value in given.items():
        if name not in _WITHOUT_EFFECT:
            raise ValueError(f"optimizer_kwargs must be arguments of {optimizer_class.__name__}, got {name!r}")
        if value != _WITHOUT_EFFECT[name]:
            raise ValueError(
                f"optimizer_kwargs must have {name}={_WITHOUT_EFFECT[name]!r}, got {value!r}: the meta-gradient goes "
                f"through the optimizer, and its {name} is not implemented"
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
        "optimizer_class must be RMSpropTFLike, or RMSprop, Adam, AdamW or SGD of torch.optim: the meta-gradient goes "
        f"through the optimizer; got {getattr(optimizer_class, '__name__', optimizer_class)}. Pass inner_optimizer= a "
        "dgvf_agents.core.optimizers.Optimizer for one of your own"
    )
