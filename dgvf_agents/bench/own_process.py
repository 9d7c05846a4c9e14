"""Cases that are measured in a process of their own: what one leaves in memory, another is not to pay for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def measured_apart(module: str, case: dict[str, Any]) -> dict[str, Any]:
    """What a module, run with the case as JSON, prints as JSON in its last line; and the case.

    Raises:
        RuntimeError: it failed; the message says how.
    """
    command = [sys.executable, "-m", module, json.dumps(case)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"case {case} failed:\n{finished.stderr[-2000:]}")
    return {**case, **json.loads(finished.stdout.splitlines()[-1])}
