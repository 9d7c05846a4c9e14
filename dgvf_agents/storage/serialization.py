"""Python values as JSON and named tensors, and back: a closed list of kinds, so that reading can run no code.

Numbers, strings, lists and dicts stand for themselves; everything else is a JSON object whose `"kind"` says what it is.
Arrays and tensors go into a table of tensors by their place in the value. Types go by the names of `type_names`: no
other type is imported, looked up or called.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.storage.type_names import name_of, type_named
from dgvf_envs.functional.random_streams import generator_at

_RECORDS = (
    "ActorSettings",
    "FloatSchedule",
    "ConstantSchedule",
    "LinearSchedule",
    "GeometricSchedule",
    "SGD",
    "RMSProp",
    "Adam",
    "InnerMetrics",
    "InnerState",
    "LearnerState",
    "Rollout",
    "UnrollState",
)
"""Names of the types whose objects are no more than their attributes."""

MAX_REFERENCES = 2
"""How often a file may refer to one tensor: the last rollout is also the last batch of the unroll."""

_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS = (*_DTYPES, "bool")

Tensors = dict[str, Tensor]


class CannotEncodeError(TypeError):
    """A value of a kind that is not on the list."""


@final
class Encoder:
    """Turns values into JSON and collects their tensors."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        """By their place in the value; those that share their memory go by the place of the first."""
        self._seen: dict[Any, tuple[str, Tensor, int]] = {}  # with the tensor, whose address stays its own thereby

    def encode(self, value: Any, place: str) -> Any:
        """What `json.dumps` takes.

        Args:
            value: what to encode.
            place: a name for it, which the names of its tensors begin with.

        Raises:
            CannotEncodeError: the value, or something in it, is of a kind that is not on the list.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return self._items(value, place)
        if type(value) in (dict, OrderedDict):
            return self._dict(value, place)
        name = name_of(type(value))
        if name in _RECORDS:
            return {"kind": "record", "type": name, "attributes": self._dict(_attributes(value), place)}
        for kind, encode in _ENCODERS.items():
            if isinstance(value, kind):
                return encode(self, value, place)
        path = path_of(type(value))
        raise CannotEncodeError(f"{place} is a {path}, which is not a kind of value that can be written without pickle")

    def _items(self, values: Any, place: str) -> list[Any]:
        return [self.encode(value, f"{place}.{i}") for i, value in enumerate(values)]

    def _dict(self, values: dict, place: str) -> dict[str, Any]:
        if all(type(key) is str for key in values) and "kind" not in values:
            return {key: self.encode(value, f"{place}.{key}") for key, value in values.items()}
        pairs = [[self.encode(k, place), self.encode(v, f"{place}.{k}")] for k, v in values.items()]
        return {"kind": "dict", "items": pairs}

    def _tuple(self, value: tuple, place: str) -> Any:
        if type(value) is not tuple:
            raise CannotEncodeError(f"{place} is a {path_of(type(value))}, which is not a kind of value on the list")
        return {"kind": "tuple", "items": self._items(value, place)}

    def _array(self, value: np.ndarray, place: str) -> Any:
        if value.dtype.name not in _NUMBERS:
            raise CannotEncodeError(f"{place} is an array of {value.dtype}, which is not a type of numbers")
        tensor = torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C"))
        return {"kind": "array", "name": self._keep(tensor, place)}

    def _tensor(self, value: Tensor, place: str) -> Any:
        if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
            raise CannotEncodeError(f"{place} is a tensor of {value.dtype}, {value.layout}")
        key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.device)
        name, _, references = self._seen.get(key, ("", None, MAX_REFERENCES))
        if value.numel() == 0 or references >= MAX_REFERENCES:
            copy = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            name, references = self._keep(copy, place), 0
        self._seen[key] = name, value, references + 1
        return {"kind": "tensor", "name": name}

    def _keep(self, tensor: Tensor, place: str) -> str:
        name = place
        while name in self.tensors:
            name += "'"
        self.tensors[name] = tensor
        return name

    def _number(self, value: np.generic, place: str) -> Any:
        if value.dtype.name not in _NUMBERS:
            raise CannotEncodeError(f"{place} is a {value.dtype}, which is not a type of numbers")
        return {"kind": "number", "dtype": value.dtype.name, "value": value.item()}

    def _deque(self, value: deque, place: str) -> Any:
        return {"kind": "deque", "items": self._items(value, place), "maxlen": value.maxlen}

    def _type(self, value: type, place: str) -> Any:
        name = name_of(value)
        if name is None:
            raise CannotEncodeError(f"{place} is {path_of(value)}, which is not a type that files have a name for")
        return {"kind": "type", "name": name}

    def _space(self, value: gym.Space, place: str) -> Any:
        arguments = _SPACES.get(type(value))
        if arguments is None:
            raise CannotEncodeError(f"{place} is a {path_of(type(value))}, which is not one of Gymnasium's own spaces")
        own = {name: self.encode(part, f"{place}.{name}") for name, part in arguments(value).items()}
        generator = None if value._np_random is None else self._generator(value._np_random, place)
        return {"kind": "space", "type": type(value).__name__, "arguments": own, "generator": generator}

    def _generator(self, value: np.random.Generator, place: str) -> Any:
        if not isinstance(value.bit_generator, np.random.PCG64):
            raise CannotEncodeError(f"{place} is a generator other than PCG64, NumPy's default")
        return {"kind": "generator", "state": value.bit_generator.state}

    def _dtype(self, value: torch.dtype, place: str) -> Any:
        return {"kind": "torch.dtype", "name": str(value).removeprefix("torch.")}


_ENCODERS: dict[type, Callable[[Encoder, Any, str], Any]] = {
    tuple: Encoder._tuple,
    np.ndarray: Encoder._array,
    Tensor: Encoder._tensor,
    np.generic: Encoder._number,
    deque: Encoder._deque,
    type: Encoder._type,
    gym.Space: Encoder._space,
    np.random.Generator: Encoder._generator,
    torch.dtype: Encoder._dtype,
    Path: lambda encoder, value, place: {"kind": "path", "value": str(value)},
}

_SPACES: dict[type, Callable[[Any], dict[str, Any]]] = {
    gym.spaces.Box: lambda s: {"low": s.low, "high": s.high, "shape": s.shape, "dtype": s.dtype.name},
    gym.spaces.Discrete: lambda s: {"n": int(s.n), "start": int(s.start), "dtype": s.dtype.name},
    gym.spaces.MultiDiscrete: lambda s: {"nvec": s.nvec, "start": s.start, "dtype": s.dtype.name},
    gym.spaces.MultiBinary: lambda s: {"n": s.n},
    gym.spaces.Dict: lambda s: {"spaces": dict(s.spaces)},
    gym.spaces.Tuple: lambda s: {"spaces": tuple(s.spaces)},
}


def decode(value: Any, tensors: Tensors) -> Any:
    """What `Encoder.encode` was given.

    `check_references` first: decoding copies arrays.

    Args:
        value: what it returned, through JSON or not.
        tensors: `Encoder.tensors`; arrays are made from copies of them, tensors are handed out as they are.

    Raises:
        ValueError: it is none of the kinds.
    """
    if isinstance(value, list):
        return [decode(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        return {key: decode(part, tensors) for key, part in value.items()}
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise ValueError(f"kind must be one of {sorted(_DECODERS)}, got {kind!r}")
    return _DECODERS[kind](value, tensors)


def check_references(document: Any) -> None:
    """Count references to tensors before anything is allocated.

    Raises:
        ValueError: one is referred to more than `MAX_REFERENCES` times.
    """
    counts: Counter[str] = Counter()
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get("kind") in ("tensor", "array"):
                counts[str(value.get("name"))] += 1
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    for name, count in counts.items():
        if count > MAX_REFERENCES:
            raise ValueError(f"tensor {name!r} must be referred to at most {MAX_REFERENCES} times, got {count}")


def _decode_space(value: dict[str, Any], tensors: Tensors) -> gym.Space:
    kinds = {kind.__name__: kind for kind in _SPACES}
    if value["type"] not in kinds:
        raise ValueError(f"type of a space must be one of {sorted(kinds)}, got {value['type']!r}")
    arguments = {name: decode(part, tensors) for name, part in value["arguments"].items()}
    if "dtype" in arguments:
        arguments["dtype"] = _dtype(arguments["dtype"])
    if isinstance(arguments.get("spaces"), dict):
        arguments["spaces"] = OrderedDict(arguments["spaces"])  # Gymnasium sorts any other dict, layers keep the order
    space = kinds[value["type"]](**arguments)
    if value["generator"] is not None:
        space._np_random = decode(value["generator"], tensors)
    return space


def _decode_record(value: dict[str, Any], tensors: Tensors) -> Any:
    if value["type"] not in _RECORDS:
        raise ValueError(f"type of a record must be one of {_RECORDS}, got {value['type']!r}")
    kind: Any = type_named(value["type"])
    attributes = {name: decode(part, tensors) for name, part in value["attributes"].items()}
    if is_dataclass(kind) or issubclass(kind, tuple):
        return kind(**attributes)
    record = kind.__new__(kind)
    record.__dict__.update(attributes)
    return record


def _dtype(name: str) -> np.dtype:
    if name not in _NUMBERS:
        raise ValueError(f"dtype must be one of {_NUMBERS}, got {name!r}")
    return np.dtype(name)


def _torch_dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"name of a torch.dtype must be that of one, got {name!r}")
    return found


_DECODERS: dict[str, Callable[[dict[str, Any], Tensors], Any]] = {
    "dict": lambda v, t: {decode(key, t): decode(part, t) for key, part in v["items"]},
    "tuple": lambda v, t: tuple(decode(v["items"], t)),
    "deque": lambda v, t: deque(decode(v["items"], t), v["maxlen"]),
    "array": lambda v, t: np.array(t[v["name"]].numpy()),
    "tensor": lambda v, t: t[v["name"]],
    "number": lambda v, t: _dtype(v["dtype"]).type(v["value"]),
    "type": lambda v, t: type_named(v["name"]),
    "generator": lambda v, t: generator_at(v["state"]),
    "torch.dtype": lambda v, t: _torch_dtype(v["name"]),
    "path": lambda v, t: Path(v["value"]),
    "space": _decode_space,
    "record": _decode_record,
}


def path_of(kind: type) -> str:
    """The import path of a type, for people to read."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _attributes(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value._asdict() if hasattr(value, "_asdict") else dict(vars(value))
