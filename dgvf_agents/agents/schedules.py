"""Numbers that change along training, as Stable-Baselines3 has them.

A schedule is a function of the progress that remains, 1 at the beginning and 0 at the end.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import LinearSchedule

from dgvf_agents.core.argument_checks import check_not_negative
from dgvf_agents.core.types import Rollout
from dgvf_agents.hyperparameters import record


@final
class GeometricSchedule:
    """From `start` to `end` by the same factor per step: as long from 0.3 to 0.1 as from 0.03 to 0.01.

    For what acts by its order of magnitude, as an entropy coefficient does beside rewards.
    """

    def __init__(self, start: float, end: float) -> None:
        """
        Args:
            start: the value at the beginning > 0.
            end: the value at the end > 0.

        Raises:
            ValueError: one of them is not positive.
        """
        for name, value in (("start", start), ("end", end)):
            if not value > 0.0:
                raise ValueError(f"{name} must be > 0, got {value!r}")
        self.start, self.end = float(start), float(end)

    def __call__(self, progress_remaining: float) -> float:
        """The value."""
        return self.start**progress_remaining * self.end ** (1.0 - progress_remaining)

    def __repr__(self) -> str:
        return f"GeometricSchedule(start={self.start}, end={self.end})"


@final
class TabulatedSchedule:
    """A schedule by its values at equally spaced points, linear between them: what files hold of functions."""

    POINTS = 1001
    """Number of points of `of`."""

    def __init__(self, values: np.ndarray) -> None:
        """
        Args:
            values: `[N]`, from the end of training to its beginning, N ≥ 2.

        Raises:
            ValueError: they are no such vector of numbers.
        """
        self.values = np.asarray(values, float)
        if self.values.ndim != 1 or len(self.values) < 2:
            raise ValueError(f"values must be a vector of at least 2, got the shape {self.values.shape}")

    @classmethod
    def of(cls, schedule: Schedule) -> TabulatedSchedule:
        """The values of a schedule."""
        return cls(np.array([float(schedule(float(x))) for x in np.linspace(0.0, 1.0, cls.POINTS)]))

    def __call__(self, progress_remaining: float) -> float:
        """The value."""
        return float(np.interp(progress_remaining, np.linspace(0.0, 1.0, len(self.values)), self.values))

    def __repr__(self) -> str:
        return f"TabulatedSchedule of {len(self.values)} points"


def scheduled(name: str, start: float, end: float | None) -> float | LinearSchedule | GeometricSchedule:
    """The constructor's argument for a hyperparameter of `SCHEDULED`, from its value and `final_NAME`.

    It falls or rises from `start` to `end`, by the same amount or factor per step; without an `end` it is constant.
    """
    if end is None:
        return start
    return LinearSchedule(start, end, 1.0) if record()[name].schedule == "linear" else GeometricSchedule(start, end)


def value_at(number: float | Schedule, progress_remaining: float) -> float:
    """The current value of a number or a schedule."""
    return float(number(progress_remaining) if callable(number) else number)


def checked_value_at(name: str, number: float | Schedule, progress_remaining: float) -> float:
    """`value_at` of the argument `name`.

    Raises:
        ValueError: it is not a finite number ≥ 0.
    """
    if type(number) is float and 0.0 <= number < math.inf:
        return number
    if callable(number):
        given = number(max(progress_remaining, 0.0))  # the last rollout may exceed the total
        value = _as_float(given)
        if not (math.isfinite(value) and value >= 0.0):
            where = f"got {given!r} where {progress_remaining:g} of the progress remains"
            raise ValueError(f"{name} must give finite numbers >= 0, {where}")
        return value
    check_not_negative(**{name: number})
    return float(number)


def _as_float(given: Any) -> float:
    """A schedule's value; NaN if it is not a number. Text is not, even if it could be parsed as one."""
    try:
        return math.nan if isinstance(given, str | bytes) else float(given)
    except (TypeError, ValueError):
        return math.nan


@final
class AnnealedSettings(NamedTuple):
    """The settings that schedules may anneal, for one update."""

    learning_rate: float
    """α′."""
    meta_learning_rate: float
    """α."""
    entropy_weight: float
    """c_H."""
    auxiliary_coefficient: float | None = None
    """c; `None`: constant."""

    @classmethod
    def of(cls, model: Any) -> AnnealedSettings:
        """A model's schedules at its progress; see `DiscoveryAlgorithm.annealed_settings`."""
        names = ("meta_learning_rate", "ent_coef", *(["auxiliary_coefficient"] * callable(model.auxiliary_coefficient)))
        schedules = {"learning_rate": model.lr_schedule, **{name: getattr(model, name) for name in names}}
        progress = model._current_progress_remaining
        return cls(*(checked_value_at(name, given, progress) for name, given in schedules.items()))

    def batch(self, rollout: Rollout) -> Rollout:
        """The rollout with the c_H of its update, and its c if that is annealed."""
        new, coefficient = rollout.rewards.new_full, self.auxiliary_coefficient
        return rollout._replace(
            entropy_weight=new((), self.entropy_weight),
            auxiliary_coefficient=None if coefficient is None else new((), coefficient),
        )
