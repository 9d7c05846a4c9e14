"""Checks of an algorithm's arguments, whether the constructor, `load` or an assignment gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgvf_agents.agents.auxiliary_tasks import check_auxiliary_task
from dgvf_agents.agents.rollout_buffer import check_rollout_buffer_class
from dgvf_agents.agents.schedules import checked_value_at
from dgvf_agents.core.argument_checks import (
    check_choice,
    check_counts,
    check_flags,
    check_fractions,
    check_not_negative,
    check_positive,
    check_positive_if_given,
    check_positive_or_infinite,
    checked_seed,
    is_finite_number,
    is_integer,
)
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.options import (
    AuxiliaryWeighting,
    Convention,
    EncoderMode,
    Horizon,
    Objective,
    QuestionEncoder,
    Storage,
)

_COUNTS = ("questions", "question_window", "unroll_length", "n_steps")
_FLAGS = ("use_rms_prop", "use_sde", "normalize_advantage", "mixed_precision")
_POSITIVE = ("rms_prop_eps", "meta_epsilon")
_CHOICES = {
    "auxiliary_weighting": AuxiliaryWeighting,
    "encoder_mode": EncoderMode,
    "objective": Objective,
    "horizon": Horizon,
    "storage": Storage,
    "convention": Convention,
    "question_encoder": QuestionEncoder,
}

SCHEDULES = ("learning_rate", "ent_coef", "meta_learning_rate", "auxiliary_coefficient")
"""Attributes that may be functions of the remaining progress."""

RULE_SETTINGS = (
    "vf_coef",
    "gamma",
    "gae_lambda",
    "normalize_advantage",
    "auxiliary_coefficient",
    "auxiliary_weighting",
    "encoder_mode",
    "convention",
    "max_grad_norm",
    "head_rate",
)
"""Attributes that the update rule is built from; they may change while training, which restarts the unroll."""


def check_arguments(given: Mapping[str, Any]) -> None:
    """
    Args:
        given: an algorithm's attributes by name.

    Raises:
        ValueError: one is out of its range; the message names it, its value and what is allowed.
    """
    check_counts(**{name: given[name] for name in _COUNTS}, stats_window_size=given["_stats_window_size"])
    check_flags(**{name: given[name] for name in _FLAGS})
    if not (isinstance(given["compile"], bool) or given["compile"] == "auto"):
        raise ValueError(f"compile must be True, False or 'auto', got {given['compile']!r}")
    checked_seed(given["seed"])
    check_positive(**{name: given[name] for name in _POSITIVE})
    check_positive_or_infinite(**{name: given[name] for name in ("meta_max_grad_norm", "meta_skip_norm")})
    check_positive_if_given(meta_max_discount_grad_norm=given["meta_max_discount_grad_norm"])
    if not callable(given["meta_learning_rate"]):
        check_positive(meta_learning_rate=given["meta_learning_rate"])
    for name in SCHEDULES:
        for progress_remaining in (1.0, 0.0):
            checked_value_at(name, given[name], progress_remaining)
    for name, allowed in _CHOICES.items():
        check_choice(name, given[name], allowed)
    check_rule_settings(given)
    discount, frequency = given["question_discount"], given["sde_sample_freq"]
    if not (discount is None or (is_finite_number(discount) and 0.0 <= discount < 1.0)):
        raise ValueError(f"question_discount must lie in [0, 1) or be None, got {discount!r}")
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
    check_fractions(gamma=given["gamma"], gae_lambda=given["gae_lambda"])
    check_not_negative(vf_coef=given["vf_coef"], head_rate=given["head_rate"])
    checked_value_at("auxiliary_coefficient", given["auxiliary_coefficient"], 1.0)
    check_positive_if_given(max_grad_norm=given["max_grad_norm"])
    if given["normalize_advantage"] and given["n_steps"] * given["n_envs"] < 2:
        raise ValueError("normalize_advantage must be False where n_steps x n_envs is 1, got True")
