"""Checks the shapes in the annotations of `dgvf_agents.core` while tests run. Users pay nothing for them.

Functions with a shape in their signature are wrapped when their module is imported. jaxtyping's own import hook does
the same, but `torch.compile` cannot trace its wrapper; this one calls the function itself while it is compiled.

Records, such as `Rollout`, are checked where a wrapped function takes or returns them, not where they are made:
PyTorch's trees put other things than tensors into named tuples.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

import torch
from beartype import BeartypeConf, beartype
from jaxtyping import jaxtyped

PACKAGE = "dgvf_agents.core"

_TYPECHECKER = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float

_RECORD_CHECKS: dict[type, Callable[..., None]] = {}
"""For every named tuple with shapes, a function with its fields as arguments."""


def install() -> None:
    """Check the package's modules, which must not have been imported.

    Raises:
        RuntimeError: some have been imported.
    """
    imported = [name for name in sys.modules if name.startswith(PACKAGE)]
    if imported:
        raise RuntimeError(f"shape checks must be installed before {imported} are imported")
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the package's modules as usual, and wraps their functions after they have run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.startswith(f"{PACKAGE}.") else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _wrap_functions(module)

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap_functions(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            setattr(module, name, checked(value))
        elif isinstance(value, type):
            _wrap_methods(value)
            if issubclass(value, tuple) and _has_shapes(value):
                _RECORD_CHECKS[value] = _record_check(value)


def _wrap_methods(cls: type) -> None:
    for name, value in list(vars(cls).items()):
        if isinstance(value, FunctionType):
            setattr(cls, name, checked(value))
        elif isinstance(value, property) and value.fget is not None:
            setattr(cls, name, property(checked(value.fget), value.fset, value.fdel, value.__doc__))


def _has_shapes(annotated: Any) -> bool:
    return any("[Tensor, " in str(annotation) for annotation in annotated.__annotations__.values())


def _record_check(record: type) -> Callable[..., None]:
    hints = get_type_hints(record)
    names = ", ".join(hints)
    namespace: dict[str, Any] = {}
    exec(f"def check({names}): pass", namespace)  # jaxtyping names the arguments in its errors
    check = namespace["check"]
    check.__name__ = check.__qualname__ = record.__name__
    check.__annotations__ = {**hints, "return": None}
    return jaxtyped(typechecker=_TYPECHECKER)(check)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the shapes in its signature checked in every call; itself if there are none."""
    if not _has_shapes(function):
        return function
    strict = jaxtyped(typechecker=_TYPECHECKER)(function)
    seen: set[Any] = set()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        signature = (_signature(args), _signature(kwargs))
        if signature in seen:
            return function(*args, **kwargs)
        state = random.getstate()  # beartype checks a random item of a sequence
        _check_records((*args, *kwargs.values()))
        result = strict(*args, **kwargs)
        _check_records(result if type(result) is tuple else (result,))
        random.setstate(state)
        seen.add(signature)
        return result

    return call


def _signature(value: Any) -> Any:
    """Equal for arguments of equal shapes. One call of them is checked: a check takes longer than most functions."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, dict):
        return tuple((key, _signature(part)) for key, part in value.items())
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_signature, value))
    return value if isinstance(value, str | int | bool | None) else type(value)


def _check_records(values: Sequence[Any]) -> None:
    for value in values:
        if type(value) in _RECORD_CHECKS:
            _RECORD_CHECKS[type(value)](*value)
