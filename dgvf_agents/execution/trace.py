"""A function of tensors, and its vector-Jacobian product, as graphs that a compiler takes.

The joint graph of a function and its vector-Jacobian product is split in two: the forward graph returns what the
backward graph needs besides its results. Nothing is traced by Dynamo, so compiled functions have no guards and need no
PyTorch compiler in the process that calls them.

On the way, operations are rewritten as a compiler should see them. Results are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from dgvf_agents.core.flat import builder, flatten, size, template
from dgvf_agents.core.vjp import Addend, PullBack, added, first_result
from dgvf_agents.execution.torch_private import graph_of, partitioned

Run = Callable[[list[Tensor]], list[Tensor]]
"""A compiled graph: from its inputs to its outputs."""


class Interface(NamedTuple):
    """Inputs and outputs of a function's graphs; plain values."""

    saved: list[tuple[str, int]]
    """For each of the backward graph's leading inputs, `("input", i)`: argument i, or `("output", j)`: output j of the
    forward graph."""
    accumulated: int
    """Number of addends. In an unroll, gradients add up in η alone."""


@final
@dataclass(frozen=True)
class Graphs:
    """A traced function of `flatten`'s tensors."""

    forward: GraphModule
    """Results, then what the backward graph needs."""
    backward: GraphModule | None
    """What it needs of the forward graph, then cotangents, then addends of the last argument that the function is
    differentiated in; returns what `PullBack` does. `None` for a function that is not differentiated."""
    interface: Interface
    result: Any
    """Template of the results."""


@final
class Passes:
    """A compiled function: its forward and its backward pass."""

    def __init__(self, forward: Run, backward: Run | None, interface: Interface, result: Any) -> None:
        """
        Args:
            forward: the forward graph.
            backward: the backward graph; `None` for a function that is not differentiated.
            interface: how they are called.
            result: template of the results.
        """
        self._forward, self._backward = forward, backward
        self._build, self._outputs = builder(result), size(result)
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


def trace(function: Callable[..., Any], arguments: tuple[Any, ...], differentiable: int) -> Graphs:
    """Trace a pure function.

    Args:
        function: takes and returns tensors in nested tuples, lists and dicts.
        arguments: examples; only their structure, shapes and types count.
        differentiable: number of leading arguments that it is differentiated in, whose tensors are of floating point;
            0: it is not differentiated. Other results than `first_result` are constants.
    """
    leaves, build = flatten(arguments), builder(template(arguments))
    leading = len(flatten(arguments[:differentiable]))
    alone = len(flatten(arguments[: differentiable - 1])) if differentiable else 0
    structure: list[Any] = []

    def flat(*given: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        result = function(*build(list(given)))
        structure[:] = [template(result)]
        first = len(first_result(result))
        outputs = [_new(output, given) for output in flatten(result)]
        return outputs[:first], outputs[first:]

    def forward(*given: Tensor) -> list[Tensor]:
        return [output for part in flat(*given) for output in part]

    def joint(primals: list[Tensor], cotangents: list[Tensor], addends: list[Tensor]) -> list[Tensor]:
        def of(*moved: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            return flat(*moved, *primals[leading:])

        first, pull_back, others = torch.func.vjp(of, *primals[:leading], has_aux=True)  # type: ignore[misc]
        found = pull_back(cotangents)
        sums = [addend + product for addend, product in zip(addends, found[alone:], strict=True)]
        return [*first, *others, *(_new(product, (*primals, *cotangents)) for product in found[:alone]), *sums]

    with torch.no_grad():
        if not differentiable:
            graph = _traced(forward, *leaves)
            return Graphs(graph, None, Interface([], 0), structure[0])
        first, others = flat(*leaves)
        cotangents = [torch.ones_like(output, memory_format=torch.contiguous_format) for output in first]
        addends = [torch.ones_like(leaf, memory_format=torch.contiguous_format) for leaf in leaves[alone:leading]]
        graph = _traced(joint, leaves, cotangents, addends)
    forward_graph, backward_graph, saved = _split(graph, len(leaves), len(first) + len(others))
    return Graphs(forward_graph, backward_graph, Interface(saved, len(addends)), structure[0])


def _new(output: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    """A result that is no argument: graphs must not return their inputs."""
    return output.clone() if any(output is argument for argument in given) else output


def _traced(function: Callable[..., Any], *arguments: Any) -> GraphModule:
    graph = graph_of(function, decompositions(), arguments)
    rewrite(graph)
    return graph


def _split(graph: GraphModule, inputs: int, outputs: int) -> tuple[GraphModule, GraphModule, list[tuple[str, int]]]:
    """Split a joint graph: the forward and the backward graph, and `Interface.saved`."""
    forward, backward = partitioned(graph, inputs, outputs)
    returned = next(iter(forward.graph.find_nodes(op="output")))
    argument = {node: i for i, node in enumerate(_placeholders(forward))}
    kept, saved = list(returned.args[0][:outputs]), []
    for node in returned.args[0][outputs:]:
        if node in argument:
            saved.append(("input", argument[node]))
        else:
            saved.append(("output", len(kept)))
            kept.append(node)
    returned.args = (kept,)
    forward.recompile()
    return forward, backward, saved


def _placeholders(graph: GraphModule) -> list[Any]:
    return list(graph.graph.find_nodes(op="placeholder"))


def example_inputs(graph: GraphModule) -> list[Tensor]:
    """Tensors like a graph's inputs."""
    made = []
    for node in _placeholders(graph):
        value = node.meta["val"]
        made.append(torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_())
    return made


# --- operations, as a compiler for the CPU should see them ------------------------------------------------------------

SMALL = 8
"""Products are written out if one of their three sizes is at most this. A library takes several microseconds for a
matrix product however small it is, and adds a bias in a pass of its own; sums are fused with what comes before and
after."""
FEW = 32
"""Cumulative sums over at most this many numbers, such as the probabilities of actions, are written out, since
PyTorch's compiler leaves `cumsum` to the library. Their cost is quadratic."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operations by PyTorch's name, written in others."""
    aten = torch.ops.aten
    return {
        aten.mm.default: product,
        aten.bmm.default: product,
        aten.addmm.default: _with_bias(torch.mm),
        aten.baddbmm.default: _with_bias(torch.bmm),
        aten.convolution.default: as_weight_gradient,
        aten.cumsum.default: running_sum,
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


def running_sum(values: Tensor, axis: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """`cumsum` over the last axis, in double precision as in PyTorch; not implemented for anything else.

    Args:
        values: `[..., A]`, floating-point.
        axis: the last one.
        dtype: the values' dtype, or `None`.
    """
    last = values.dim() > 0 and axis in (-1, values.dim() - 1)
    if not (last and values.is_floating_point() and values.shape[-1] <= FEW and dtype in (None, values.dtype)):
        return NotImplemented
    index = torch.arange(values.shape[-1], device=values.device)
    return torch.where(index <= index[:, None], values.double()[..., None, :], 0.0).sum(-1).to(values.dtype)


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

    PyTorch differentiates the gradient of a convolution's weight as a convolution whose filters are as large as an
    image, for which libraries have no fast algorithm. It is itself the gradient of a weight, for which they have one.

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


# --- rewrites of a graph that save passes over the memory of wide networks --------------------------------------------

_ADD, _CAT, _MM = torch.ops.aten.add.Tensor, torch.ops.aten.cat.default, torch.ops.aten.mm.default
_PERMUTE, _SLICE = torch.ops.aten.permute.default, torch.ops.aten.slice.Tensor


def rewrite(module: GraphModule) -> None:
    """Rewrite a graph in place."""
    for node in list(module.graph.nodes):
        if node.target is _ADD and not node.kwargs:
            _add_to_pieces(module.graph, node)
    for node in reversed(list(module.graph.nodes)):  # sums before the sums that they are made of
        if node.target is _ADD and node.users:
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
