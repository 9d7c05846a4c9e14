"""What a newcomer waits for: `dgvf bench first-hour`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from dgvf_agents.bench.harness import Benchmark, Row

_TRAIN = "dgvf train collect-objects-small discovered"
_COMMANDS = {
    "import dgvf_envs": ["-c", "import dgvf_envs"],
    "from dgvf_agents import DGVFA2C": ["-c", "from dgvf_agents import DGVFA2C"],
    **{
        shown: ["-m", "dgvf_agents.cli", *shown.split()[1:]]
        for shown in (
            *("dgvf --help", f"{_TRAIN} --help", "dgvf evaluate demo", "dgvf atlas demo"),
            *("dgvf atlas demo/collect-objects-small --kinds 1 --checkpoints 1", _TRAIN),
        )
    },
}


@final
@dataclass(frozen=True, kw_only=True)
class FirstHourBenchmark(Benchmark):
    """Seconds until the commands of the first hour are done, in processes of their own."""

    name: ClassVar[str] = "first-hour"
    isolated: ClassVar[bool] = False
    repetitions: int = 3
    """Repetitions; the median counts. Training is measured once."""
    training: bool = True
    """Whether to measure training, which takes ten minutes."""

    def cases(self) -> list[Row]:
        shown = [one for one in _COMMANDS if self.training or one != _TRAIN]
        return [{"table": "Seconds until the end, median", "command": one} for one in shown]

    def measure(self, case: Row) -> list[Row]:
        repetitions = 1 if case["command"] == _TRAIN else self.repetitions
        return [{"seconds": statistics.median(_seconds(_COMMANDS[case["command"]]) for _ in range(repetitions))}]


def _seconds(arguments: list[str]) -> float:
    """Of a process of Python in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=Path(folder), check=True, capture_output=True)
        return time.perf_counter() - start
