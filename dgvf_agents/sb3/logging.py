"""What a row of metrics tells of updates, of questions and of meta-updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerMetrics
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.sb3.schedules import value_at

if TYPE_CHECKING:
    from dgvf_agents.a2c import DGVFA2C


def record_update(model: DGVFA2C, metrics: InnerMetrics) -> None:
    """Record the last update, and what there is of questions and meta-updates, in the model's logger."""
    record, progress = model.logger.record, model._current_progress_remaining
    record("train/n_updates", model._n_updates, exclude="tensorboard")
    record("train/learning_rate", model.lr_schedule(progress))
    record("train/entropy_weight", value_at(model.ent_coef, progress))
    record("train/explained_variance", metrics.explained_variance.item())
    record("train/entropy_loss", -metrics.entropy.item())
    record("train/policy_loss", metrics.policy_loss.item())
    record("train/value_loss", metrics.value_loss.item())
    record("train/gradient_norm", metrics.gradient_norm.item())
    if isinstance(getattr(model.policy, "log_std", None), Tensor):
        record("train/std", model.policy.log_std.detach().exp().mean().item())
    if model.task.num_answers:
        record("train/answer_loss", metrics.answer_loss.item())
        main, auxiliary = metrics.main_gradient.item(), metrics.auxiliary_gradient.item()
        record("train/main_gradient", main)
        record("train/auxiliary_gradient", auxiliary)
        if model.encoder_mode == "joint":
            model._guidance.see_gradients(main, auxiliary, model._n_updates)
    if isinstance(model.task, GVFTask):
        _record_questions(model, model.task)
    if model.task.discovers:
        _record_meta_updates(model)


def _record_questions(model: DGVFA2C, task: GVFTask) -> None:
    """How the questions differ along the last rollout."""
    if model._rollout is None:
        return
    with torch.no_grad():
        cumulants, discounts = task.ask(model.learner_state.named_eta(), model._rollout)
    variance = cumulants.flatten(0, 1).var(0).mean().item()
    model.logger.record("questions/cumulant_variance", variance)
    model._guidance.see_cumulants(variance, model._n_updates)
    for name, fraction in (("min", 0.0), ("median", 0.5), ("max", 1.0)):
        model.logger.record(f"questions/discount_{name}", torch.quantile(discounts.flatten(), fraction).item())


def _record_meta_updates(model: DGVFA2C) -> None:
    record = model.logger.record
    record("meta/updates", model.meta_updates)
    record("meta/skipped", model.meta_skipped)
    record("meta/learning_rate", value_at(model.meta_learning_rate, model._current_progress_remaining))
    if model._meta_gradient_norm is not None and model._meta_loss is not None:
        record("meta/gradient_norm", model._meta_gradient_norm.item())
        record("meta/loss", model._meta_loss.item())
