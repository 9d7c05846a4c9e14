"""How long training takes to start: eager, compiled, and compiled in the background, with an empty cache."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from stable_baselines3.common.callbacks import BaseCallback

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.bench.harness import Benchmark, Row, check_at_least
from dgvf_agents.bench.training import PAPER, POLICIES
from dgvf_agents.execution.cache import FOLDER

TITLE = "Seconds from the call of learn, PuddleWorld-v0, discovered GVFs, one thread"
MODES: dict[str, Any] = {"False": False, "auto": "auto", "True": True, "auto, full cache": "auto"}
"""Values of `compile` by name."""


@final
@dataclass(frozen=True)
class ColdStartBenchmark(Benchmark):
    """Seconds until training starts, runs compiled and ends, with an empty cache of compiled functions."""

    name: ClassVar[str] = "start"
    steps: tuple[int, ...] = (2_000, 20_000, 1_000_000)
    """Environment steps of a call of `learn`."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "steps")

    def cases(self) -> list[Row]:
        return [{"table": TITLE, "compile": mode, "steps": steps} for steps in self.steps for mode in MODES]

    def run(self) -> list[Row]:
        before = os.environ.get(FOLDER)
        with tempfile.TemporaryDirectory() as folder:
            os.environ[FOLDER] = folder  # which the cases' processes inherit
            try:
                return super().run()
            finally:
                os.environ.pop(FOLDER) if before is None else os.environ.update({FOLDER: before})

    def measure(self, case: Row) -> list[Row]:
        cache = Path(os.environ[FOLDER]) / cache_name(case)
        os.environ |= {FOLDER: str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
        return [measure_start(case)]


def cache_name(case: Row) -> str:
    """The folder of a case's compiled functions: empty, or filled by the case before."""
    return f"{case['compile'].partition(',')[0]}-{case['steps']}"


def measure_start(case: Row) -> Row:
    """The times of a call of `learn`."""
    torch.set_num_threads(1)
    world, settings = "PuddleWorld-v0", {**PAPER, "encoder_mode": "auxiliary", "compile": MODES[case["compile"]]}
    model = DGVFA2C(POLICIES[world], world, seed=0, device="cpu", **settings)
    watch = _Watch()
    model.learn(case["steps"], watch)
    return {"first update": watch.first, "first compiled update": watch.compiled, "end": watch.seconds()}


@final
class _Watch(BaseCallback):
    """Notes when the first update is done, and the first that runs compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.first: float | None = None
        self.compiled: float | None = None
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def _on_rollout_start(self) -> None:
        assert isinstance(self.model, DGVFA2C)
        if (updates := self.model.learner.updates) >= 1:
            self.first = self.first or self.seconds()
            if self.compiled is None and self.model.compilation.active_at(updates - 1):
                self.compiled = self.seconds()

    def _on_step(self) -> bool:
        return True
