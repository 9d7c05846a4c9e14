"""Metrics of updates, questions and meta-updates in the log, and the log's own state."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from dgvf_agents.agents.guidance import Guidance
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.learner import DiscoveryLearner


def record_update(logger: Logger, metrics: InnerMetrics, policy: ActorCriticPolicy, updates: int) -> None:
    """Record the last inner update under `train/`."""
    logger.record("train/n_updates", updates, exclude="tensorboard")
    logger.record("train/entropy_loss", -metrics.entropy.item())
    for name in ("explained_variance", "policy_loss", "value_loss", "gradient_norm"):
        logger.record(f"train/{name}", getattr(metrics, name).item())
    if metrics.encoder_step is not None:
        logger.record("train/encoder_step", metrics.encoder_step.item())
    log_std = getattr(policy, "log_std", None)
    if isinstance(log_std, Tensor):
        logger.record("train/std", log_std.detach().exp().mean().item())


def record_answers(logger: Logger, metrics: InnerMetrics, guidance: Guidance | None, updates: int) -> None:
    """Record the auxiliary task's part of the last inner update; `guidance` compares its gradient with L^RL's."""
    main, auxiliary = metrics.main_gradient.item(), metrics.auxiliary_gradient.item()
    logger.record("train/answer_loss", metrics.answer_loss.item())
    logger.record("train/main_gradient", main)
    logger.record("train/auxiliary_gradient", auxiliary)
    if guidance is not None:
        guidance.see_gradients(main, auxiliary, updates)


def record_questions(
    logger: Logger, task: GVFTask, eta: Params, rollout: Rollout, guidance: Guidance, updates: int
) -> None:
    """Record how cumulants and discounts differ over the last rollout, under `questions/`."""
    with torch.no_grad():
        cumulants, discounts = task.ask(eta, rollout)
    variance = cumulants.flatten(0, 1).var(0).mean().item()
    logger.record("questions/cumulant_variance", variance)
    guidance.see_cumulants(variance, updates)
    for name, fraction in (("min", 0.0), ("median", 0.5), ("max", 1.0)):
        logger.record(f"questions/discount_{name}", torch.quantile(discounts.flatten(), fraction).item())


def record_meta_updates(logger: Logger, learner: DiscoveryLearner, learning_rate: float) -> None:
    """Record the meta-updates so far, under `meta/`."""
    logger.record("meta/updates", learner.meta_updates)
    logger.record("meta/skipped", learner.meta_skipped)
    logger.record("meta/learning_rate", learning_rate)
    if learner.meta_gradient_norm is not None and learner.meta_loss is not None:
        logger.record("meta/gradient_norm", learner.meta_gradient_norm.item())
        logger.record("meta/loss", learner.meta_loss.item())


def get_log(logger: Logger | None) -> dict[str, Any] | None:
    """Metrics recorded since the last row."""
    if logger is None:
        return None
    values = {key: value for key, value in logger.name_to_value.items() if isinstance(value, int | float | str)}
    return {
        "values": values,
        "counts": {key: logger.name_to_count[key] for key in values if key in logger.name_to_count},
        "excluded": {key: logger.name_to_excluded[key] for key in values},
    }


def restore_log(logger: Logger, log: dict[str, Any]) -> None:
    """Put back what `get_log` returned."""
    logger.name_to_value.update(log["values"])
    logger.name_to_count.update(log["counts"])
    logger.name_to_excluded.update(log["excluded"])
