"""What a benchmark prints and writes: tables, and rows with their settings, versions and hardware."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from dgvf_agents.execution.devices import device_named
from dgvf_agents.storage.atomic import replacing

Row = dict[str, Any]
"""A result of a benchmark."""

_PACKAGES = ("ale-py", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


def write_report(path: Path, command: str, settings: Any, rows: list[Row]) -> None:
    """Write a JSON report, atomically.

    Args:
        path: the file; its folder is made.
        command: that makes these rows, without its options.
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


def measure_in_subprocess(module: str, case: Row, **environment: str) -> Row:
    """Run a module with a case as JSON; returns the case and the JSON object in the last line of output.

    Every case has its own process, so that none pays for the memory of another.

    Args:
        module: name of the module.
        case: the case.
        environment: additional environment variables.

    Raises:
        RuntimeError: it failed; the message has its errors.
    """
    command = [sys.executable, "-m", module, json.dumps(case)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if finished.returncode:
        raise RuntimeError(f"case {case} failed:\n{finished.stderr[-2000:]}")
    return {**case, **json.loads(finished.stdout.splitlines()[-1])}


def seconds(value: float | None) -> str:
    """A duration in a table."""
    return "–" if value is None else f"{value:.1f}"


def make_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], names: bool = True) -> Table:
    """A table to print, with numbers aligned right; `names`: whether the first column has names, aligned left."""
    table = Table(title=title)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if names and index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def check_at_least(settings: Any, least: int, *names: str) -> None:
    """Check fields of a benchmark's dataclass, integers or tuples of integers, and that its `seconds` are > 0."""
    if settings.seconds <= 0:
        raise ValueError(f"seconds must be > 0, got {settings.seconds!r}")
    for name in names:
        value = getattr(settings, name)
        if any(number < least for number in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{name} must be >= {least}, got {value!r}")


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def hardware() -> dict[str, Any]:
    """Processor and number of cores."""
    return {"processor": _processor(), "cores": os.cpu_count()}


def _options(settings: Any) -> list[str]:
    """The command-line options of a benchmark's settings: those that differ from their defaults."""
    options = []
    for setting in dataclasses.fields(settings):
        value = getattr(settings, setting.name)
        if setting.name != "output" and value != setting.default:
            values = value if isinstance(value, tuple) else (value,)
            options += [f"--{setting.name.replace('_', '-')}", *map(str, values)]
    return options


def _accelerator(settings: Any) -> dict[str, str]:
    """The name of the CUDA device, if one was used."""
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
