"""Memory that an unroll needs, estimated from shapes, and memory that is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dgvf_agents.core.flat import map_tensors
from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution.torch_private import without_memory

_GROUP = Path("/sys/fs/cgroup")
"""Where Linux limits the memory of a container."""


class _Results(TorchDispatchMode):
    """Notes the memory of every operation's result."""

    def __init__(self, given: Any) -> None:
        """
        Args:
            given: tensors whose memory is not a result's.
        """
        super().__init__()
        self._given = {tensor.untyped_storage()._cdata for tensor in tree_leaves(given) if isinstance(tensor, Tensor)}
        self._found: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._given:
                    self._found[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return result

    def alive(self) -> int:
        """Bytes of the results that something still refers to."""
        return sum(size for storage, size in self._found.values() if not storage.expired())


def graph_bytes(function: Callable[..., Any], arguments: tuple[Any, ...], differentiable: int) -> int:
    """Bytes that a function's result and its graph keep. Nothing of this size is allocated to find out.

    Args:
        function: a pure function of tensors in nested tuples, lists and dicts, to run eagerly.
        arguments: of the function; their shapes and types matter alone.
        differentiable: number of leading arguments that it is differentiated in.

    Raises:
        Exception: the function reads the values of its arguments.
    """
    with without_memory() as fake:
        examples = map_tensors(lambda tensor: fake.from_tensor(tensor.detach()), arguments)
        with _Results(examples) as results:
            kept = vjp(function, examples, differentiable)
        size = results.alive()
        del kept
    return size


def free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a device, for this process; `None` if that is not known."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    try:
        available = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None
    try:
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = int((_GROUP / "memory.stat").read_text().partition("inactive_file ")[2].split()[0])
    except (OSError, IndexError, ValueError):  # no limit
        return available
    return min(available, limit - used + cached)
