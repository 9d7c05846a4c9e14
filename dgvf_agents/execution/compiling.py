"""Compiled functions, and when a model uses them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor

from dgvf_agents.core.flat import flatten
from dgvf_agents.core.vjp import PullBack, vjp
from dgvf_agents.execution.cache import CacheError
from dgvf_agents.execution.devices import CPU
from dgvf_agents.execution.jobs import CompilationError, Job, NoCompilerError, failure, job
from dgvf_agents.execution.memory import graph_bytes
from dgvf_agents.execution.task import Task
from dgvf_agents.execution.trace import Passes
from dgvf_agents.options import Mode

Result = TypeVar("Result")

_type = attrgetter("dtype")


FIRST_COMPILED_UPDATE = 1_000
"""With `"auto"`, earlier updates run eagerly, while other processes compile. A fixed number, so that equal seeds give
equal results whether or not the compiled functions are in the cache."""

LONG_ENOUGH = 4_000
"""With `"auto"`, nothing is compiled in a call of `learn` that ends before this update: it would not pay."""


@final
class Compilation:
    """Which of a model's updates run compiled."""

    _warned = False

    def __init__(self, mode: Mode = True, device: torch.device = CPU) -> None:
        """
        Args:
            mode: see `Mode`. PyTorch's environment variable `TORCH_COMPILE_DISABLE=1` has priority.
            device: device of all tensors.
        """
        self.device = device
        self.tell: Callable[[str], None] = lambda message: None
        """Called with messages to the user."""
        self._told: set[str] = set()
        self.mode: Mode = mode if os.environ.get("TORCH_COMPILE_DISABLE", "0") != "1" else False
        self.last_update = 0
        """The number of updates when the current call of `learn` ends."""

    @property
    def planned(self) -> bool:
        """Whether functions are compiled, now or later."""
        return self.mode is True or (self.mode == "auto" and self.last_update >= LONG_ENOUGH)

    def active_at(self, update: int) -> bool:
        """Whether an update runs compiled, and the rollout before it.

        Args:
            update: number of updates before it.
        """
        return self.mode is True or (self.planned and update >= FIRST_COMPILED_UPDATE)

    def tell_once(self, message: str) -> None:
        """Tell the user, unless this was told before."""
        if message not in self._told:
            self._told.add(message)
            self.tell(message)

    def give_up(self, error: Exception) -> None:
        """Continue eagerly, and warn once per process."""
        self.mode = False
        if not Compilation._warned:
            Compilation._warned = True
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            what = "no compiler found" if isinstance(error, NoCompilerError) else "updates cannot be compiled"
            warnings.warn(f"{what}, so updates run slower: {first}", stacklevel=2)


def _layout(leaves: list[Tensor], gradients: bool) -> tuple[Any, ...]:
    """Key of a compilation: whether there is a pull-back, and sizes, strides and types of the arguments."""
    sizes, strides = tuple(map(Tensor.size, leaves)), tuple(map(Tensor.stride, leaves))
    return gradients, sizes, strides, tuple(map(_type, leaves))


@final
class Compiled(Generic[Result]):
    """A function, compiled or eager."""

    def __init__(
        self,
        function: Callable[..., Result],
        compilation: Compilation | None = None,
        differentiable: int = 0,
        last: tuple[Any, ...] = (),
    ) -> None:
        """
        Args:
            function: a pure function of tensors in nested tuples, lists and dicts. Variables that it closes over must
                not change.
            compilation: of the model that it belongs to.
            differentiable: number of leading arguments that `vjp` differentiates in.
            last: arguments appended to every call's. Functions that differ only in them share a compilation.
        """
        self._function, self._differentiable, self._last = function, differentiable, last
        self._compilation = compilation or Compilation()
        self._jobs: dict[Any, Job] = {}
        self._compiled: dict[Any, Passes] = {}

    def eager(self, *arguments: Any) -> Result:
        """The function's result. If it is to run compiled later, its compilation starts in the background."""
        self.prepare(*arguments, gradients=torch.is_grad_enabled())
        return self._function(*arguments, *self._last)

    def prepare(self, *arguments: Any, gradients: bool = False) -> None:
        """Start the compilation for arguments like these in the background, if the function is to run compiled.

        Args:
            arguments: of the function.
            gradients: whether `vjp` will be called.
        """
        if self._compilation.planned and self._compilation.device.type == "cpu":
            arguments = (*arguments, *self._last)
            self._job(_layout(flatten(arguments), gradients and self._differentiable > 0), arguments)

    def graph_bytes(self, *arguments: Any) -> int:
        """Bytes that the graph of a call keeps; see `dgvf_agents.execution.memory.graph_bytes`."""
        return graph_bytes(self._function, (*arguments, *self._last), self._differentiable)

    def __call__(self, *arguments: Any) -> Result:
        """The compiled function's result; waits for its compilation. Eager if it cannot be compiled."""
        arguments = (*arguments, *self._last)
        leaves = flatten(arguments)
        passes = self._passes(arguments, leaves, False)
        return self._function(*arguments) if passes is None else passes(leaves)

    def vjp(self, *arguments: Any) -> tuple[Result, PullBack]:
        """The compiled function's result, a tuple, and its pull-back. Waits, or is eager, as calls are."""
        arguments = (*arguments, *self._last)
        leaves = flatten(arguments)
        passes = self._passes(arguments, leaves, True)
        return vjp(self._function, arguments, self._differentiable) if passes is None else passes.vjp(leaves)

    def _passes(self, arguments: tuple[Any, ...], leaves: list[Tensor], gradients: bool) -> Passes | None:
        """The compiled function for arguments like these; `None` if it is to run eagerly."""
        if self._compilation.mode is False:
            return None
        layout = _layout(leaves, gradients)
        found = self._compiled.get(layout)
        if found is not None:
            return found
        try:
            self._compiled[layout] = self._compile(layout, arguments)
        except (NoCompilerError, CacheError, CompilationError) as error:
            if isinstance(error, CompilationError) and self._compilation.mode is True:
                raise
            self._compilation.give_up(error)
            return None
        return self._compiled[layout]

    def _compile(self, layout: Any, arguments: tuple[Any, ...]) -> Passes:
        if self._compilation.device.type != "cpu":
            return self._compiled_here(layout, arguments)
        running = self._job(layout, arguments)
        if not running.finished:
            self._compilation.tell_once("waiting for the compiler")
        return running.passes()

    def _job(self, layout: Any, arguments: tuple[Any, ...]) -> Job:
        if layout not in self._jobs:
            self._jobs[layout] = job(self._task(layout, arguments))
            if not self._jobs[layout].finished:
                self._compilation.tell_once("compiling in the background (a minute or two the first time)")
        return self._jobs[layout]

    def _compiled_here(self, layout: Any, arguments: tuple[Any, ...]) -> Passes:
        from dgvf_agents.execution.cuda import compiled_here

        self._compilation.tell_once("compiling (a minute or two the first time)")
        try:
            return compiled_here(self._task(layout, arguments))
        except Exception as error:
            raise failure(error) from error

    def _task(self, layout: Any, arguments: tuple[Any, ...]) -> Task:
        return Task.of(self._function, arguments, self._differentiable if layout[0] else 0)
