"""Convolutions of second derivatives, as a compiler should see them.

PyTorch differentiates the gradient of a convolution's weight as a convolution whose filters are as large as an image,
for which libraries have no fast algorithm. It is itself the gradient of a weight, for which they have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Convolutions by PyTorch's name, for the decomposition table of `make_fx`."""
    return {torch.ops.aten.convolution.default: as_weight_gradient}


def as_weight_gradient(
    images: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """The same convolution as the gradient of a weight; not implemented unless filters are larger than outputs.

    Args:
        images: `[N, C, H, W]`.
        filters: `[K, C, h, w]`.
        bias: `[K]`.
        stride: see `torch.ops.aten.convolution`, as for all others.
        padding: of images.
        dilation: of filters.
        transposed: must be false.
        output_padding: must be 0.
        groups: must be 1.

    Returns:
        `[N, K, H', W']`.
    """
    if transposed or groups != 1 or bias is not None or images.ndim != 4:
        return NotImplemented
    sizes = list(zip(images.shape[2:], filters.shape[2:], stride, padding, dilation, strict=True))
    outputs = [(size + 2 * pad - step * (filtered - 1) - 1) // skip + 1 for size, filtered, skip, pad, step in sizes]
    exact = all(
        (size + 2 * pad - skip * (output - 1) - 1) // step + 1 == filtered
        for output, (size, filtered, skip, pad, step) in zip(outputs, sizes, strict=True)
    )
    if not exact or torch.Size(outputs).numel() >= filters.shape[2:].numel():
        return NotImplemented
    inputs, gradient = images.transpose(0, 1), filters.transpose(0, 1)
    weight = images.new_empty(1).expand(filters.shape[0], images.shape[0], *outputs)
    only_weight = (False, True, False)
    backward = torch.ops.aten.convolution_backward.default
    _, found, _ = backward(
        gradient, inputs, weight, None, dilation, padding, stride, False, output_padding, 1, only_weight
    )
    return found.transpose(0, 1)
