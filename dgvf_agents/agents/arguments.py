"""Checks of an algorithm's arguments, whether the constructor, `load` or an assignment gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgvf_agents.agents.auxiliary_tasks import check_auxiliary_task
from dgvf_agents.agents.rollout import check_rollout_buffer_class
from dgvf_agents.agents.schedules import checked_value_at
from dgvf_agents.core.argument_checks import check_counts, check_flags, checked_seed, is_integer
from dgvf_agents.core.inner_update import Numbers, UpdateRule
from dgvf_agents.core.optimizers import Optimizer
from dgvf_agents.hyperparameters import SCHEDULED, check_hyperparameters, record

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
        for progress_remaining in (1.0, 0.0):
            checked_value_at(name, given[name], progress_remaining)
    check_counts(stats_window_size=given["_stats_window_size"])
    check_flags(use_rms_prop=given["use_rms_prop"], use_sde=given["use_sde"])
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
