"""Packed parameters: one vector instead of many named tensors.

Every input and output tensor of a compiled function has a cost, and so has every tensor that autograd stores. Small
networks spend more time on this overhead than on arithmetic. Compiled functions pack and unpack for free.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from dgvf_agents.core.optimizers import clip_by_global_norm, clip_heads_separately
from dgvf_agents.core.types import Params

KEY = "packed"
"""The only key of a packed dict of parameters."""


@final
class Packing:
    """The layout of a tree of tensors in one vector."""

    def __init__(self, tree: Any) -> None:
        """
        Args:
            tree: nested dicts of tensors of one dtype; defines the order and the shapes.
        """
        leaves, self._spec = tree_flatten(tree)
        self._names = _names(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._sizes = [leaf.numel() for leaf in leaves]
        self.size = sum(self._sizes)
        starts = [0, *accumulate(self._sizes)]
        # strides of contiguous tensors
        self._layouts = [
            (s, torch.empty(s, device="meta").stride(), o) for s, o in zip(self._shapes, starts, strict=False)
        ]

    def pack(self, tree: Any) -> Params:
        """The tree as a dict of one vector, whatever the order of its names; empty if the tree has no tensors.

        Raises:
            KeyError: a name is missing.
        """
        leaves = _leaves(tree, self._names)
        return {KEY: torch.cat([leaf.reshape(-1) for leaf in leaves])} if leaves else {}

    def unpack(self, packed: Params) -> Any:
        """The tree; its tensors are views of the vector."""
        pieces = packed[KEY].split(self._sizes) if self._sizes else ()
        leaves = [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        return tree_unflatten(leaves, self._spec)

    def views(self, packed: Params) -> list[Tensor]:
        """The leaves of `unpack` as a list. Much faster than `unpack`, but not for compiled functions."""
        if not packed:
            return []
        vector = packed[KEY]
        start = vector.storage_offset()
        return [vector.as_strided(shape, strides, start + offset) for shape, strides, offset in self._layouts]


def _names(tree: Any) -> Any:
    """The names of nested dicts."""
    return {name: _names(part) for name, part in tree.items()} if isinstance(tree, dict) else None


def _leaves(tree: Any, names: Any) -> list[Tensor]:
    """The tensors of nested dicts in the order of the names."""
    return [tree] if names is None else [leaf for name in names for leaf in _leaves(tree[name], names[name])]


def clip_meta_gradient(
    gradient: Params, eta: Packing, max_norm: float | Tensor, max_discount_norm: float | Tensor | None
) -> Params:
    """A packed meta-gradient, scaled down.

    Args:
        gradient: packed like η.
        eta: how η is packed.
        max_norm: maximum norm > 0 of the gradient of the cumulants, or of all of η.
        max_discount_norm: maximum norm > 0 of the gradient of the discount head; `None`: one norm over all of η.
    """
    if max_discount_norm is None:
        return clip_by_global_norm(gradient, max_norm)
    return eta.pack(clip_heads_separately(eta.unpack(gradient), max_norm, max_discount_norm))
