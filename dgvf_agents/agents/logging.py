"""Metrics in the log, the log's own state, and warnings about settings that keep an agent from learning."""

from __future__ import annotations

import warnings
from typing import Any, final

import torch
from stable_baselines3.common.logger import Logger
from torch import Tensor

from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.core.types import Observations

SMALL_INPUT = 0.1
"""A network with weights of unit scale hardly distinguishes inputs whose largest absolute value is below this."""
INPUT_BATCHES = 10
"""Batches over which the largest input is taken."""
GRADIENT_RATIO = 0.01
"""The gradient of the main task in the features should be at least this fraction of the auxiliary task's."""
SMALL_VARIANCE = 1e-6
"""Cumulants with a smaller variance over the states of a batch hardly distinguish them."""
PATIENCE = 1_000
"""Updates for which a condition must hold at every log before it is warned of."""


class SmallInputsWarning(UserWarning):
    """Observations are tiny after preprocessing."""


class AuxiliaryDominanceWarning(UserWarning):
    """The auxiliary task's gradient dominates the main task's in the shared encoder."""


class ConstantCumulantsWarning(UserWarning):
    """The question network gives every state the same cumulants."""


@final
class Guidance:
    """Watches one model; conditions are checked where metrics are logged, so that updates wait for nothing."""

    def __init__(self) -> None:
        self._batches = 0
        self._largest = 0.0
        self._since: dict[type[UserWarning], int] = {}
        self._given: set[type[UserWarning]] = set()

    @property
    def watches_inputs(self) -> bool:
        """Whether `see_inputs` still wants batches."""
        return self._batches < INPUT_BATCHES

    def see_inputs(self, inputs: Observations, divided: bool) -> None:
        """Look at a batch of inputs; after the last, warn where all were tiny.

        Args:
            inputs: preprocessed observations, of any shape.
            divided: whether preprocessing divided integers by 255.
        """
        tensors: list[Tensor] = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
        self._largest = max(self._largest, *(float(tensor.abs().max()) for tensor in tensors))
        self._batches += 1
        if self._batches == INPUT_BATCHES and 0.0 < self._largest < SMALL_INPUT:
            remedy = (
                "integers were divided by 255: pass policy_kwargs={'normalize_images': False}"
                if divided
                else "rescale observations in a wrapper, with VecNormalize for instance"
            )
            self._warn(
                SmallInputsWarning,
                f"inputs should reach about 1 in absolute value after preprocessing, the largest of the first "
                f"{INPUT_BATCHES} batches is {self._largest:.2g}; {remedy}",
            )

    def see_gradients(self, main: float, auxiliary: float, updates: int) -> None:
        """Look at the norms of both tasks' gradients at the features, where both train the encoder.

        Args:
            main: ‖∂L^RL/∂x‖.
            auxiliary: ‖∂L^ans/∂x‖, weighted.
            updates: inner updates so far.
        """
        if self._lasts(AuxiliaryDominanceWarning, main < GRADIENT_RATIO * auxiliary, updates):
            self._warn(
                AuxiliaryDominanceWarning,
                f"train/main_gradient should be at least {GRADIENT_RATIO:.0%} of train/auxiliary_gradient, it has been "
                f"less for {PATIENCE} updates, {main:.2g} beside {auxiliary:.2g}: the auxiliary task alone shapes the "
                "encoder; lower auxiliary_coefficient, or use auxiliary_weighting='gradient-norm'",
            )

    def see_cumulants(self, variance: float, updates: int) -> None:
        """Look at the variance of the cumulants over the states of a batch.

        Args:
            variance: the mean over questions.
            updates: inner updates so far.
        """
        if self._lasts(ConstantCumulantsWarning, variance < SMALL_VARIANCE, updates):
            self._warn(
                ConstantCumulantsWarning,
                f"questions/cumulant_variance should exceed {SMALL_VARIANCE:g}, it has been less for {PATIENCE} "
                f"updates, {variance:.2g}: the questions do not tell states apart and nothing can be discovered; "
                "check the scale of observations, or use another features extractor",
            )

    def _lasts(self, kind: type[UserWarning], holds: bool, updates: int) -> bool:
        """Whether a condition has held at every log of the last `PATIENCE` updates."""
        if not holds:
            self._since.pop(kind, None)
            return False
        return updates - self._since.setdefault(kind, updates) >= PATIENCE

    def _warn(self, kind: type[UserWarning], message: str) -> None:
        if kind not in self._given:
            self._given.add(kind)
            warnings.warn(message, kind, stacklevel=4)


def record(model: Any, guidance: Guidance) -> None:
    """Record the last update of a `DiscoveryAlgorithm`; `guidance` sees what it warns of.

    Under `train/` are the inner update and its auxiliary part, under `questions/` how cumulants and discounts differ
    over the last rollout, under `meta/` the meta-updates so far.
    """
    logger, learner, task, metrics = model.logger, model.learner, model.task, model.learner.metrics
    settings, rollout, log_std = model.annealed_settings(), model._rollout, getattr(model.policy, "log_std", None)
    logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
    shown = ("explained_variance", "policy_loss", "value_loss", "gradient_norm", "encoder_step")
    values: dict[str, Any] = {
        **{f"train/{name}": getattr(metrics, name) for name in shown},
        "train/entropy_loss": -metrics.entropy,
        "train/std": log_std.detach().exp().mean() if isinstance(log_std, Tensor) else None,
        "train/learning_rate": settings.learning_rate,
        "train/entropy_weight": settings.entropy_weight,
    }
    if task.num_answers:
        values |= {f"train/{x}": getattr(metrics, x) for x in ("answer_loss", "main_gradient", "auxiliary_gradient")}
        if model.encoder_mode == "joint":
            guidance.see_gradients(metrics.main_gradient.item(), metrics.auxiliary_gradient.item(), learner.updates)
    if isinstance(task, GVFTask) and rollout is not None:
        with torch.no_grad():
            asked = model._functions.with_features(rollout) if task.reads_features else rollout
            cumulants, discounts = task.ask(learner.eta, asked)
        variance = cumulants.flatten(0, 1).var(0).mean().item()
        guidance.see_cumulants(variance, learner.updates)
        quantiles = {"min": 0.0, "median": 0.5, "max": 1.0}
        values |= {
            f"questions/discount_{name}": torch.quantile(discounts.flatten(), q) for name, q in quantiles.items()
        }
        values["questions/cumulant_variance"] = variance
    if task.discovers:
        values |= {"meta/updates": learner.meta_updates, "meta/skipped": learner.meta_skipped}
        values |= {"meta/learning_rate": settings.meta_learning_rate, "meta/loss": learner.meta_loss}
        values["meta/gradient_norm"] = learner.meta_gradient_norm
    for name, value in values.items():
        if value is not None:
            logger.record(name, value.item() if isinstance(value, Tensor) else value)


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
