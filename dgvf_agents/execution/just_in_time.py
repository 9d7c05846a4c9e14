"""Compile a function in this process, for a CUDA device, where it runs as CUDA graphs."""

from __future__ import annotations

import warnings
from weakref import WeakValueDictionary

import torch
import torch._inductor
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dgvf_agents.execution.compile_cache import Task, pickled
from dgvf_agents.execution.cuda_graph import CaptureError, CudaGraph
from dgvf_agents.execution.passes import Interface, Passes, Run
from dgvf_agents.execution.tracing import Graphs, example_inputs, trace

_COMPILED: WeakValueDictionary[str, Passes] = WeakValueDictionary()
"""By key: models of one architecture share compiled functions, whose memory is freed with the last of them.
"""


def compiled_here(task: Task) -> Passes:
    """The compiled function. PyTorch keeps what it compiled on disk, for other processes.

    Args:
        task: the function. Tensors that it closes over become constants of the compiled function.
    """
    try:
        key = pickled(task).key
    except Exception:  # whatever a user's class raises
        return _passes(_traced(task))
    found = _COMPILED.get(key)
    if found is not None:
        return found
    graphs = _traced(task)
    passes = _passes(graphs)
    if not _has_parameters(graphs):  # their values are not in the key
        _COMPILED[key] = passes
    return passes


def _traced(task: Task) -> Graphs:
    return trace(task.function, task.arguments(), task.differentiable)


def _passes(graphs: Graphs) -> Passes:
    backward = None if graphs.backward is None else _runner(graphs.backward)
    return Passes(_runner(graphs.forward), backward, Interface(graphs.result, graphs.saved, graphs.accumulated))


def _has_parameters(graphs: Graphs) -> bool:
    """Whether the function closes over the value of a parameter, which is a constant of the graph then."""
    return any(
        isinstance(getattr(graph, str(node.target)), nn.Parameter)
        for graph in (graphs.forward, graphs.backward)
        if graph is not None
        for node in graph.graph.find_nodes(op="get_attr")
    )


def _runner(graph: torch.fx.GraphModule) -> Run:
    inputs = example_inputs(graph)
    captured = all(tensor.is_cuda for tensor in inputs)
    if captured:
        _move_constants(graph, inputs[0].device)
    context = TracingContext(FakeTensorMode(shape_env=ShapeEnv()))  # Inductor's cache on disk asks for one
    with torch.no_grad(), warnings.catch_warnings(), tracing(context):
        warnings.simplefilter("ignore")  # deprecations within PyTorch
        compiled = torch._inductor.compile(graph, list(inputs))

    def run(tensors: list[Tensor]) -> list[Tensor]:
        return list(compiled(*tensors))

    if not captured:
        return run
    try:
        return CudaGraph(run, inputs)
    except CaptureError as error:
        warnings.warn(f"updates run slower, since they cannot be captured as a CUDA graph: {error}", stacklevel=2)
        return run


def _move_constants(graph: torch.fx.GraphModule, device: torch.device) -> None:
    """To the device: a CUDA graph cannot copy from the CPU."""
    for node in graph.graph.find_nodes(op="get_attr"):
        assert isinstance(node.target, str)
        setattr(graph, node.target, getattr(graph, node.target).to(device))
