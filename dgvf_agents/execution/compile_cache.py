"""Compiled functions on disk, by what they depend on, so that one compilation serves all models of an architecture."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn

from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.execution.library import INTERFACE

FOLDER = "DGVF_COMPILE_CACHE"
"""Environment variable for the folder of compiled functions."""
UNUSED_DAYS = 30
"""Compiled functions that no process has asked for in so many days are deleted."""
_OURS = re.compile(r"[0-9a-f]{32}|\.building-\w+|\.[0-9a-f]{32}\.lock")
"""Names in the folder, which may hold other files."""


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


def cache_folder() -> Path:
    """The folder of compiled functions: `$DGVF_COMPILE_CACHE`, or `dgvf` in the user's cache folder."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dgvf" / "compiled"


def pickled(task: Task) -> bytes:
    """The task for another process, without the values of parameters.

    Functions take parameters as arguments. One that reads the value of a parameter of its own all the same fails to be
    traced there, since the parameter has no value, and is compiled in the process that has it.

    Raises:
        Exception: something that the function closes over cannot be pickled.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(task)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Leaves out what compiled functions do not depend on, so that equal architectures give equal bytes."""

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
        return super().reducer_override(obj)


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


def key_of(payload: bytes) -> str:
    """The name of a pickled task's compiled function, which depends on this machine and these versions too."""
    return hashlib.sha256(payload + surroundings()).hexdigest()[:32]


@cache
def surroundings() -> bytes:
    """A digest of source code, versions and processor, as they were when this process first asked."""
    digest = hashlib.sha256(f"{torch.__version__} {platform.python_version()} {_processor()}".encode())
    root = Path(__file__).parents[2]
    for package in ("dgvf_agents", "dgvf_envs"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


def _processor() -> str:
    """What compiled code depends on of the processor; folders of compiled functions may be on a network."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {flags}"


def find(key: str) -> Path | None:
    """The folder of a compiled function; `None` if there is none."""
    folder = cache_folder() / key
    if not (folder / INTERFACE).exists():
        return None
    with suppress(OSError):  # a folder that others may only read
        os.utime(folder)
    return folder


def store(key: str, build: Callable[[Path], None]) -> Path:
    """Let a function fill the folder of a compiled function, which appears whole or not at all."""
    final = cache_folder() / key
    final.parent.mkdir(parents=True, exist_ok=True)
    _delete_unused(final.parent)
    temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=".building-"))
    try:
        build(temporary)
        try:
            temporary.rename(final)
        except OSError:  # another process was faster
            if find(key) is None:
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _delete_unused(folder: Path) -> None:
    """Functions of earlier versions are never found again, and killed processes leave half-built ones."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for path in folder.iterdir():
        with suppress(OSError):  # another process was faster
            if _OURS.fullmatch(path.name) and path.stat().st_mtime < oldest:
                path.unlink() if path.suffix == ".lock" else shutil.rmtree(path, ignore_errors=True)
