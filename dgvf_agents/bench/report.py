"""What a benchmark leaves behind: its rows with the settings, versions and hardware that they belong to."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


def write_report(path: Path, command: str, settings: Any, rows: list[dict[str, Any]]) -> None:
    """Write a JSON report, atomically.

    Args:
        path: the file; its folder is made.
        command: what a user types to get these rows.
        settings: the benchmark's dataclass.
        rows: the results.
    """
    report = {
        "command": command,
        "settings": {k: v for k, v in dataclasses.asdict(settings).items() if k != "output"},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w") as file:
        json.dump(report, file, indent=1, default=str)
        file.write("\n")
    os.chmod(name, 0o644)
    os.replace(name, path)


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
