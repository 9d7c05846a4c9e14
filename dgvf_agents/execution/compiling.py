"""`torch.compile` with a fallback to eager execution if no compiler is found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, final

import torch
import torch._dynamo.config
import torch._functorch.config
from torch import Tensor

from dgvf_agents.execution.devices import CPU

Result = TypeVar("Result")


def _guards_to_check(guards: Sequence[Any]) -> list[bool]:
    """Guard filter of `torch.compile`: keep the guards on arguments and global modes.

    The other guards, hundreds of them, are on variables that the function closes over. These never change, and
    checking them at every call takes longer than a small network's arithmetic.
    """
    return [guard.name == "" or guard.name.startswith("arguments") for guard in guards]


_RECOMPUTE = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
}
"""Allow more operations to be recomputed in the backward pass instead of stored by the forward pass. On the CPU,
storing the mask of a ReLU takes longer than a matrix product."""


def _on_cpu(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
    """Inductor with a C++ wrapper: kernels are called from C++ instead of Python."""
    from torch._inductor.compile_fx import compile_fx  # imported late: takes a second

    with torch._functorch.config.patch(_RECOMPUTE):
        return compile_fx(graph, inputs, config_patches={"cpp_wrapper": True})


def _compiler(device: torch.device) -> str | Callable[..., Any]:
    """The backend of `torch.compile`.

    CUDA devices use Inductor with its defaults: the C++ wrapper needs the CUDA headers, which PyTorch does not ship,
    and saves nothing, since the CPU runs ahead of the device.
    """
    return _on_cpu if device.type == "cpu" else "inductor"


_NO_COMPILER = ("InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton", "Failed to find C compiler")
"""Errors raised if no compiler is found, for the CPU or for a CUDA device."""


@final
class Compiled(Generic[Result]):
    """`torch.compile(function, fullgraph=True)`, or `function` itself if no compiler is found.

    A missing compiler shows at the first call. The warning is issued once per process.
    """

    _warned = False

    def __init__(self, function: Callable[..., Result], enabled: bool = True, device: torch.device = CPU) -> None:
        """
        Args:
            function: a pure function of tensors. Variables it closes over must not change.
            enabled: whether to compile. PyTorch's environment variable `TORCH_COMPILE_DISABLE=1` disables it too.
            device: device of the tensors.
        """
        self._eager = function
        self._call: Callable[..., Result] = function
        if enabled and not torch._dynamo.config.disable:
            options: dict[str, Any] = {"guard_filter_fn": _guards_to_check}  # a new dict: PyTorch pops the entry
            backend = _compiler(device)
            self._call = torch.compile(_with_new_code(function), fullgraph=True, backend=backend, options=options)

    def __call__(self, *arguments: Any) -> Result:
        try:
            return self._call(*arguments)
        except Exception as error:
            if self._call is self._eager or not _no_compiler(error):
                raise
            self._call = self._eager
            if not Compiled._warned:
                Compiled._warned = True
                warnings.warn(f"no compiler found, so updates run slower: {_first_line(error)}", stacklevel=2)
            return self._eager(*arguments)


def _with_new_code(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function wrapped in a new code object.

    `torch.compile` caches by code object, and limits the number of cache entries. Two models in one process would
    otherwise share a cache and evict each other's entries.
    """

    def call(*arguments: Any) -> Result:
        return function(*arguments)

    call.__code__ = call.__code__.replace()
    return call


def _no_compiler(error: BaseException) -> bool:
    """Whether no compiler was found. PyTorch wraps the error; the original class name stays in the message."""
    message = f"{type(error).__name__}: {error}"
    return any(name in message for name in _NO_COMPILER)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
