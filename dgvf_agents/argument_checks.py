"""Arguments that must be numbers of some range, checked by name."""

from __future__ import annotations

import math
from typing import Any


class UnsupportedSpaceError(ValueError, AssertionError):
    """Something does not fit a space: a `ValueError`, and what Stable-Baselines3's own checks of spaces raise."""


def check_counts(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a whole number ≥ 1.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not _is_whole(value) or value < 1:
            raise ValueError(f"{name} must be >= 1, got {value!r}")


def check_fractions(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them does not lie in [0, 1].
    """
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def check_positive(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a number > 0.
    """
    for name, value in values.items():
        if not value > 0.0:
            raise ValueError(f"{name} must be > 0, got {value!r}")


def check_positive_if_given(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is neither None nor a number > 0.
    """
    check_positive(**{name: value for name, value in values.items() if value is not None})


def check_not_negative(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a finite number ≥ 0.
    """
    for name, value in values.items():
        if not (value >= 0.0 and math.isfinite(value)):
            raise ValueError(f"{name} must be >= 0, got {value!r}")


def _is_whole(value: Any) -> bool:
    try:
        return int(value) == value
    except (TypeError, ValueError, OverflowError):
        return False
