"""States of the random number generators of Python, NumPy and PyTorch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def get_random_states(device: torch.device) -> dict[str, Any]:
    """The states, those of CUDA devices too if `device` is one."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002, that of other people's code
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
    }


def set_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore what `get_random_states` returned; states of CUDA devices only where there are as many."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    if device.type == "cuda" and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
