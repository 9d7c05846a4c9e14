"""What a benchmark leaves behind: its rows with the settings, versions and hardware that they belong to."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dgvf_agents.execution.devices import device_named
from dgvf_agents.storage.atomic import replacing

_PACKAGES = ("ale-py", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


def write_report(path: Path, command: str, settings: Any, rows: list[dict[str, Any]]) -> None:
    """Write a JSON report, atomically.

    Args:
        path: the file; its folder is made.
        command: what a user types to get these rows, without its options.
        settings: the benchmark's dataclass.
        rows: the results.
    """
    report = {
        "command": " ".join([command, *_options(settings)]),
        "settings": {k: v for k, v in dataclasses.asdict(settings).items() if k != "output"},
        "versions": versions(_PACKAGES),
        "hardware": {**hardware(), **_accelerator(settings)},
        "rows": rows,
    }
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(report, indent=1, default=str) + "\n")


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def hardware() -> dict[str, Any]:
    """Processor and number of cores."""
    return {"processor": _processor(), "cores": os.cpu_count()}


def _options(settings: Any) -> list[str]:
    """The options that a benchmark's settings come from: those that are not what they are when left out."""
    options = []
    for setting in dataclasses.fields(settings):
        value = getattr(settings, setting.name)
        if setting.name != "output" and value != setting.default:
            values = value if isinstance(value, tuple) else (value,)
            options += [f"--{setting.name.replace('_', '-')}", *map(str, values)]
    return options


def _accelerator(settings: Any) -> dict[str, str]:
    """The name of the CUDA device that was measured on, if it was one."""
    device = device_named(getattr(settings, "device", "cpu"))
    return {"accelerator": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}


def _processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
