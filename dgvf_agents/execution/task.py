"""A function to compile, as it is sent to another process.

Only the code that takes part is told apart by whose it is: this package's and a few libraries', whose sources and
versions are known, and all other, which may have changed since any file of compiled functions was written.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn

from dgvf_agents.core.flat import builder, flatten, template

LIBRARIES = ("torch", "numpy", "gymnasium", "stable_baselines3", "cloudpickle")
"""Packages whose version stands for their code."""
PACKAGES = ("dgvf_agents", "dgvf_envs")
"""Packages whose sources are read."""
UNTRACED = ("atlas", "bench", "cli", "experiments", "train")
"""Folders of `dgvf_agents` whose code takes no part in compiled functions."""


class Example(NamedTuple):
    """An argument's layout."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def tensor(self) -> Tensor:
        """Zeros."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device).zero_()


class Task(NamedTuple):
    """A function to compile."""

    function: Callable[..., Any]
    template: Any
    """Of the arguments; see `flat.template`."""
    examples: list[Example]
    """Of the arguments' tensors."""
    differentiable: int
    """Number of leading arguments that gradients are taken in."""
    threads: int
    """Number of threads that the compiled function uses."""
    dtype: torch.dtype
    """Default type of floating-point tensors."""

    @classmethod
    def of(cls, function: Callable[..., Any], arguments: tuple[Any, ...], differentiable: int) -> Task:
        """The task for arguments like these."""
        examples = [Example(tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device) for leaf in flatten(arguments)]
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        return cls(function, template(arguments), examples, differentiable, threads, dtype)

    def arguments(self) -> tuple[Any, ...]:
        """Arguments for tracing."""
        return builder(self.template)([example.tensor() for example in self.examples])

    def result(self) -> Any:
        """Template of the results, from an eager call."""
        with torch.no_grad():
            return template(self.function(*self.arguments()))


class Parcel(NamedTuple):
    """A task for another process."""

    payload: bytes
    """The pickled task."""
    versioned: bool
    """Whether only code takes part that `surroundings` knows: the task then says what is compiled."""

    @property
    def key(self) -> str:
        """Names the task, which depends on this machine and these versions too."""
        return hashlib.sha256(self.payload + surroundings()).hexdigest()[:32]


def pickled(task: Task) -> Parcel:
    """The task for another process, without the values of parameters.

    Functions take parameters as arguments. One that reads the value of a parameter of its own all the same fails to be
    traced there, since the parameter has no value, and is compiled in the process that has it.

    What the user's own modules define is pickled by value, with the globals that it reads, as it is in this process: a
    module may be edited, and its globals assigned, after it was imported.

    Raises:
        Exception: something that the function closes over cannot be pickled.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(task)
    return Parcel(buffer.getvalue(), pickler.versioned)


@cache
def origin(module: str) -> Literal["versioned", "installed", "own"]:
    """Whose code a module has.

    Returns:
        `"versioned"`: code that `surroundings` knows; `"installed"`: another installed package, or code of ours that
        takes no part in compiled functions; `"own"`: the user's.
    """
    package, _, rest = module.partition(".")
    if package in PACKAGES:
        return "installed" if rest.partition(".")[0] in UNTRACED else "versioned"
    if package in sys.builtin_module_names:
        return "versioned"
    found = sys.modules.get(package)
    path = Path(getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ())), "."))
    folders = sysconfig.get_paths()
    if any(path.is_relative_to(folders[name]) for name in ("purelib", "platlib")) or "site-packages" in path.parts:
        return "versioned" if package in LIBRARIES else "installed"
    if package in LIBRARIES:  # a checkout, whose version says little
        return "installed"
    return "versioned" if any(path.is_relative_to(folders[name]) for name in ("stdlib", "platstdlib")) else "own"


class _Pickler(cloudpickle.Pickler):
    """Leaves out what compiled functions do not depend on, so that equal architectures give equal bytes."""

    versioned = True

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, nn.Parameter):
            return _valueless, (tuple(obj.shape), obj.dtype)
        if isinstance(obj, Tensor):
            return _tensor, (obj.detach().cpu().contiguous().numpy(),)
        if isinstance(obj, np.random.Generator):
            return type(None), ()
        if isinstance(obj, nn.Module) and type(obj).__reduce_ex__ is object.__reduce_ex__:
            state = {name: _Set(value) if type(value) is set else value for name, value in vars(obj).items()}
            return _module, (type(obj), state)
        name = _module_of(obj)
        if name is None:
            return super().reducer_override(obj)
        whose = origin(name)
        self.versioned &= whose == "versioned"
        if whose != "own":
            _check_unchanged(obj)
            return super().reducer_override(obj)
        if isinstance(obj, ModuleType):
            state = {key: value for key, value in vars(obj).items() if key not in _OF_IMPORTS}
            return ModuleType, (name,), state, None, None, _fill
        with _by_value(name):
            return super().reducer_override(obj)


_OF_IMPORTS = ("__builtins__", "__loader__", "__spec__", "__cached__")


def _module_of(obj: Any) -> str | None:
    """The name of the module that defines a class or function, or of a module; `None` for anything else."""
    if isinstance(obj, ModuleType):
        return obj.__name__
    if isinstance(obj, FunctionType):
        return obj.__globals__.get("__name__", obj.__module__)
    return obj.__module__ if isinstance(obj, type | BuiltinFunctionType) else None


def _check_unchanged(obj: Any) -> None:
    """Check that the user's code has not replaced a method of a class that another process imports as it is.

    Raises:
        pickle.PicklingError: it has.
    """
    for cls in getattr(obj, "__mro__", ()):
        for name, value in vars(cls).items():
            module = value.__module__ if isinstance(value, FunctionType) else None
            if module in sys.modules and origin(module) == "own" and origin(cls.__module__) != "own":
                raise pickle.PicklingError(f"{cls.__qualname__}.{name} is from another module, {module}")


@contextmanager
def _by_value(module: str) -> Iterator[None]:
    """Let cloudpickle pickle what a module defines by value."""
    if module not in sys.modules or module in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(sys.modules[module])
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[module])


def _fill(module: ModuleType, state: dict[str, Any]) -> None:
    vars(module).update(state)


class _Set:
    """A set of strings, whose order differs from process to process."""

    def __init__(self, values: set[str]) -> None:
        self._values = sorted(values)

    def __reduce__(self) -> Any:
        return set, (self._values,)


def _module(cls: type[nn.Module], state: dict[str, Any]) -> nn.Module:
    module = cls.__new__(cls)
    module.__dict__.update(state)
    return module


def _valueless(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)


@cache
def surroundings() -> bytes:
    """A digest of source code, versions and processor, as they were when this process first asked."""
    versions = " ".join(version(name) for name in LIBRARIES)
    digest = hashlib.sha256(f"{versions} {machine()}".encode())
    root = Path(__file__).parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if path.relative_to(root / package).parts[0] not in UNTRACED:
                digest.update(path.read_bytes())
    return digest.digest()


def machine() -> str:
    """What compiled code depends on besides its graph: versions of PyTorch and Python, and the processor."""
    return f"{torch.__version__} {platform.python_version()} {_processor()}"


def _processor() -> str:
    """What compiled code depends on of the processor; folders of compiled functions may be on a network."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {flags}"
