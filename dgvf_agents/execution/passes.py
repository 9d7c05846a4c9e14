"""A compiled function: its forward and its backward pass, and what they take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from dgvf_agents.core.flat import builder, size
from dgvf_agents.core.vjp import Addend, PullBack, added

Run = Callable[[list[Tensor]], list[Tensor]]
"""A compiled graph: from its inputs to its outputs."""


@final
@dataclass(frozen=True)
class Interface:
    """How the passes are called; see `tracing.Graphs`."""

    result: Any
    saved: list[tuple[str, int]]
    accumulated: int


@final
class Passes:
    """A compiled function. It imports nothing of PyTorch's compiler."""

    def __init__(self, forward: Run, backward: Run | None, interface: Interface) -> None:
        """
        Args:
            forward: the forward graph.
            backward: the backward graph; `None` for a function that is not differentiated.
            interface: how they are called.
        """
        self._forward, self._backward = forward, backward
        self._build, self._outputs = builder(interface.result), size(interface.result)
        self._saved = [(kind == "input", i) for kind, i in interface.saved]
        self._accumulated = interface.accumulated

    def __call__(self, leaves: list[Tensor]) -> Any:
        """The function's result for the arguments' tensors."""
        return self._build(self._forward(leaves))

    def vjp(self, leaves: list[Tensor]) -> tuple[Any, PullBack]:
        """The function's result and pull-back for the arguments' tensors; it must be compiled with its pull-back."""
        backward = self._backward
        assert backward is not None
        outputs = self._forward(leaves)
        saved = [leaves[i] if is_input else outputs[i] for is_input, i in self._saved]

        def pull_back(cotangents: Sequence[Tensor], addends: Sequence[Addend]) -> list[Tensor | None]:
            alone = len(addends) - self._accumulated
            pairs = zip(leaves[alone:], addends[alone:], strict=False)  # there are other arguments
            given = [addend if isinstance(addend, Tensor) else torch.zeros_like(leaf) for leaf, addend in pairs]
            inputs = [*saved, *cotangents, *given]
            saved.clear()  # frees the memory: a pull-back is used once
            products = backward(inputs)
            sums = [added(*parts) for parts in zip(addends[:alone], products[:alone], leaves[:alone], strict=True)]
            totals = zip(addends[alone:], products[alone:], strict=True)
            return [*sums, *(None if addend is None else total for addend, total in totals)]

        return self._build(outputs[: self._outputs]), pull_back
