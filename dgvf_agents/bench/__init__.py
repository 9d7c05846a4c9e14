"""Benchmarks: `dgvf bench ...`. Every number is a ratio or a rate measured side by side in one run."""

from dgvf_agents.bench.environments import EnvsBenchmark
from dgvf_agents.bench.harness import Benchmark
from dgvf_agents.bench.impala import ImpalaBenchmark
from dgvf_agents.bench.training import (
    AgentsBenchmark,
    AtariBenchmark,
    ColdStartBenchmark,
    FirstHourBenchmark,
    PopulationBenchmark,
    PPOBenchmark,
)

_ALL: tuple[type[Benchmark], ...] = (
    *(EnvsBenchmark, AgentsBenchmark, PPOBenchmark, PopulationBenchmark, ColdStartBenchmark),
    *(AtariBenchmark, ImpalaBenchmark, FirstHourBenchmark),
)

BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
"""By name; the help is the docstring of the benchmark."""
