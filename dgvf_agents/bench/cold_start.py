"""How long training takes to start: eager, compiled, and compiled in the background, with an empty cache.

Run as a module with a case as JSON, it measures that case and prints the result as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from stable_baselines3.common.callbacks import BaseCallback

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.bench.report import Row, make_table, measure_in_subprocess, seconds, write_report
from dgvf_agents.bench.training import PAPER, POLICIES
from dgvf_agents.execution.compile_cache import FOLDER

MODES: dict[str, Any] = {"False": False, "auto": "auto", "True": True, "auto, full cache": "auto"}
"""Values of `compile` by name."""


@dataclass(frozen=True)
class ColdStartBenchmark:
    """Measure the seconds from the call of `learn` to the first update, to compiled updates and to the end."""

    steps: tuple[int, ...] = (2_000, 20_000, 1_000_000)
    """Environment steps of a call of `learn`."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        if not self.steps or min(self.steps) < 1:
            raise ValueError(f"steps must be >= 1, got {self.steps!r}")


def run(benchmark: ColdStartBenchmark) -> list[Row]:
    """Measure, print the table, and write the report; returns its rows."""
    console, rows = Console(), []
    cases = [(mode, steps) for steps in benchmark.steps for mode in MODES]
    with tempfile.TemporaryDirectory() as folder:
        for number, (mode, steps) in enumerate(track(cases, "measuring", console=console, transient=True)):
            filled = f"auto-{steps}"  # by the case before
            cache = filled if mode.startswith("auto") else f"{number}"
            rows.append(measure(mode, steps, Path(folder) / cache))
    console.print(_table(rows))
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench start", benchmark, rows)
    return rows


def measure(mode: str, steps: int, cache: Path) -> Row:
    """A case in a process of its own, with a folder for compiled functions."""
    case = {"compile": mode, "steps": steps}
    folders = {FOLDER: str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    return measure_in_subprocess("dgvf_agents.bench.cold_start", case, **folders)


class _Watch(BaseCallback):
    """Notes when the first update is done, and the first that runs compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.start = time.perf_counter()
        self.first: float | None = None
        self.compiled: float | None = None

    def _on_rollout_start(self) -> None:
        model = self.model
        assert isinstance(model, DGVFA2C)
        updates, now = model.learner.updates, time.perf_counter() - self.start
        if updates >= 1 and self.first is None:
            self.first = now
        if updates >= 1 and self.compiled is None and model.compilation.active_at(updates - 1):
            self.compiled = now

    def _on_step(self) -> bool:
        return True


def _measured(case: Row) -> Row:
    torch.set_num_threads(1)
    world, settings = "PuddleWorld-v0", {**PAPER, "encoder_mode": "auxiliary", "compile": MODES[case["compile"]]}
    model = DGVFA2C(POLICIES[world], world, seed=0, device="cpu", **settings)
    watch = _Watch()
    model.learn(case["steps"], watch)
    total = time.perf_counter() - watch.start
    return {"first_update_s": watch.first, "compiled_s": watch.compiled, "total_s": total}


def _table(rows: list[Row]) -> Any:
    names = ("first_update_s", "compiled_s", "total_s")
    cells = [(row["compile"], f"{row['steps']:,}", *(seconds(row[name]) for name in names)) for row in rows]
    headings = ("compile", "steps", "first update", "first compiled update", "end")
    return make_table("Seconds from the call of learn, PuddleWorld-v0, discovered GVFs, one thread", headings, cells)


if __name__ == "__main__":
    print(json.dumps(_measured(json.loads(sys.argv[1]))))
