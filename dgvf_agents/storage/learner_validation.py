"""Checks of the learner's state in a file that `DiscoveryLearner.set_state` leaves out. Each raises a ValueError."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from dgvf_agents.core.argument_checks import check_not_negative, check_positive
from dgvf_agents.core.inner_metrics import InnerMetrics
from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.learner import DiscoveryLearner
from dgvf_agents.learner_state import LearnerState, UnrollState, like
from dgvf_agents.storage.random_states import check_torch_state
from dgvf_agents.storage.validation import (
    Spaces,
    check_count,
    check_finite,
    check_names,
    check_rollout,
    check_type,
    described,
    tensor_like,
)


def check_learner(state: LearnerState, learner: DiscoveryLearner, spaces: Spaces) -> None:
    """
    Args:
        state: of the file.
        learner: of the model.
        spaces: of its rollouts.
    """
    own = learner.get_state()
    scalar = next(iter(own.theta.values())).new_empty(())
    for name in ("updates", "meta_updates", "meta_skipped"):
        check_count(name, getattr(state, name))
    if state.metrics is not None:
        check_type("metrics", state.metrics, InnerMetrics)
        metrics = state.metrics._asdict()
        known = [name for name in InnerMetrics._fields if name != "encoder_step" or metrics[name] is not None]
        like("metrics", {name: metrics[name] for name in known}, dict.fromkeys(known, scalar))
    for name in ("meta_loss", "meta_gradient_norm"):
        if getattr(state, name) is not None:
            like(name, getattr(state, name), scalar)
    if state.statistics is not None:
        _check_statistics("statistics", state.statistics, own.statistics)
    if state.meta_optimizer is not None and own.meta_optimizer:
        vector = scalar.new_empty(sum(value.numel() for value in own.eta.values()))
        _check_adam(state.meta_optimizer, own.meta_optimizer, vector)
    if state.unroll is not None:
        _check_unroll(state.unroll, own, spaces)


def _check_statistics(name: str, statistics: Any, own: Any) -> None:
    """Those that squares are averaged in, or that powers of β are, have a range."""
    statistics = like(name, statistics, own)
    check_finite(name, statistics)
    for part, maximum in (("second_moment", float("inf")), ("powers", 1.0)):
        for key, value in statistics.get(part, {}).items():
            if bool(((value < 0.0) | (value > maximum)).any()):
                raise ValueError(f"{name}.{part}.{key} must lie in [0, {maximum}]")


def _check_adam(state: Any, own: dict[str, Any], vector: Tensor) -> None:
    """Check a state dict of Adam on a vector: its moments, and that it has the model's settings."""
    check_names("meta_optimizer", state, own)
    moments, groups = state["state"], state["param_groups"]
    check_type("meta_optimizer.state", moments, dict)
    check_names("meta_optimizer.state", moments, [0] if moments else [])
    expected_moments = {"step": tensor_like((), np.float32), "exp_avg": vector, "exp_avg_sq": vector}
    for moment in moments.values():
        like("meta_optimizer.state", moment, expected_moments)
        check_finite("meta_optimizer.state", moment)
        if moment["step"] < 1.0 or bool((moment["exp_avg_sq"] < 0.0).any()):
            raise ValueError("meta_optimizer.state must have step >= 1 and exp_avg_sq >= 0")
    if not (isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], dict)):
        raise ValueError(f"meta_optimizer.param_groups must be a list of one dict, got {described(groups)}")
    (group,), (expected,) = groups, own["param_groups"]
    check_not_negative(**{"meta_optimizer.param_groups.lr": group.get("lr")})
    check_positive(**{"meta_optimizer.param_groups.eps": group.get("eps")})
    for name in expected.keys() - {"lr", "eps"}:  # versions of PyTorch differ in what they write
        if name in group and repr(group[name]) != repr(expected[name]):
            found = described(group[name])
            raise ValueError(f"meta_optimizer.param_groups.{name} must be {expected[name]!r}, got {found}")


def _check_unroll(unroll: Any, own: LearnerState, spaces: Spaces) -> None:
    check_type("unroll", unroll, UnrollState)
    check_type("unroll.start", unroll.start, InnerState)
    like("unroll.start.theta", unroll.start.theta, own.theta)
    check_finite("unroll.start.theta", unroll.start.theta)
    _check_statistics("unroll.start.optimizer", unroll.start.optimizer, own.statistics)
    for name in ("rollouts", "learning_rates", "random_states"):
        check_type(f"unroll.{name}", getattr(unroll, name), list)
    for i, rollout in enumerate(unroll.rollouts):
        check_rollout(f"unroll.rollouts.{i}", rollout, spaces)
    for i, rate in enumerate(unroll.learning_rates):
        name = f"unroll.learning_rates.{i}"
        like(name, rate, next(iter(own.theta.values())).new_empty(()))
        check_not_negative(**{name: rate.item()})
    for i, states in enumerate(unroll.random_states):
        check_type(f"unroll.random_states.{i}", states, list)
        for state in states:
            check_type(f"unroll.random_states.{i}", state, Tensor)
        for state in states[:1]:  # the others are of CUDA devices
            check_torch_state(f"unroll.random_states.{i}", state)
