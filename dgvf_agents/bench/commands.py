"""The commands of `dgvf bench`."""

from __future__ import annotations

from collections.abc import Callable

import tyro
from rich.console import Console

from dgvf_agents.bench.cold_start import ColdStartBenchmark
from dgvf_agents.bench.environments import EnvsBenchmark
from dgvf_agents.bench.impala import ImpalaBenchmark
from dgvf_agents.bench.population import PopulationBenchmark
from dgvf_agents.bench.training import AgentsBenchmark, AtariBenchmark
from dgvf_agents.train.config import atari_config


def _envs(benchmark: tyro.conf.OmitArgPrefixes[EnvsBenchmark]) -> None:
    """Environment steps per second: our vector environments beside SyncVectorEnv over our scalar ones."""
    benchmark.run()


def _agents(benchmark: tyro.conf.OmitArgPrefixes[AgentsBenchmark]) -> None:
    """Training speed and memory: our agents beside Stable-Baselines3's A2C."""
    benchmark.run()


def _population(benchmark: tyro.conf.OmitArgPrefixes[PopulationBenchmark]) -> None:
    """Populations beside one agent alone."""
    benchmark.run()


def _start(benchmark: tyro.conf.OmitArgPrefixes[ColdStartBenchmark]) -> None:
    """Seconds until training starts, runs compiled and ends, with an empty cache of compiled functions."""
    benchmark.run()


def _atari(benchmark: tyro.conf.OmitArgPrefixes[AtariBenchmark]) -> None:
    """Training speed and memory on a game: our agents beside Stable-Baselines3's A2C, on the CPU or on CUDA."""
    config = atari_config(benchmark.game, "a2c")
    assert config.atari is not None
    Console().print(f"{config.env}: {config.atari.describe()}", markup=False, highlight=False)
    benchmark.run()


def _impala(benchmark: tyro.conf.OmitArgPrefixes[ImpalaBenchmark]) -> None:
    """Training speed of IMPALA with and without distributed actors, beside RLlib's."""
    benchmark.run()


BENCHMARKS: dict[str, Callable[..., None]] = {
    "envs": _envs,
    "agents": _agents,
    "population": _population,
    "start": _start,
    "atari": _atari,
    "impala": _impala,
}
"""By name."""
