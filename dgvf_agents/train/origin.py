"""Where a run comes from: the commit of the code, the versions of packages, and the machine."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

from dgvf_agents.execution.devices import device_named
from dgvf_agents.execution.machine import hardware, versions
from dgvf_agents.storage.atomic import replacing
from dgvf_agents.train.folder import RunFolder

_PACKAGES = ("dgvf", "gymnasium", "numpy", "scipy", "stable-baselines3", "torch")
_CODE = ("dgvf_agents", "dgvf_envs")


@final
@dataclass(frozen=True)
class Origin:
    """What a process trained a run with."""

    steps: int
    """Environment steps at which the process began."""
    code: str | None
    """Commit of the code, with `+changes` if files differ from it; `None` if the code is not in its repository."""
    versions: dict[str, str]
    """Of Python and packages."""
    hardware: dict[str, Any]
    """Processor, number of cores, and accelerator if one is used."""

    @classmethod
    def here(cls, device: str, steps: int = 0) -> Origin:
        """That of this process.

        Args:
            device: name of the device.
            steps: environment steps at which it begins.
        """
        return cls(steps, code_version(), versions(_PACKAGES), hardware(device_named(device)))


def record_origin(folder: RunFolder, device: str, steps: int) -> None:
    """Add the origin of this process to those in a run folder, atomically; those after `steps` are removed.

    Args:
        folder: the run folder.
        device: name of the device.
        steps: environment steps that the run continues from.
    """
    kept = [origin for origin in read_origins(folder) if origin.steps < steps]
    with replacing(folder.origin_file) as unfinished:
        origins = [dataclasses.asdict(origin) for origin in (*kept, Origin.here(device, steps))]
        unfinished.write_text(json.dumps(origins, indent=1) + "\n")


def read_origins(folder: RunFolder) -> list[Origin]:
    """The origins of all processes that trained a run, in their order; none in runs that did not record it."""
    if not folder.origin_file.is_file():
        return []
    return [Origin(**origin) for origin in json.loads(folder.origin_file.read_text())]


@cache
def code_version() -> str | None:
    """The commit of the code; see `Origin.code`."""
    root = Path(__file__).resolve().parents[2]
    if _git(root, "ls-files", "--error-unmatch", *_CODE) is None:  # installed, maybe inside another repository
        return None
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    return None if commit is None else commit + ("+changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a command; `None` if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
