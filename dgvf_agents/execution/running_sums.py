"""Cumulative sums over a few numbers, as a compiler for the CPU should see them.

PyTorch's compiler leaves `cumsum` on the CPU to the library, a call by itself between two compiled loops. Over the
probabilities of a few actions, a sum for each of them is fused with what comes before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FEW = 32
"""Sums over at most this many numbers are written out; their cost is quadratic."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """`cumsum` by PyTorch's name, for the decomposition table of `make_fx`."""
    return {torch.ops.aten.cumsum.default: running_sum}


def running_sum(values: Tensor, axis: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """`cumsum` over the last axis, in double precision as in PyTorch; not implemented for anything else.

    Args:
        values: `[..., A]`, floating-point.
        axis: the last one.
        dtype: that of the values, or `None`.
    """
    last = values.dim() > 0 and axis in (-1, values.dim() - 1)
    if not (last and values.is_floating_point() and values.shape[-1] <= FEW and dtype in (None, values.dtype)):
        return NotImplemented
    index = torch.arange(values.shape[-1], device=values.device)
    return torch.where(index <= index[:, None], values.double()[..., None, :], 0.0).sum(-1).to(values.dtype)
