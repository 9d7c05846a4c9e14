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


def check_random_states(states: Any) -> None:
    """Check that `set_random_states` can restore them.

    Raises:
        ValueError: it cannot; the message says which.
    """
    if not isinstance(states, dict) or set(states) != {"python", "numpy", "torch", "cuda"}:
        raise ValueError(f"random must have the states of python, numpy, torch and cuda, got {states!r:.80}")
    try:
        random.Random().setstate(states["python"])
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"random.python must be a state of Python's generator: {error}") from error
    check_numpy_state("random.numpy", states["numpy"])
    check_torch_state("random.torch", states["torch"])
    if not (isinstance(states["cuda"], list) and all(isinstance(state, torch.Tensor) for state in states["cuda"])):
        raise ValueError(f"random.cuda must be a list of tensors, got {states['cuda']!r:.80}")


def check_numpy_state(name: str, state: Any) -> None:
    """Check a state of NumPy's legacy generator, which reads past its end where the position is too large.

    Raises:
        ValueError: it is none.
    """
    try:
        kind, key, position, *_ = state
        if kind != "MT19937" or np.shape(key) != (624,) or not 0 <= position <= 624:
            raise ValueError(f"{kind!r:.20} with a key {np.shape(key)} at {position!r:.20}")
        np.random.RandomState().set_state(state)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"{name} must be a state of NumPy's MT19937: {error}") from error


def check_torch_state(name: str, state: Any) -> None:
    """Check a state of PyTorch's generator on the CPU.

    Raises:
        ValueError: it is none.
    """
    try:
        torch.Generator().set_state(state.cpu())
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} must be a state of PyTorch's generator: {error}") from error
