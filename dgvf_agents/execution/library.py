"""A compiled function in a folder: shared libraries for the forward and the backward pass, and what they return."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgvf_agents.execution.flat import Index, builder, size

FORWARD, BACKWARD, INTERFACE = "forward.so", "backward.so", "interface.pkl"


@final
@dataclass(frozen=True)
class Interface:
    """How the libraries are called; see `tracing.Graphs`."""

    result: Any
    saved: list[tuple[str, int]]
    differentiated: list[int]


@final
class Library:
    """A compiled function, loaded. It imports nothing of PyTorch's compiler."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: as `building.build` writes it.
        """
        interface: Interface = pickle.loads((folder / INTERFACE).read_bytes())
        self._forward = _runner(folder / FORWARD)
        self._backward = _runner(folder / BACKWARD) if (folder / BACKWARD).exists() else None
        self._build = builder(interface.result)
        result = interface.result
        self._outputs = size(result)
        self._first = size(result[0] if _is_tuple(result) else result)
        self._saved, self._differentiated = interface.saved, interface.differentiated

    def __call__(self, leaves: list[Tensor]) -> Any:
        """The function's result for the arguments' tensors."""
        if self._backward is None:
            return self._build(self._forward.run(leaves))
        differentiated = [leaves[i] for i in self._differentiated]
        return self._build(list(_Call.apply(self, leaves, *differentiated)))


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: Library, leaves: list[Tensor], *differentiated: Tensor) -> tuple[Tensor, ...]:
        outputs = library._forward.run([leaf.detach() for leaf in leaves])
        ctx.library = library
        ctx.set_materialize_grads(False)
        count, first = library._outputs, library._first
        # What is saved is not marked as such: it consists of intermediate results and of detached arguments. Results
        # are detached, or they would keep alive the node that keeps them.
        ctx.saved = [
            leaves[i].detach() if kind == "input" else outputs[i].detach() if i < count else outputs[i]
            for kind, i in library._saved
        ]
        ctx.shapes = [(output.shape, output.dtype) for output in outputs[:first]]
        ctx.mark_non_differentiable(*outputs[first:count])
        return tuple(outputs[:count])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        tangents = [
            torch.zeros(shape, dtype=dtype) if gradient is None else gradient.contiguous()
            for gradient, (shape, dtype) in zip(gradients, ctx.shapes, strict=False)
        ]
        return None, None, *ctx.library._backward.run([*ctx.saved, *tangents])


def _is_tuple(result: Any) -> bool:
    return isinstance(result, tuple) and not isinstance(result, Index)


def _runner(path: Path) -> Any:
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)


def write_interface(folder: Path, interface: Interface) -> None:
    """Write what `Library` reads besides the shared libraries."""
    (folder / INTERFACE).write_bytes(pickle.dumps(interface))
