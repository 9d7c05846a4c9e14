"""Compile a function into a folder. It imports PyTorch's compiler, which takes seconds."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch import Tensor

from dgvf_agents.execution.compile_cache import Task, machine
from dgvf_agents.execution.library import BACKWARD, FORWARD, write_interface
from dgvf_agents.execution.passes import Interface
from dgvf_agents.execution.tracing import Graphs, example_inputs, trace

_OPTIONS = {"pattern_matcher": False}
"""Its patterns would put additions back into products, where they take a pass of their own."""


def key_of(graphs: Graphs) -> str:
    """The name of traced functions: whatever compiled code depends on."""
    digest = hashlib.sha256(f"{machine()} {torch.get_num_threads()} {_OPTIONS}".encode())
    digest.update(repr(sorted(torch._inductor.config.save_config_portable().items())).encode())
    digest.update(repr((graphs.result, graphs.saved, graphs.accumulated)).encode())
    for graph in (graphs.forward, graphs.backward):
        _add_graph(digest, graph)
    return digest.hexdigest()[:32]


def _add_graph(digest: Any, graph: torch.fx.GraphModule | None) -> None:
    if graph is None:
        digest.update(b"none")
        return
    digest.update(graph.code.encode())
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            digest.update(_layout(value).encode())
    for node in graph.graph.find_nodes(op="get_attr"):
        value = attrgetter(str(node.target))(graph)
        digest.update(str(node.target).encode())
        if isinstance(value, torch.fx.GraphModule):
            _add_graph(digest, value)
        elif isinstance(value, Tensor):
            digest.update(_layout(value).encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            raise TypeError(f"constants of compiled functions must be tensors, got a {type(value).__name__}")


def _layout(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.stride()} {tensor.dtype} {tensor.device}"


def traced(task: Task) -> Graphs:
    """The task's function as graphs."""
    return trace(task.function, task.arguments(), task.differentiable)


def build(graphs: Graphs, folder: Path) -> None:
    """Compile a function for the CPU.

    Args:
        graphs: the function. Tensors that it closes over become constants of the compiled function.
        folder: where to; must exist.
    """
    _compile(graphs.forward, folder / FORWARD)
    if graphs.backward is not None:
        _compile(graphs.backward, folder / BACKWARD)
    write_interface(folder, Interface(graphs.result, graphs.saved, graphs.accumulated))


def _compile(graph: torch.fx.GraphModule, path: Path) -> None:
    with torch.no_grad(), warnings.catch_warnings(), torch._inductor.config.patch(_OPTIONS):
        warnings.simplefilter("ignore")  # deprecations within PyTorch
        compiled = torch._inductor.aot_compile(graph, tuple(example_inputs(graph)))
    assert isinstance(compiled, str)
    shutil.copyfile(compiled, path)
