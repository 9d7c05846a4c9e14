"""Python values as JSON and named tensors, and back; and the one check of what a file holds.

The list of kinds is closed, so that reading can run no code.

Numbers, strings, lists and dicts stand for themselves; named tuples are written as dicts, which `fitted` turns
back. Everything else is a JSON object whose `"kind"` says what it is. Classes go by the names of a `Vocabulary`: a name
in a file is looked up in it, and nothing is imported. What was read must have the tree, the shapes and the types of a
template (`fitted`).
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from dgvf_agents.core.argument_checks import is_finite_number, is_integer
from dgvf_agents.storage.files import DamagedFileError
from dgvf_envs.functional.random_streams import generator_at

_DTYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)

Tensors = dict[str, Tensor]


@final
@dataclass(frozen=True)
class Vocabulary:
    """The classes that files have names for, besides `torch.nn`'s and `torch.optim`'s."""

    classes: Mapping[str, type]
    """Classes that values may be, by name."""
    records: Mapping[str, type]
    """Classes whose objects are no more than their attributes, which are their constructors' arguments, by name."""

    def name_of(self, kind: type) -> str | None:
        """The name of a class; `None` if it has none."""
        return next((name for name, known in {**_TORCH, **self.classes}.items() if known is kind), None)

    def class_named(self, name: str) -> type:
        """
        Raises:
            ValueError: no class has this name.
        """
        known = {**_TORCH, **self.classes}
        if name not in known:
            raise ValueError(
                f"a class must be one of {sorted(self.classes)}, or of torch.nn or torch.optim, got {name!r:.80}"
            )
        return known[name]


_TORCH = {
    f"{module.__name__}.{name}": kind
    for module, base in ((nn, nn.Module), (torch.optim, torch.optim.Optimizer))
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, base)
}


class CannotEncodeError(TypeError):
    """A value of a kind that is not on the list."""


@final
class Encoder:
    """Turns values into JSON and collects their tensors."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tensors: Tensors = {}
        """By their place in the value."""
        self._vocabulary = vocabulary

    def encode(self, value: Any, place: str) -> Any:
        """A value for `json.dumps`.

        Args:
            value: what to encode.
            place: a name for it, which the names of its tensors begin with.

        Raises:
            CannotEncodeError: the value, or something in it, is of a kind that is not on the list.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        if type(value) is list:
            return [self.encode(part, f"{place}.{i}") for i, part in enumerate(value)]
        if type(value) in (dict, OrderedDict) and "kind" not in value and all(type(key) is str for key in value):
            return {key: self.encode(part, f"{place}.{key}") for key, part in value.items()}
        kind, parts = self._taken_apart(value, place)
        return {"kind": kind, **{name: self.encode(part, f"{place}.{name}") for name, part in parts.items()}}

    def _taken_apart(self, value: Any, place: str) -> tuple[str, dict[str, Any]]:
        """The kind of a value, and its parts, which are encoded in turn; `decode` puts them together."""
        for name, record in self._vocabulary.records.items():
            if type(value) is record:
                names = [field.name for field in fields(value)] if is_dataclass(value) else list(vars(value))
                return "record", {"type": name, "attributes": {name: getattr(value, name) for name in names}}
        match value:
            case dict() if type(value) in (dict, OrderedDict):
                return "dict", {"items": [[key, part] for key, part in value.items()]}
            case tuple() if type(value) is tuple:
                return "tuple", {"items": list(value)}
            case deque():
                return "deque", {"items": list(value), "maxlen": value.maxlen}
            case np.ndarray() if value.dtype.name in _DTYPES:
                tensor = torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C"))
                return "array", {"name": self._keep(tensor, place)}
            case Tensor() if value.layout is torch.strided and not (value.is_complex() or value.is_quantized):
                copy = value.detach().cpu().clone(memory_format=torch.contiguous_format)
                return "tensor", {"name": self._keep(copy, place)}
            case np.generic() if value.dtype.name in _DTYPES:
                return "number", {"dtype": value.dtype.name, "value": value.item()}
            case type() if known := self._vocabulary.name_of(value):
                return "class", {"name": known}
            case gym.Space() if type(value) in _SPACES:
                arguments = _SPACES[type(value)](value)
                return "space", {"type": type(value).__name__, "arguments": arguments, "generator": value._np_random}
            case np.random.Generator() if isinstance(value.bit_generator, np.random.PCG64):
                return "generator", {"state": value.bit_generator.state}
        kind = f"the class {path_of(value)}" if isinstance(value, type) else f"a {path_of(type(value))}"
        raise CannotEncodeError(f"{place} is {kind}, which cannot be written without pickle: {described(value)}")

    def _keep(self, tensor: Tensor, place: str) -> str:
        while place in self.tensors:
            place += "'"
        self.tensors[place] = tensor
        return place


_SPACES: dict[type, Callable[[Any], dict[str, Any]]] = {
    gym.spaces.Box: lambda s: {"low": s.low, "high": s.high, "dtype": s.dtype.name},
    gym.spaces.Discrete: lambda s: {"n": int(s.n), "start": int(s.start), "dtype": s.dtype.name},
    gym.spaces.MultiDiscrete: lambda s: {"nvec": s.nvec, "start": s.start, "dtype": s.dtype.name},
    gym.spaces.MultiBinary: lambda s: {"n": s.n},
    gym.spaces.Dict: lambda s: {"spaces": dict(s.spaces)},
    gym.spaces.Tuple: lambda s: {"spaces": tuple(s.spaces)},
}


def decode(value: Any, tensors: Tensors, vocabulary: Vocabulary) -> Any:
    """The value that `Encoder.encode` was given, with dicts for named tuples.

    Args:
        value: what it returned, through JSON or not.
        tensors: `Encoder.tensors`, which are handed out as they are; an array is a copy, and takes its tensor out.
        vocabulary: the classes that it may name.

    Raises:
        ValueError: it is none of the kinds.
        KeyError: a tensor is not there, or was taken out.
    """

    def back(value: Any) -> Any:
        if isinstance(value, list):
            return [back(part) for part in value]
        if not isinstance(value, dict):
            return value
        parts = {key: back(part) for key, part in value.items()}
        if "kind" not in parts:
            return parts
        kind = parts["kind"]
        if not isinstance(kind, str) or kind not in decoders:
            raise ValueError(f"kind must be one of {sorted(decoders)}, got {kind!r:.80}")
        return decoders[kind](parts)

    def record(parts: dict[str, Any]) -> Any:
        if parts["type"] not in vocabulary.records:
            raise ValueError(f"a record must be one of {sorted(vocabulary.records)}, got {parts['type']!r:.80}")
        return vocabulary.records[parts["type"]](**parts["attributes"])

    def space(parts: dict[str, Any]) -> gym.Space:
        kinds = {kind.__name__: kind for kind in _SPACES}
        if parts["type"] not in kinds:
            raise ValueError(f"a space must be one of {sorted(kinds)}, got {parts['type']!r:.80}")
        arguments = parts["arguments"]
        if parts["type"] == "Box" and not isinstance(arguments["low"], np.ndarray):  # a number would fill any shape
            raise ValueError(f"low of a Box must be an array, got {arguments['low']!r:.80}")
        if "dtype" in arguments:
            arguments["dtype"] = _dtype(arguments["dtype"])
        if isinstance(arguments.get("spaces"), dict):
            arguments["spaces"] = OrderedDict(arguments["spaces"])  # Gymnasium sorts any other dict
        made = kinds[parts["type"]](**arguments)
        made._np_random = parts["generator"]
        return made

    decoders: dict[str, Callable[[dict[str, Any]], Any]] = {
        "dict": lambda parts: dict(parts["items"]),
        "tuple": lambda parts: tuple(parts["items"]),
        "deque": lambda parts: deque(parts["items"], parts["maxlen"]),
        "array": lambda parts: np.array(tensors.pop(parts["name"]).numpy()),
        "tensor": lambda parts: tensors[parts["name"]],
        "number": lambda parts: _dtype(parts["dtype"]).type(parts["value"]),
        "class": lambda parts: vocabulary.class_named(parts["name"]),
        "generator": lambda parts: generator_at(parts["state"]),
        "space": space,
        "record": record,
    }
    return back(value)


def path_of(kind: type) -> str:
    """The import path of a class, for people to read."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _dtype(name: str) -> np.dtype:
    if name not in _DTYPES:
        raise ValueError(f"dtype must be one of {_DTYPES}, got {name!r:.80}")
    return np.dtype(name)


# --- templates ------------------------------------------------------------------------------------------------------

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
        value: plain values, arrays and tensors, as `decode` returns them; records are dicts.
        like: the template: tensors and arrays, whose numbers do not count, `Leaf`, `Maybe`, `Each`, `None`, a list or
            deque of one template for all items, a dict or named tuple of templates, a function that returns
            the value, a type, or a union of types. An `int` is not negative, a `float` finite.
        sizes: sizes by name that are known already.

    Raises:
        DamagedFileError: it does not fit; the message names the part, what it must be and what it is.
    """
    sizes = {} if sizes is None else sizes
    if isinstance(like, Maybe):
        return None if value is None else fitted(name, value, like.like, sizes)
    if like is None:
        _require(value is None, name, "None for this model", value)
        return None
    if isinstance(like, Leaf):
        return _leaf(name, value, like, sizes)
    if isinstance(like, Tensor | np.ndarray):
        return _leaf(name, value, Leaf(tuple(like.shape), like.dtype), sizes)
    if isinstance(like, list | deque):
        _require(type(value) is type(like), name, f"a {type(like).__name__}", value)
        items = [fitted(f"{name}.{i}", item, like[0], sizes) for i, item in enumerate(value)]
        return deque(items, value.maxlen) if isinstance(value, deque) else items
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
