"""Populations beside one agent alone and beside JAX: training speed of all members together, and memory."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, final

import torch

from dgvf_agents.bench.harness import (
    Benchmark,
    Peak,
    Rate,
    Row,
    Training,
    check_at_least,
    jax_rates,
    median_rates,
    resident_mib,
    synchronize,
    updates_per_meta_update,
    warm_up,
    with_ratios,
)
from dgvf_agents.bench.training import POLICIES, check_worlds, grid_agent
from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.population.population import Population

TITLE = "Environment steps per second of all members together, discovered GVFs"


@final
@dataclass(frozen=True)
class PopulationBenchmark(Benchmark):
    """Training speed and memory of populations with discovered questions, beside one agent alone."""

    name: ClassVar[str] = "population"
    optional_packages: ClassVar[tuple[str, ...]] = ("jax", "jaxlib")
    members: tuple[int, ...] = (2, 4, 8)
    """Numbers of members."""
    threads: tuple[int, ...] = (1,)
    """Numbers of PyTorch threads."""
    device: str = "cpu"
    """Of networks and updates: `cpu`, `cuda`, or `auto` for CUDA if available. Environments are stepped there too."""
    seconds: float = 5.0
    """Duration of each repetition."""
    repetitions: int = 5
    """Repetitions; the median counts. Population and single agent take turns."""
    worlds: tuple[str, ...] = tuple(POLICIES)
    """Ids of the environments."""
    jax: bool = True
    """Whether JAX is measured too, where it is installed."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions", "members", "threads")
        check_device_name(self.device)
        check_worlds(self.worlds)

    def cases(self) -> list[Row]:
        return [
            {"table": TITLE, "environment": world, "threads": threads, "members": members}
            for world, threads, members in itertools.product(self.worlds, self.threads, self.members)
        ]

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(case["threads"])
        alone = grid_agent("discovered", case["environment"], device=self.device)
        warm_up(alone)
        on_gpu = alone.device.type == "cuda"
        before, peak = resident_mib(), Peak(alone.device)
        population = _started(case, self.device)
        rates: dict[str, Rate] = {"alone": Training(alone).rate, "population": partial(_rate, population)}
        _rate(population, self.seconds)
        mib = peak.mib() if on_gpu else resident_mib() - before
        if self.jax:
            rates |= jax_rates(case["environment"], case["members"], case["threads"], alone.device.type)
        found = median_rates(rates, lambda rate: rate(self.seconds), self.repetitions)
        ratios = {"ratio": ("population", "alone"), "population / JAX": ("population", "JAX")}
        return [with_ratios({"MiB": mib, **found}, ratios)]


def _rate(population: Population, seconds: float) -> float:
    """Environment steps per second of all members together, over whole unrolls."""
    first, count = population.members[0], len(population.members)
    before, start = first.num_timesteps, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        _train(population, updates_per_meta_update(first))
        synchronize(first.device)
    return count * (first.num_timesteps - before) / elapsed


def _started(case: Row, device: str) -> Population:
    """A population after its first meta-updates, with compiled functions."""
    members = [grid_agent("discovered", case["environment"], seed=p, device=device) for p in range(case["members"])]
    for member in members:
        member._setup_learn(1 << 40)
    population = Population(members)
    _train(population, 2 * updates_per_meta_update(members[0]) + 1)
    return population


def _train(population: Population, updates: int) -> None:
    for _ in range(updates):
        population.collect()
        population.update()
