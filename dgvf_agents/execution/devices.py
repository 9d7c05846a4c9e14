"""Where networks lie and updates run, by name; and how arrays get there."""

from __future__ import annotations

import re
import warnings
from typing import final

import numpy as np
import torch
from torch import Tensor

CPU = torch.device("cpu")


@final
class MissingDeviceError(ValueError):
    """A CUDA device that is not here."""


_NAMES = re.compile(r"auto|cpu|cuda(:\d+)?")


def check_device_name(device: str) -> None:
    """
    Raises:
        ValueError: it is no name of a device that a configuration may hold; whether it is here plays no part.
    """
    if not isinstance(device, str) or not _NAMES.fullmatch(device):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:' and a number, got {device!r}")


def device_named(device: torch.device | str) -> torch.device:
    """The device of that name; of `"auto"` the first CUDA device, or the CPU where PyTorch finds none.

    Raises:
        ValueError: it is no name of a device.
        MissingDeviceError: PyTorch does not find it here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be the name of one, as 'auto', 'cpu' or 'cuda', got {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= _cuda_devices():
        raise MissingDeviceError(
            f"device must be one that PyTorch finds here, got {str(device)!r}, and it finds {_cuda_devices()} CUDA "
            "devices: 'cpu' is always there, 'auto' takes the CPU where there is no other"
        )
    return found


def evaluation_device(asked: str | None, trained_on: str) -> torch.device:
    """Where to look at what was trained: the device asked for, or the one trained on, or the CPU where it is not here.

    Raises:
        ValueError: the device asked for is no name of one.
        MissingDeviceError: PyTorch does not find it here.
    """
    if asked is not None:
        return device_named(asked)
    try:
        return device_named(trained_on)
    except MissingDeviceError:
        return CPU


def device_of_model(device: torch.device | str) -> torch.device:
    """The device of that name, the CPU where it is not here, as in Stable-Baselines3: scripts run on any machine.

    A warning says so; otherwise it would only show in training that takes a hundred times as long.

    Raises:
        ValueError: it is no name of a device.
    """
    try:
        return device_named(device)
    except MissingDeviceError as error:
        warnings.warn(f"{error}; the model is on the CPU, as Stable-Baselines3's would be", UserWarning, stacklevel=3)
        return CPU


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """An array as a tensor on the device, of its own dtype.

    On the CPU it shares the array's memory. To a CUDA device it goes through page-locked memory, and nobody waits for
    it: what the device is given to do afterwards finds it there.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def random_devices(device: torch.device) -> list[torch.device]:
    """What `torch.random.fork_rng` is to keep besides the CPU's generator."""
    return [device] if device.type == "cuda" else []


def get_random_state(device: torch.device) -> list[Tensor]:
    """States of PyTorch's random number generators that computations on `device` draw from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random_state(device: torch.device, states: list[Tensor]) -> None:
    """Restore what `get_random_state` returned; on the CPU, states of other devices are ignored."""
    for state in states[:1]:
        torch.set_rng_state(state.cpu())
    for state in states[1:] if device.type == "cuda" else ():
        torch.cuda.set_rng_state(state.cpu(), device)
