"""`torch.compile` for CUDA devices: compiles at the first call, in this process.

Its C++ wrapper needs the CUDA headers, which PyTorch does not ship, and saves nothing, since the CPU runs ahead of the
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, final

import torch

from dgvf_agents.execution.compile_jobs import NoCompilerError, lacks_compiler

Result = TypeVar("Result")


@final
class JustInTime(Generic[Result]):
    """`torch.compile(function, fullgraph=True)`."""

    def __init__(self, function: Callable[..., Result]) -> None:
        """
        Args:
            function: a pure function of tensors. Variables that it closes over must not change.
        """
        options: dict[str, Any] = {"guard_filter_fn": _guards_to_check}  # a new dict: PyTorch pops the entry
        self._call = torch.compile(_with_new_code(function), fullgraph=True, options=options)

    def __call__(self, *arguments: Any) -> Result:
        """The function's result.

        Raises:
            NoCompilerError: no compiler for the device was found, which shows at the first call.
        """
        try:
            return self._call(*arguments)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"  # PyTorch wraps it; the original class name stays
            if lacks_compiler(message):
                raise NoCompilerError(message) from error
            raise


def _guards_to_check(guards: Sequence[Any]) -> list[bool]:
    """Guard filter of `torch.compile`: keep the guards on arguments and global modes.

    The other guards, hundreds of them, are on variables that the function closes over. These never change, and
    checking them at every call takes longer than a small network's arithmetic.
    """
    return [guard.name == "" or guard.name.startswith("arguments") for guard in guards]


def _with_new_code(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function wrapped in a new code object.

    `torch.compile` caches by code object, and limits the number of cache entries. Two models in one process would
    otherwise share a cache and evict each other's entries.
    """

    def call(*arguments: Any) -> Result:
        return function(*arguments)

    call.__code__ = call.__code__.replace()
    return call
