"""What a benchmark writes: its rows with their settings, versions and hardware."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from dgvf_agents.execution.devices import device_named
from dgvf_agents.storage.atomic import replacing

Row = dict[str, Any]
"""A case of a benchmark, or its result."""

_PACKAGES = ("ale-py", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


def write_report(path: Path, command: str, settings: Any, rows: list[Row]) -> None:
    """Write a JSON report, atomically.

    Args:
        path: the file; its folder is made.
        command: that makes these rows, without its options.
        settings: the benchmark's dataclass.
        rows: the results.
    """
    recorded = {name: value for name, value in dataclasses.asdict(settings).items() if name != "output"}
    device = device_named(getattr(settings, "device", "cpu"))
    accelerator = {"accelerator": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    report = {
        "command": " ".join([command, *options(settings, recorded)]),
        "settings": recorded,
        "versions": versions((*_PACKAGES, *_installed(getattr(settings, "optional_packages", ())))),
        "hardware": {**hardware(), **accelerator},
        "rows": rows,
    }
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(report, indent=1, default=str) + "\n")


def options(settings: Any, names: Iterable[str]) -> list[str]:
    """The command-line options of these fields of a dataclass, those that differ from their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    words = []
    for name in names:
        value, option = getattr(settings, name), name.replace("_", "-")
        if value == defaults[name]:
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _installed(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is not None]


def hardware() -> dict[str, Any]:
    """Processor, as far as the system tells, and number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"processor": next(names, platform.processor() or platform.machine()), "cores": os.cpu_count()}
