"""Peak memory of a piece of work, resident on the CPU or allocated on a CUDA device."""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path
from typing import final

import torch
from torch.utils._pytree import tree_leaves

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import learn_updates, warm_up
from dgvf_agents.execution.devices import CPU


def growth_of(model: DGVFA2C) -> Row:
    """Time per update of a new model over two meta-updates, and peak memory above that of the warm, idle model."""
    updates = warm_up(model)
    model.learner.restart_unroll()
    peak, start = Peak(model.device), time.perf_counter()
    learn_updates(model, updates)
    elapsed, peak_mib = time.perf_counter() - start, peak.mib()
    copy = tree_leaves([model.learner.theta, model.learner.statistics, model._rollout])
    copy_mib = sum(leaf.nbytes for leaf in copy if isinstance(leaf, torch.Tensor)) / 2**20
    return {
        "ms_per_update": 1e3 * elapsed / updates,
        "peak_mib": peak_mib,
        "copies_mib": model.unroll_length * copy_mib,
    }


@final
class Peak:
    """Peak memory since construction, above the memory in use then."""

    def __init__(self, device: torch.device = CPU) -> None:
        """
        Args:
            device: whose memory; on a CUDA device that of PyTorch's tensors.
        """
        self._device = device
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps would hide what is allocated next
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
        return resident_mib("VmHWM") - self._idle


def resident_mib(name: str = "VmRSS") -> float:
    """Resident memory of this process; with `"VmHWM"`, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024  # from KiB
