"""Checks of arguments that must be numbers in some range; errors name the argument and its value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, get_args

_LARGEST = (2 - 2**-23) * 2.0**127
"""Of the finite numbers in single precision, in which updates are computed."""


class UnsupportedSpaceError(ValueError, AssertionError):
    """A space is not supported, or something does not fit it.

    Stable-Baselines3 raises an `AssertionError` in such cases; this is one too.
    """


def _check(values: dict[str, Any], holds: Callable[[Any], bool], wanted: Callable[[Any], str]) -> None:
    for name, value in values.items():
        if not holds(value):
            raise ValueError(f"{name} must {wanted(value)}, got {value!r}")


@contextmanager
def keywords_of(name: str, given: Any) -> Iterator[None]:
    """
    Raises:
        ValueError: in place of a `TypeError`, for keyword arguments `given` that a call does not take.
    """
    try:
        yield
    except TypeError as error:
        raise ValueError(f"{name} must be keyword arguments that fit, got {given!r}: {error}") from error


def check_counts(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not an integer ≥ 1. The float 4.0 is not an integer.
    """
    _check(
        values,
        lambda value: is_integer(value) and value >= 1,
        lambda value: f"be {'' if is_integer(value) else 'an integer '}>= 1",
    )


MAX_SIZE = 1 << 16
"""Of what memory is allocated for; whether a smaller one fits is up to the memory that is free."""


def check_sizes(largest: int = MAX_SIZE, /, **values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not an integer in 1 … `largest`.
    """
    check_counts(**values)
    _check(values, lambda value: value <= largest, lambda value: f"be <= {largest}")


def check_fractions(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a number in [0, 1].
    """
    _check(values, lambda value: is_finite_number(value) and 0.0 <= value <= 1.0, lambda value: "lie in [0, 1]")


def check_fractions_below_one(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a number in [0, 1).
    """
    _check(values, lambda value: is_finite_number(value) and 0.0 <= value < 1.0, lambda value: "lie in [0, 1)")


def check_positive(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a finite number > 0.
    """
    _check(values, lambda value: is_finite_number(value) and value > 0.0, lambda value: f"be {_kind(value)}> 0")


def check_positive_or_infinite(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is neither infinity nor a finite number > 0.
    """
    check_positive(**{name: value for name, value in values.items() if value != math.inf})


def check_not_negative(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a finite number ≥ 0.
    """
    _check(values, lambda value: is_finite_number(value) and value >= 0.0, lambda value: f"be {_kind(value)}>= 0")


def check_flags(**values: Any) -> None:
    """
    Raises:
        ValueError: one of them is not a boolean. The string "no" is truthy, so truthiness is not enough.
    """
    _check(values, lambda value: isinstance(value, bool), lambda value: "be True or False")


def checked_seed(seed: Any) -> int | None:
    """A seed as an integer of Python, as Gymnasium takes it.

    Raises:
        ValueError: it is neither an integer in [0, 2^32) nor `None`.
    """
    if seed is None:
        return None
    if not (is_integer(seed) and 0 <= seed < 2**32):
        raise ValueError(f"seed must be an integer in [0, 2^32) or None, got {seed!r}")
    return int(seed)


def check_choice(name: str, value: str, allowed: object) -> None:
    """
    Args:
        name: of the argument.
        value: of the argument.
        allowed: a `Literal` type.

    Raises:
        ValueError: the value is not one of the type's choices.
    """
    if value not in get_args(allowed):
        raise ValueError(f"{name} must be one of {get_args(allowed)}, got {value!r}")


def is_integer(value: Any) -> bool:
    """Whether it is an integer of Python or NumPy; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite_number(value: Any) -> bool:
    """Whether it is a number of Python or NumPy that is finite in single precision; booleans are not."""
    return _is_number(value) and abs(float(value)) <= _LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    """Part of an error message: asks for a finite number if the value is not one."""
    if is_finite_number(value):
        return ""
    overflows = _is_number(value) and math.isfinite(value)
    return f"a finite number {'in single precision ' if overflows else ''}"


_DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")


def check_device_name(device: str) -> None:
    """Check that a configuration may name this device; the device need not be available.

    Raises:
        ValueError: `device` is not a valid name.
    """
    if not isinstance(device, str) or not _DEVICES.fullmatch(device):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:<index>', got {device!r}")
