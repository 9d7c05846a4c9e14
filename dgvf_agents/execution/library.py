"""A compiled function in a folder: shared libraries for the forward and the backward pass, and what they return."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from dgvf_agents.core.flat import builder, size
from dgvf_agents.core.vjp import PullBack
from dgvf_agents.execution.memory import keep_freed_memory

FORWARD, BACKWARD, INTERFACE = "forward.so", "backward.so", "interface.pkl"


@final
@dataclass(frozen=True)
class Interface:
    """How the libraries are called; see `tracing.Graphs`."""

    result: Any
    saved: list[tuple[str, int]]


@final
class Library:
    """A compiled function, loaded. It imports nothing of PyTorch's compiler."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: as `building.build` writes it.
        """
        keep_freed_memory()
        interface: Interface = pickle.loads((folder / INTERFACE).read_bytes())
        self._forward = _runner(folder / FORWARD)
        self._backward = _runner(folder / BACKWARD) if (folder / BACKWARD).exists() else None
        self._build = builder(interface.result)
        self._outputs = size(interface.result)
        self._saved = [(kind == "input", i) for kind, i in interface.saved]

    def __call__(self, leaves: list[Tensor]) -> Any:
        """The function's result for the arguments' tensors."""
        return self._build(self._forward.run(leaves))

    def vjp(self, leaves: list[Tensor]) -> tuple[Any, PullBack]:
        """The function's result and pull-back for the arguments' tensors; it must be compiled with its pull-back."""
        backward = self._backward
        assert backward is not None
        outputs = self._forward.run(leaves)
        saved = [leaves[i] if is_input else outputs[i] for is_input, i in self._saved]

        def pull_back(cotangents: Sequence[Tensor], addends: Sequence[Tensor | None]) -> list[Tensor | None]:
            pairs = zip(leaves, addends, strict=False)  # there are other arguments
            given = [torch.zeros_like(leaf) if addend is None else addend for leaf, addend in pairs]
            inputs = [*saved, *cotangents, *given]
            saved.clear()  # frees the memory: a pull-back is used once
            return backward.run(inputs)

        return self._build(outputs[: self._outputs]), pull_back


def _runner(path: Path) -> Any:
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)


def write_interface(folder: Path, interface: Interface) -> None:
    """Write what `Library` reads besides the shared libraries."""
    (folder / INTERFACE).write_bytes(pickle.dumps(interface))
