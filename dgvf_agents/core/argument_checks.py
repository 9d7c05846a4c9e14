"""Arguments that must be numbers of some range, checked by name."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, get_args


class UnsupportedSpaceError(ValueError, AssertionError):
    """Something does not fit a space: a `ValueError`, and what Stable-Baselines3's own checks of spaces raise."""


def check_counts(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not an integer ≥ 1; 4.0 is none.
    """
    for name, value in values.items():
        if not (is_integer(value) and value >= 1):
            raise ValueError(f"{name} must be {'' if is_integer(value) else 'an integer '}>= 1, got {value!r}")


def check_fractions(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a number in [0, 1].
    """
    for name, value in values.items():
        if not (is_finite_number(value) and 0.0 <= value <= 1.0):
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def check_positive(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a finite number > 0.
    """
    for name, value in values.items():
        if not (is_finite_number(value) and value > 0.0):
            raise ValueError(f"{name} must be {_kind(value)}> 0, got {value!r}")


def check_positive_if_given(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is neither None nor a finite number > 0.
    """
    check_positive(**{name: value for name, value in values.items() if value is not None})


def check_positive_or_infinite(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is neither infinite, as bounds may be that are never to be reached, nor a number > 0.
    """
    check_positive(**{name: value for name, value in values.items() if value != math.inf})


def check_not_negative(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a finite number ≥ 0.
    """
    for name, value in values.items():
        if not (is_finite_number(value) and value >= 0.0):
            raise ValueError(f"{name} must be {_kind(value)}>= 0, got {value!r}")


def check_flags(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is neither True nor False; 'no' would count as true.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def check_seed(seed: Any) -> None:
    """
    Raises:
        ValueError: it is neither an integer nor None.
    """
    if seed is not None and not is_integer(seed):
        raise ValueError(f"seed must be an integer or None, got {seed!r}")


def is_integer(value: Any) -> bool:
    """Whether it is an integer of Python's or NumPy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite_number(value: Any) -> bool:
    """Whether it is a number of Python's or NumPy's, neither NaN nor infinite."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _kind(value: Any) -> str:
    """What to ask for in place of a value, besides its range."""
    return "" if is_finite_number(value) else "a finite number "


def check_choice(name: str, value: str, allowed: object) -> None:
    """Raise a ValueError unless `value` is one of a `Literal`'s choices."""
    if value not in get_args(allowed):
        raise ValueError(f"{name} must be one of {get_args(allowed)}, got {value!r}")
