"""A compiled function in a folder: shared libraries for the forward and the backward pass."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from dgvf_agents.execution.memory import keep_freed_memory
from dgvf_agents.execution.passes import Interface, Passes, Run

FORWARD, BACKWARD, INTERFACE = "forward.so", "backward.so", "interface.pkl"


def load(folder: Path) -> Passes:
    """Load a compiled function, without PyTorch's compiler.

    Args:
        folder: as `building.build` writes it.
    """
    keep_freed_memory()
    interface: Interface = pickle.loads((folder / INTERFACE).read_bytes())
    backward = _runner(folder / BACKWARD) if (folder / BACKWARD).exists() else None
    return Passes(_runner(folder / FORWARD), backward, interface)


def _runner(path: Path) -> Run:
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run


def write_interface(folder: Path, interface: Interface) -> None:
    """Write what `load` reads besides the shared libraries."""
    (folder / INTERFACE).write_bytes(pickle.dumps(interface))
