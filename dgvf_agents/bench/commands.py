"""The commands of `dgvf bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tyro

from dgvf_agents.bench.cold_start import ColdStartBenchmark
from dgvf_agents.bench.environments import EnvsBenchmark
from dgvf_agents.bench.harness import Benchmark
from dgvf_agents.bench.impala import ImpalaBenchmark
from dgvf_agents.bench.population import PopulationBenchmark
from dgvf_agents.bench.training import AgentsBenchmark, AtariBenchmark

KINDS: tuple[type[Benchmark], ...] = (
    *(EnvsBenchmark, AgentsBenchmark, PopulationBenchmark, ColdStartBenchmark, AtariBenchmark, ImpalaBenchmark),
)
"""All benchmarks."""


def _command(kind: type[Benchmark]) -> Callable[..., None]:
    def run(benchmark: Benchmark) -> None:
        benchmark.run()

    without_prefix: Any = tyro.conf.OmitArgPrefixes
    run.__annotations__["benchmark"] = without_prefix[kind]
    run.__doc__ = kind.__doc__
    return run


BENCHMARKS = {kind.name: _command(kind) for kind in KINDS}
"""Commands by name; the help is the docstring of the benchmark."""
