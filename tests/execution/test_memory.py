"""Freed memory stays in the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from dgvf_agents.execution.devices import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        tensors = [torch.ones(10_000_000) for _ in range(2)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(2)))  # the system may reclaim pages meanwhile
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_large_tensors_reuse_their_pages() -> None:
    keep, leave = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "leave")
    )
    assert keep < leave / 10
