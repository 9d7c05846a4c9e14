"""Rewrites of a traced graph that save passes over the memory of wide networks. Results are equal up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

_ADD, _CAT, _MM = torch.ops.aten.add.Tensor, torch.ops.aten.cat.default, torch.ops.aten.mm.default
_PERMUTE, _SLICE = torch.ops.aten.permute.default, torch.ops.aten.slice.Tensor


def rewrite(module: GraphModule) -> None:
    """Rewrite a graph in place."""
    for node in list(module.graph.nodes):
        if node.target is _ADD and not node.kwargs:
            _add_to_pieces(module.graph, node)
    for node in reversed(list(module.graph.nodes)):  # sums before the sums that they are made of
        if node.target is _ADD and not node.kwargs and node.users:
            _join_products(module.graph, node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _call(graph: Graph, function: Callable[..., Any], *arguments: Any) -> Node:
    """A new node with the shape and type of its value."""
    node = graph.call_function(function, arguments)
    values = torch.fx.node.map_arg(arguments, lambda argument: argument.meta["val"])
    node.meta["val"] = function(*values)
    return node


def _add_to_pieces(graph: Graph, total: Node) -> None:
    """`vector + cat(pieces)` as `cat` of sums, which are written where they belong.

    Gradients are concatenated where parameters are packed.
    """
    vector, whole = total.args
    if not isinstance(whole, Node) or whole.target is not _CAT or len(whole.users) > 1 or not isinstance(vector, Node):
        return
    if vector.meta["val"].shape != whole.meta["val"].shape or whole.meta["val"].dim() != 1:
        return
    with graph.inserting_before(total):
        sums, start = [], 0
        for piece in whole.args[0]:  # type: ignore[union-attr]
            end = start + piece.meta["val"].numel()  # type: ignore[union-attr]
            sums.append(_call(graph, _ADD, _call(graph, _SLICE, vector, 0, start, end), piece))
            start = end
        joined = _call(graph, _CAT, sums)
    total.replace_all_uses_with(joined)


class _Term(NamedTuple):
    """A term of a sum of matrices."""

    node: Node
    transposed: bool


def _terms(node: Any, transposed: bool, root: bool = True) -> list[_Term]:
    """The terms of a sum, through additions and transpositions that nothing else uses."""
    if isinstance(node, Node) and (root or len(node.users) == 1):
        if node.target is _ADD and not node.kwargs:
            terms = [_terms(argument, transposed, False) for argument in node.args]
            return [term for part in terms for term in part]
        if node.target is _PERMUTE and node.args[1] == [1, 0]:
            return _terms(node.args[0], not transposed, False)
    return [_Term(node, transposed)]


def _join_products(graph: Graph, total: Node) -> None:
    """`A_1 B_1 + A_2 B_2 + …` as one product `[A_1 A_2 …] [B_1; B_2; …]`.

    Only of matrices that are larger than what has to be concatenated, such as gradients of weights: products of
    gradients and features over a batch, summed over batches.
    """
    shape = total.meta["val"].shape
    terms = _terms(total, False)
    if len(shape) != 2 or any(not isinstance(node, Node) or node.meta["val"].dim() != 2 for node, _ in terms):
        return
    products = [node for node, transposed in terms if not transposed and _is_product(node, total)]
    left, right = [node.args[0] for node in products], [node.args[1] for node in products]
    inner = sum(node.meta["val"].shape[1] for node in left)  # type: ignore[union-attr]
    if len(products) < 2 or (len(products) - 1) * shape.numel() < 2 * inner * sum(shape):
        return
    with graph.inserting_before(total):
        joined = _call(graph, _MM, _concatenated(graph, left), _call(graph, _CAT, right))
        for node, transposed in terms:
            if node not in products:
                joined = _call(graph, _ADD, _call(graph, _PERMUTE, node, [1, 0]) if transposed else node, joined)
    total.replace_all_uses_with(joined)


def _is_product(node: Node, total: Node) -> bool:
    """Whether a term is a product that nothing else uses, of the shape and type of the sum."""
    value, whole = node.meta["val"], total.meta["val"]
    return node.target is _MM and len(node.users) == 1 and (value.shape, value.dtype) == (whole.shape, whole.dtype)


def _concatenated(graph: Graph, matrices: list[Any]) -> Node:
    """Matrices side by side; transposed ones below each other before, which copies rows as they are."""
    if all(node.target is _PERMUTE for node in matrices):
        return _call(graph, _PERMUTE, _call(graph, _CAT, [node.args[0] for node in matrices]), [1, 0])
    return _call(graph, _CAT, matrices, 1)
