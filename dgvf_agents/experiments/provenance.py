"""Which versions and which machine a result comes from."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from dgvf_agents.bench.report import processor

_PACKAGES = ("dgvf", "gymnasium", "numpy", "scipy", "stable-baselines3", "torch")


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide results."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def hardware() -> dict[str, Any]:
    """Processor and number of cores."""
    return {"processor": processor(), "cores": os.cpu_count()}
