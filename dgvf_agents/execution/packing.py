"""Packed parameters: one vector instead of many named tensors.

Every input and output tensor of a compiled function has a cost, and so has every tensor that autograd stores. Small
networks spend more time on this overhead than on arithmetic. Compiled functions pack and unpack for free.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

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


def _names(tree: Any) -> Any:
    """The names of nested dicts."""
    return {name: _names(part) for name, part in tree.items()} if isinstance(tree, dict) else None


def _leaves(tree: Any, names: Any) -> list[Tensor]:
    """The tensors of nested dicts in the order of the names."""
    return [tree] if names is None else [leaf for name in names for leaf in _leaves(tree[name], names[name])]
