"""Compile a function into a folder. It imports PyTorch's compiler, which takes seconds."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import torch
import torch._inductor

from dgvf_agents.execution.compile_cache import Task
from dgvf_agents.execution.library import BACKWARD, FORWARD, write_interface
from dgvf_agents.execution.passes import Interface
from dgvf_agents.execution.tracing import example_inputs, trace

_OPTIONS = {"pattern_matcher": False}
"""Its patterns would put additions back into products, where they take a pass of their own."""


def build(task: Task, folder: Path) -> None:
    """Compile a function for the CPU.

    Args:
        task: the function. Tensors that it closes over become constants of the compiled function.
        folder: where to; must exist.
    """
    graphs = trace(task.function, task.arguments(), task.differentiable)
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
