"""The one check of what a file holds: that it has the tree, the shapes and the types of a template."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import is_finite_number, is_integer
from dgvf_agents.storage.files import DamagedFileError

Bound = float | np.ndarray | tuple[str, ...]
"""A bound of numbers; names stand for the largest index into axes of these sizes together."""


class Leaf(NamedTuple):
    """Template of a tensor, or of an array if `dtype` is one of NumPy's or `None`."""

    shape: tuple[int | str, ...]
    """A size by name is the file's own, and equal throughout a record; in upper case, it is at least 1."""
    dtype: torch.dtype | np.dtype | None
    """`None`: an array of any numbers."""
    low: float = -math.inf
    high: Bound = math.inf
    """Values lie in [low, high]."""
    finite: bool = True
    """Whether floating-point numbers are finite."""


@final
@dataclass(frozen=True)
class Maybe:
    """Template of what may be `None`."""

    like: Any


@final
@dataclass(frozen=True)
class Each:
    """Template of a dict with any strings as keys."""

    like: Any


def fitted(name: str, value: Any, like: Any, sizes: dict[str, int] | None = None) -> Any:
    """`value` with its records, if it fits the template.

    Args:
        name: of the value, for errors.
        value: plain values, arrays and tensors, as `values.decode` returns them; records are dicts.
        like: the template: tensors and arrays, whose numbers do not count, `Leaf`, `Maybe`, `Each`, a list of one
            template for all items, a dict or named tuple of templates, a function that returns the value, a type, or a
            union of types. An `int` is not negative, a `float` finite.
        sizes: sizes by name that are known already.

    Raises:
        DamagedFileError: it does not fit; the message names the part, what it must be and what it is.
    """
    sizes = {} if sizes is None else sizes
    if isinstance(like, Maybe):
        return None if value is None else fitted(name, value, like.like, sizes)
    if isinstance(like, Leaf):
        return _leaf(name, value, like, sizes)
    if isinstance(like, Tensor | np.ndarray):
        return _leaf(name, value, Leaf(tuple(like.shape), like.dtype), sizes)
    if isinstance(like, list):
        _require(isinstance(value, list), name, "a list", value)
        return [fitted(f"{name}.{i}", item, like[0], sizes) for i, item in enumerate(value)]
    if isinstance(like, Each):
        _require(isinstance(value, dict) and all(isinstance(key, str) for key in value), name, "named values", value)
        return {key: fitted(f"{name}.{key}", part, like.like, sizes) for key, part in value.items()}
    if isinstance(like, dict):
        _require(isinstance(value, dict) and set(value) == set(like), name, f"values named {sorted(like)}", value)
        return {key: fitted(f"{name}.{key}", value[key], part, sizes) for key, part in like.items()}
    if isinstance(like, tuple):
        fields: Any = like
        return type(like)(**fitted(name, value, fields._asdict(), dict(sizes)))
    return _plain(name, value, like)


def _plain(name: str, value: Any, like: Any) -> Any:
    if like is int:
        _require(is_integer(value) and value >= 0, name, "an integer >= 0", value)
    elif like is float:
        _require(is_finite_number(value), name, "a finite number", value)
    elif isinstance(like, type | UnionType):
        _require(isinstance(value, like), name, f"a {getattr(like, '__name__', like)}", value)
    else:
        try:
            return like(value)
        except Exception as error:
            raise DamagedFileError(f"{name} is malformed: {error}") from error
    return value


def _leaf(name: str, value: Any, like: Leaf, sizes: dict[str, int]) -> Any:
    kind: Any = Tensor if isinstance(like.dtype, torch.dtype) else np.ndarray
    found = tuple(value.shape) if isinstance(value, kind) else ()
    typed = isinstance(value, kind) and like.dtype in (None, value.dtype)
    if typed and like.dtype is None:
        typed = value.dtype.kind in "biuf"
    if typed and len(found) == len(like.shape):
        for size, wanted in zip(found, like.shape, strict=True):
            if isinstance(wanted, str):
                sizes.setdefault(wanted, size)
    typed = typed and not any(isinstance(size, str) and size.isupper() and sizes.get(size) == 0 for size in like.shape)
    shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in like.shape)
    _require(typed and found == shape, name, f"a {kind.__name__} {shape} of {like.dtype or 'numbers'}", value)
    numbers = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if like.finite and numbers.is_floating_point():
        _require(bool(torch.isfinite(numbers).all()), name, "finite", value)
    high = math.prod(sizes[size] for size in like.high) - 1 if isinstance(like.high, tuple) else like.high
    if isinstance(high, np.ndarray) or (like.low, high) != (-math.inf, math.inf):
        largest = torch.as_tensor(high, device=numbers.device)
        _require(bool(((numbers >= like.low) & (numbers <= largest)).all()), name, f"in [{like.low}, {high}]", value)
    return value


def _require(holds: bool, name: str, wanted: str, value: Any) -> None:
    if not holds:
        raise DamagedFileError(f"{name} must be {wanted}, got {described(value)}")


def described(value: Any) -> str:
    """A value for a message: the shape and dtype of one that is large."""
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, dict):
        return f"values named {sorted(map(str, value))}"[:300]
    return f"{value!r:.80}"
