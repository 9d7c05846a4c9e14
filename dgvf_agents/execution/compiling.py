"""Compiled functions that fall back to eager ones where nothing can be compiled."""

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


def _changing(guards: Sequence[Any]) -> list[bool]:
    """Which of the conditions that compiled code rests on are checked at every call: those on arguments and modes.

    The others are on what the function closes over, hundreds of them, and that does not change: checking them takes
    longer than a small network's arithmetic.
    """
    return [guard.name == "" or guard.name.startswith("arguments") for guard in guards]


_CHEAP_AGAIN = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
}
"""What the way back may compute once more rather than be handed. On the CPU, to write the mask of a rectifier down
takes longer than a product of matrices."""


def _on_cpu(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
    """PyTorch's own compiler. Kernels are called from C++ rather than Python."""
    from torch._inductor.compile_fx import compile_fx  # a second that only those pay who compile

    with torch._functorch.config.patch(_CHEAP_AGAIN):
        return compile_fx(graph, inputs, config_patches={"cpp_wrapper": True})


def _compiler(device: torch.device) -> str | Callable[..., Any]:
    """The backend of `torch.compile`.

    On a CUDA device it is PyTorch's own as it comes: calls from C++ would need CUDA's headers, which PyTorch does not
    bring, and the processor, which runs ahead of the device, has time.
    """
    return _on_cpu if device.type == "cpu" else "inductor"


_NO_COMPILER = ("InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton", "Failed to find C compiler")
"""Errors that say that nothing can be compiled here, on the CPU or for a CUDA device."""


@final
class Compiled(Generic[Result]):
    """`torch.compile(function, fullgraph=True)`, or `function` itself where no compiler is found.

    That is known at the first call only; one warning is given then, whatever the number of functions.
    """

    _warned = False

    def __init__(self, function: Callable[..., Result], enabled: bool = True, device: torch.device = CPU) -> None:
        """
        Args:
            function: a pure function of tensors; what it closes over must not change.
            enabled: false leaves it as it is, as PyTorch's own `TORCH_COMPILE_DISABLE=1` in the environment does.
            device: where its tensors lie.
        """
        self._eager = function
        self._call: Callable[..., Result] = function
        if enabled and not torch._dynamo.config.disable:
            options: dict[str, Any] = {"guard_filter_fn": _changing}  # anew each time, as it is taken out
            self._call = torch.compile(_own_code(function), fullgraph=True, backend=_compiler(device), options=options)

    def __call__(self, *arguments: Any) -> Result:
        try:
            return self._call(*arguments)
        except Exception as error:
            if self._call is self._eager or not _no_compiler(error):
                raise
            self._call = self._eager
            if not Compiled._warned:
                Compiled._warned = True
                warnings.warn(
                    f"nothing can be compiled here, and updates run slower for it: {_first_line(error)}", stacklevel=2
                )
            return self._eager(*arguments)


def _own_code(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function under a code object of its own.

    `torch.compile` keeps what it compiled, and counts it against a limit, by code object: two models of one process
    would otherwise search and crowd out each other's.
    """

    def call(*arguments: Any) -> Result:
        return function(*arguments)

    call.__code__ = call.__code__.replace()
    return call


def _no_compiler(error: BaseException) -> bool:
    """Whether the error is that no compiler was found; its class is wrapped, its name stays in the message."""
    message = f"{type(error).__name__}: {error}"
    return any(name in message for name in _NO_COMPILER)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
