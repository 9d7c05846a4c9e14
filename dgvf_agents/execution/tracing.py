"""A function of tensors, and its vector-Jacobian product, as graphs that a compiler takes.

The joint graph of a function and its vector-Jacobian product is split in two: the forward graph returns what the
backward graph needs besides its results. Nothing is traced by Dynamo, so compiled functions have no guards and need no
PyTorch compiler in the process that calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
import torch._functorch.config
import torch._inductor.lowering  # the decomposition of max pooling needs it and does not import it
from torch import Tensor
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.core.vjp import first_result
from dgvf_agents.execution import convolutions, products, running_sums
from dgvf_agents.execution.rewriting import rewrite

_RECOMPUTE = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
    "ban_recompute_not_in_allowlist": False,
}
"""Allow more operations to be recomputed in the backward pass instead of stored by the forward pass. On the CPU,
storing the mask of a ReLU takes longer than a matrix product."""


@final
@dataclass(frozen=True)
class Graphs:
    """A traced function; tensors are those of `flatten`."""

    forward: torch.fx.GraphModule
    """Results, then what the backward graph needs."""
    backward: torch.fx.GraphModule | None
    """What it needs of the forward graph, then cotangents, then addends of the last argument that the function is
    differentiated in; returns what `PullBack` does. `None` for a function that is not differentiated."""
    result: Any
    """Template of the results."""
    saved: list[tuple[str, int]]
    """For each of the backward graph's leading inputs, `("input", i)`: argument i, or `("output", j)`: output j of the
    forward graph."""
    accumulated: int
    """Number of addends. In an unroll, gradients add up in η alone."""


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
            return Graphs(graph, None, structure[0], [], 0)
        first, others = flat(*leaves)
        cotangents = [torch.ones_like(output, memory_format=torch.contiguous_format) for output in first]
        addends = [torch.ones_like(leaf, memory_format=torch.contiguous_format) for leaf in leaves[alone:leading]]
        graph = _traced(joint, leaves, cotangents, addends)
    forward_graph, backward_graph, saved = _split(graph, len(leaves), len(first) + len(others))
    return Graphs(forward_graph, backward_graph, structure[0], saved, len(addends))


def _new(output: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    """A result that is no argument: graphs must not return their inputs."""
    return output.clone() if any(output is argument for argument in given) else output


def _traced(function: Callable[..., Any], *arguments: Any) -> torch.fx.GraphModule:
    table = select_decomp_table()
    for part in (products, convolutions, running_sums):
        table = {**table, **part.decompositions()}
    functional = torch.func.functionalize(function)  # the partitioner does not know what operations in place depend on
    trace = make_fx(functional, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)
    graph = trace(*arguments)
    rewrite(graph)
    return graph


def _split(graph: torch.fx.GraphModule, inputs: int, outputs: int) -> tuple[Any, Any, list[tuple[str, int]]]:
    """Split a joint graph: the forward and the backward graph, and `Graphs.saved`."""
    for number, node in enumerate(_placeholders(graph)):  # the names that PyTorch's partitioner asks for
        node.name = node.target = f"primals_{number + 1}" if number < inputs else f"tangents_{number - inputs + 1}"
    graph.recompile()
    with torch._functorch.config.patch(_RECOMPUTE):
        # Arguments are kept anyway: nothing else has to be stored that can be computed from them again.
        kept_anyway = list(range(inputs))
        forward, backward = min_cut_rematerialization_partition(
            graph, None, num_fwd_outputs=outputs, static_lifetime_input_indices=kept_anyway
        )
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


def _placeholders(graph: torch.fx.GraphModule) -> list[Any]:
    return list(graph.graph.find_nodes(op="placeholder"))


def example_inputs(graph: torch.fx.GraphModule) -> list[Tensor]:
    """Tensors like a graph's inputs."""
    made = []
    for node in _placeholders(graph):
        value = node.meta["val"]
        made.append(torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_())
    return made
