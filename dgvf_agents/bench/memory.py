"""Peak memory of a piece of work, resident on the CPU or allocated on a CUDA device."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any, final

import torch
from torch.utils._pytree import tree_leaves

from dgvf_agents.execution.devices import CPU


@final
class Peak:
    """Peak memory since construction, above the memory in use then."""

    def __init__(self, device: torch.device = CPU) -> None:
        """
        Args:
            device: whose memory; on a CUDA device that of PyTorch's tensors.
        """
        self._device = device
        _trim()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._idle = torch.cuda.memory_allocated(device) / 2**20
        else:
            self._idle = resident_mib()
            Path("/proc/self/clear_refs").write_text("5")

    def mib(self) -> float:
        """In MiB, so far."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20 - self._idle
        return _status_mib("VmHWM") - self._idle


def tensors_mib(tree: Any) -> float:
    """Memory of the tensors in a tree."""
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**20


def resident_mib() -> float:
    """Resident memory of this process."""
    return _status_mib("VmRSS")


def _status_mib(name: str) -> float:
    """A line of /proc/self/status, in KiB there."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def _trim() -> None:
    """Return freed memory to the system: what the C library keeps would hide what is allocated next."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
