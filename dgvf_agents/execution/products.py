"""Matrix products of small networks, as a compiler for the CPU should see them.

A library takes several microseconds for a matrix product however small it is, and adds a bias in a pass of its own.
Products with a side of a few numbers, such as those of value heads, are written out as sums, which the compiler fuses
with what comes before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SMALL = 8
"""Products are written out if one of their three sizes is at most this."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Products by PyTorch's name, for the decomposition table of `make_fx`."""
    aten = torch.ops.aten
    return {
        aten.mm.default: product,
        aten.bmm.default: product,
        aten.addmm.default: _with_bias(torch.mm),
        aten.baddbmm.default: _with_bias(torch.bmm),
    }


def product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` as sums; not implemented if all sizes are large.

    Args:
        a: `[..., M, K]`.
        b: `[..., K, N]`.
    """
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    if 0 in (rows, inner, columns):
        return NotImplemented
    if inner <= SMALL:
        out = a[..., :, :1] * b[..., :1, :]
        for k in range(1, inner):
            out = out + a[..., :, k : k + 1] * b[..., k : k + 1, :]
        return out
    if columns <= SMALL:
        return torch.stack([(a * b[..., None, :, j]).sum(-1) for j in range(columns)], -1)
    if rows <= SMALL:
        return torch.stack([(a[..., i, :, None] * b).sum(-2) for i in range(rows)], -2)
    return NotImplemented


def _with_bias(multiply: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def biased(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        if beta != 1 or alpha != 1:
            return NotImplemented
        return multiply(a, b) + bias

    return biased
