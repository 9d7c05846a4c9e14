"""All private parts of PyTorch that this package uses, in one place, for whoever tries another version.

Functions import PyTorch's compiler when they are called: a process that trains with compiled functions never does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

_RECOMPUTE = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
    "ban_recompute_not_in_allowlist": False,
}
"""Allow more operations to be recomputed in the backward pass instead of stored by the forward pass. On the CPU,
storing the mask of a ReLU takes longer than a matrix product."""


def graph_of(function: Callable[..., Any], table: dict[Any, Any], arguments: Sequence[Any]) -> GraphModule:
    """The operations of a function, which may write in place, for arguments like these.

    Args:
        function: of tensors in lists.
        table: decompositions by operation, besides PyTorch's own.
        arguments: its examples.
    """
    import torch._inductor.lowering
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    functional = torch.func.functionalize(function)  # the partitioner does not know what operations in place depend on
    decompositions = {**select_decomp_table(), **table}
    traced = make_fx(functional, decomposition_table=decompositions, tracing_mode="fake", _allow_non_fake_inputs=True)
    return traced(*arguments)


def partitioned(joint: GraphModule, inputs: int, outputs: int) -> tuple[GraphModule, GraphModule]:
    """A joint graph as a forward graph, whose first results are the function's, and a backward graph.

    Args:
        joint: its first placeholders are the function's inputs, the others cotangents.
        inputs: number of the function's inputs.
        outputs: number of its results.
    """
    import torch._functorch.config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    for number, node in enumerate(joint.graph.find_nodes(op="placeholder")):  # the names that PyTorch asks for
        node.name = node.target = f"primals_{number + 1}" if number < inputs else f"tangents_{number - inputs + 1}"
    joint.recompile()
    with torch._functorch.config.patch(_RECOMPUTE):
        # Arguments are kept anyway: nothing else has to be stored that can be computed from them again.
        kept_anyway = list(range(inputs))
        return min_cut_rematerialization_partition(
            joint, None, num_fwd_outputs=outputs, static_lifetime_input_indices=kept_anyway
        )


def _options() -> dict[str, Any]:
    """Of Inductor, on the CPU. Its patterns would put additions back into products, in a pass of their own.

    Precompiled headers take longer to make than they save in all functions of a model.
    """
    import torch._inductor.config

    names = ("pattern_matcher", "cpp_cache_precompile_headers", "aot_inductor.precompile_headers")
    options: dict[str, Any] = dict.fromkeys(names, False)
    if hasattr(torch._inductor.config.aot_inductor, "enable_line_tables"):  # two thirds of a library's bytes
        options["aot_inductor.enable_line_tables"] = False
    return options


def compiler_options() -> str:
    """All options that compiled code depends on."""
    import torch._inductor

    with torch._inductor.config.patch(_options()):
        return repr(sorted(torch._inductor.config.save_config_portable().items()))


def without_memory() -> Any:
    """A context in which operations give tensors that take no memory; its `from_tensor` makes one of another tensor."""
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def build_library(graph: GraphModule, examples: Sequence[Tensor], folder: Path) -> Path:
    """Compile a graph for the CPU and return the shared library.

    Args:
        graph: the graph.
        examples: its inputs.
        folder: for all files. PyTorch would take what a process that was killed has left in its own folder.
    """
    import torch._inductor

    options = {**_options(), "aot_inductor.output_path": str(folder)}
    with torch.no_grad(), warnings.catch_warnings(), torch._inductor.config.patch(options):
        warnings.simplefilter("ignore")  # deprecations within PyTorch
        library = torch._inductor.aot_compile(graph, tuple(examples))
    assert isinstance(library, str)
    return Path(library)


def load_library(path: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    """Load what `build_library` has built."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run


def compile_here(graph: GraphModule, examples: Sequence[Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    """Compile a graph in this process. PyTorch keeps what it compiled on disk, for other processes."""
    import torch._inductor
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    context = TracingContext(FakeTensorMode(shape_env=ShapeEnv()))  # Inductor's cache on disk asks for one
    with torch.no_grad(), warnings.catch_warnings(), tracing(context):
        warnings.simplefilter("ignore")  # deprecations within PyTorch
        compiled = torch._inductor.compile(graph, list(examples))

    def run(tensors: list[Tensor]) -> list[Tensor]:
        return list(compiled(*tensors))

    return run


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy every source into its target, with few kernels if all have one type."""
    torch._foreach_copy_(targets, sources)
