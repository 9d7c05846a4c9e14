"""The machine: devices by name, uploads to them, their random number generators, memory, and what to record of it."""

from __future__ import annotations

import ctypes
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import check_device_name

CPU = torch.device("cpu")


@final
class MissingDeviceError(ValueError):
    """PyTorch does not find the CUDA device."""


def device_named(device: torch.device | str) -> torch.device:
    """The device of that name. `"auto"` is the first CUDA device, or the CPU if PyTorch finds none.

    Raises:
        ValueError: `device` is not a valid name.
        MissingDeviceError: PyTorch does not find the device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be a device name such as 'auto', 'cpu' or 'cuda', got {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= _cuda_devices():
        raise MissingDeviceError(
            f"device must be available, got {str(device)!r}, and PyTorch finds {_cuda_devices()} CUDA devices: "
            "'cpu' is always available, 'auto' uses the CPU if there is no CUDA device"
        )
    return found


def evaluation_device(requested: str | None, trained_on: str) -> torch.device:
    """The device to evaluate a trained agent on.

    Args:
        requested: the device to use; `None`: the one that the agent was trained on, or the CPU if that is unavailable.
        trained_on: device that the agent was trained on.

    Raises:
        ValueError: `requested` is not a valid name.
        MissingDeviceError: PyTorch does not find the requested device.
    """
    if requested is not None:
        check_device_name(requested)
        return device_named(requested)
    try:
        return device_named(trained_on)
    except MissingDeviceError:
        return CPU


def device_of_model(device: torch.device | str) -> torch.device:
    """The device of that name, or the CPU with a warning if it is unavailable.

    Stable-Baselines3 falls back in the same way, so that scripts run on any machine, but silently: only slow training
    shows it.

    Raises:
        ValueError: `device` is not a valid name.
    """
    try:
        return device_named(device)
    except MissingDeviceError as error:
        warnings.warn(f"{error}; the model uses the CPU, as in Stable-Baselines3", UserWarning, stacklevel=3)
        return CPU


def warn_of_slow_bfloat16(device: torch.device) -> None:
    """Warn if the device is an x86 CPU without AVX-512, on which products of bfloat16 take tens of times longer."""
    capability = torch.backends.cpu.get_cpu_capability()
    if device.type == "cpu" and capability in ("DEFAULT", "AVX2") and platform.machine() in ("x86_64", "AMD64"):
        warnings.warn(
            f"mixed_precision=True is much slower than False on this CPU, which has no AVX-512 (but {capability})",
            UserWarning,
            stacklevel=3,
        )


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def image_layout(observations: Tensor) -> Tensor:
    """The observations `[B, *obs]` in the layout that convolutions on their device take."""
    if observations.device.type == "cpu" and observations.dtype == torch.uint8 and observations.dim() == 4:  # images
        return observations.contiguous(memory_format=torch.channels_last)  # the CPU's fast convolution layout
    return observations


def stack_steps(observations: Iterable[Tensor]) -> Tensor:
    """Observations `[B, *obs]` of T steps as `[T, B, *obs]`, in the layout of `image_layout`."""
    return torch.stack([image_layout(tensor) for tensor in observations])


_WIDER = {np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.float64}


def tensor_dtype(space: gym.Space) -> np.dtype[Any]:
    """The dtype of tensors of observations: the space's, or a wider one where PyTorch has few operations on it."""
    dtype = np.dtype(space.dtype)
    return np.dtype(_WIDER.get(dtype, dtype))


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """An array as a tensor of the same dtype on the device.

    On the CPU the tensor shares the array's memory. Transfers to a CUDA device are asynchronous, through pinned memory;
    operations queued afterwards see the data.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def random_devices(device: torch.device) -> list[torch.device]:
    """The `devices` argument of `torch.random.fork_rng`; the CPU's generator is always included."""
    return [device] if device.type == "cuda" else []


def get_random_state(device: torch.device) -> list[Tensor]:
    """States of the random number generators that computations on `device` use: the CPU's, then the CUDA device's."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random_state(device: torch.device, states: list[Tensor]) -> None:
    """Restore the states returned by `get_random_state`. A CPU ignores the states of CUDA devices."""
    for state in states[:1]:
        torch.set_rng_state(state.cpu())
    for state in states[1:] if device.type == "cuda" else ():
        torch.cuda.set_rng_state(state.cpu(), device)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def hardware(device: torch.device) -> dict[str, Any]:
    """Processor, as far as the system tells, number of cores, and accelerator if `device` is one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, platform.processor() or platform.machine())
    accelerator = {"accelerator": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {"processor": processor, "cores": os.cpu_count(), **accelerator}


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = 1 << 30


@cache
def keep_freed_memory() -> None:
    """Let the C library reuse freed memory instead of returning it to the operating system; does nothing on others.

    By default, glibc maps and unmaps the memory of large tensors, so every update of a wide network asks for its pages
    anew.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return
    for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        mallopt(parameter, _LARGEST)
