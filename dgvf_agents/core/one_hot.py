"""One-hot vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def one_hot(indices: Int[Tensor, "*batch"], size: int, dtype: torch.dtype) -> Float[Tensor, "*batch size"]:
    """1 at the index and 0 elsewhere.

    PyTorch's `one_hot` reads its input to check it, which waits for the device and cannot be traced ahead of time.

    Args:
        indices: in [0, size); any other index gives zeros.
        size: length of the vectors.
        dtype: of the result.
    """
    return (indices[..., None] == torch.arange(size, device=indices.device)).to(dtype)
