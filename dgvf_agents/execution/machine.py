"""What a process runs on: versions of packages, processor and accelerator."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


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
