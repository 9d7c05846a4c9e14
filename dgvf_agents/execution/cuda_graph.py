"""A function of tensors as a CUDA graph: captured once, then launched as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, final

import torch
from torch import Tensor

from dgvf_agents.execution.passes import Run


@final
class CudaGraph:
    """Replays a function's kernels. Small networks take longer to launch kernel by kernel than to compute."""

    def __init__(self, function: Run, examples: Sequence[Tensor]) -> None:
        """
        Args:
            function: of tensors on one CUDA device, whose kernels depend on nothing but their layout.
            examples: inputs of that layout, which it keeps and overwrites.

        Raises:
            RuntimeError: the function cannot be captured: it waits for the device, or copies from the CPU.
        """
        device, self._inputs = examples[0].device, list(examples)
        with torch.no_grad(), torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(list(self._inputs))  # kernels are loaded at the first call, which cannot be captured
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=_memory_of(device), capture_error_mode="thread_local"):
                self._outputs = function(list(self._inputs))
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
        torch._foreach_copy_([targets[i] for i in group], [sources[i] for i in group])


def _alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Indices of tensors of equal type and kind of layout, which are copied by one kernel."""
    groups = defaultdict(list)
    for i, tensor in enumerate(tensors):
        groups[tensor.dtype, tensor.is_contiguous()].append(i)
    return list(groups.values())


@cache
def _memory_of(device: torch.device) -> Any:
    """The memory of all graphs on a device. They share it, since nothing of a replay is needed after its outputs were
    copied.
    """
    with torch.cuda.device(device):
        return torch.cuda.graph_pool_handle()
