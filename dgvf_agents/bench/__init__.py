"""Benchmarks: `dgvf bench ...`. Every number is a ratio or a rate measured side by side in one run."""

from dgvf_agents.bench import environments, impala, training  # noqa: F401, defines them
from dgvf_agents.bench.harness import Benchmark

BENCHMARKS = {benchmark.name: benchmark for benchmark in Benchmark.__subclasses__()}
"""By name; the help is the docstring of the benchmark."""
