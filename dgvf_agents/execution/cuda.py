"""Functions compiled in this process, for a CUDA device, where they run as CUDA graphs: captured once, then launched as
a whole.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, final
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from dgvf_agents.execution.cache import use_compiler_folder
from dgvf_agents.execution.jobs import traced
from dgvf_agents.execution.task import Task, pickled
from dgvf_agents.execution.torch_private import compile_here, copy_all
from dgvf_agents.execution.trace import Graphs, Passes, Run, example_inputs

_COMPILED: WeakValueDictionary[str, Passes] = WeakValueDictionary()
"""By key: models of one architecture share compiled functions, whose memory is freed with the last of them."""


def compiled_here(task: Task) -> Passes:
    """The compiled function. PyTorch keeps what it compiled on disk, for other processes.

    Args:
        task: the function. Tensors that it closes over become constants of the compiled function.
    """
    try:
        key = pickled(task).key
    except Exception:  # whatever a user's class raises
        return _passes(traced(task))
    found = _COMPILED.get(key)
    if found is not None:
        return found
    graphs = traced(task)
    passes = _passes(graphs)
    if not _has_parameters(graphs):  # their values are not in the key
        _COMPILED[key] = passes
    return passes


def _passes(graphs: Graphs) -> Passes:
    backward = None if graphs.backward is None else _runner(graphs.backward)
    return Passes(_runner(graphs.forward), backward, graphs.interface, graphs.result)


def _has_parameters(graphs: Graphs) -> bool:
    """Whether the function closes over the value of a parameter, which is a constant of the graph then."""
    return any(
        isinstance(getattr(graph, str(node.target)), nn.Parameter)
        for graph in (graphs.forward, graphs.backward)
        if graph is not None
        for node in graph.graph.find_nodes(op="get_attr")
    )


def _runner(graph: GraphModule) -> Run:
    use_compiler_folder()
    inputs = example_inputs(graph)
    captured = all(tensor.is_cuda for tensor in inputs)
    if captured:
        _move_constants(graph, inputs[0].device)
    run = compile_here(graph, inputs)
    if not captured:
        return run
    try:
        return CudaGraph(run, inputs)
    except CaptureError as error:
        warnings.warn(f"updates run slower, since they cannot be captured as a CUDA graph: {error}", stacklevel=2)
        return run


def _move_constants(graph: GraphModule, device: torch.device) -> None:
    """To the device: a CUDA graph cannot copy from the CPU."""
    for node in graph.graph.find_nodes(op="get_attr"):
        assert isinstance(node.target, str)
        setattr(graph, node.target, getattr(graph, node.target).to(device))


class CaptureError(RuntimeError):
    """A function cannot be captured: it waits for the device, or copies from the CPU."""


@final
class CudaGraph:
    """Replays a function's kernels. Small networks take longer to launch kernel by kernel than to compute."""

    def __init__(self, function: Run, examples: Sequence[Tensor]) -> None:
        """
        Args:
            function: of tensors on one CUDA device, whose kernels depend on nothing but their layout.
            examples: inputs of that layout, which it keeps and overwrites.

        Raises:
            CaptureError: the function cannot be captured.
        """
        self._function = function  # replays read its constants
        self._inputs, device = list(examples), examples[0].device
        with torch.no_grad(), torch.cuda.device(device):
            shared, before = _shared_by(device), torch.cuda.current_stream()
            shared.stream.wait_stream(before)
            with torch.cuda.stream(shared.stream):
                function(list(self._inputs))  # kernels are loaded at the first call, which cannot be captured
            before.wait_stream(shared.stream)
            self._graph = torch.cuda.CUDAGraph()
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # if the first kernel fails
                    with torch.cuda.graph(self._graph, shared.pool, shared.stream, "thread_local"):
                        self._outputs = function(list(self._inputs))
            except RuntimeError as error:
                torch.cuda.set_stream(before)  # a failed capture leaves its own
                _shared_by.cache_clear()  # and a pool that takes no other
                raise CaptureError(str(error)) from error
        self._input_groups, self._output_groups = _alike(self._inputs), _alike(self._outputs)

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """The function's outputs, in memory of their own."""
        _copy(inputs, self._inputs, self._input_groups)
        self._graph.replay()
        outputs = [torch.empty_like(output) for output in self._outputs]
        _copy(self._outputs, outputs, self._output_groups)
        return outputs


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor], groups: Sequence[Sequence[int]]) -> None:
    for group in groups:
        copy_all([targets[i] for i in group], [sources[i] for i in group])


def _alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of tensors of equal type and kind of layout, which are copied by one kernel."""
    groups = defaultdict(list)
    for i, tensor in enumerate(tensors):
        groups[tensor.dtype, tensor.is_contiguous()].append(i)
    return list(groups.values())


class _Shared(NamedTuple):
    """State shared by all graphs on a device."""

    stream: Any
    """For capturing."""
    pool: Any
    """Memory: nothing of a replay is needed after its outputs were copied."""
    keeper: Any
    """An empty graph, without which the pool would be lost with the last other one."""


@cache
def _shared_by(device: torch.device) -> _Shared:
    with torch.cuda.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        shared = _Shared(torch.cuda.Stream(), torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph())
        with torch.cuda.graph(shared.keeper, shared.pool, shared.stream, "thread_local"):
            pass
    return shared
