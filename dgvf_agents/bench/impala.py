"""Training speed of IMPALA with and without distributed actors, beside RLlib's, and of its learner alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import pandas as pd
import torch
from gymnasium.vector import VectorEnv

from dgvf_agents.bench.harness import (
    Benchmark,
    Rate,
    Row,
    Training,
    check_at_least,
    example_rates,
    median_rates,
    synchronize,
    table,
    updates_per_meta_update,
    warm_up,
)
from dgvf_agents.bench.training import POLICIES
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_agents.impala.actors import EnvById, EnvFactory
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_envs.atari.games import title_of
from dgvf_envs.atari.vector_env import make_atari_vec

_BFLOAT16 = "bfloat16"
AGENTS = {"none": "IMPALA", _BFLOAT16: "IMPALA, bfloat16 encoder", "discovered": "discovered GVFs"}
"""Agents with their names in tables."""
RLLIB: dict[str, tuple[str, dict[str, Any]]] = {
    "rllib-0": ("RLlib IMPALA, learner in the same process", {"learners": 0}),
    "rllib-1": ("RLlib IMPALA, learner in its own process", {"learners": 1}),
    "rllib-plain-0": ("RLlib IMPALA, network in plain PyTorch", {"learners": 0, "network": "plain"}),
}
"""RLlib's variants: their names in tables and their settings. The last is for games only."""


@final
@dataclass(frozen=True)
class ImpalaBenchmark(Benchmark):
    """Training speed of IMPALA with and without distributed actors, beside RLlib's."""

    name: ClassVar[str] = "impala"
    optional_packages: ClassVar[tuple[str, ...]] = ("ray",)
    worlds: tuple[str, ...] = (*POLICIES, "Pong")
    """Ids of gridworlds, and games."""
    actors: tuple[int, ...] = (0, 1, 2)
    """Numbers of actors; 0 acts and learns in one process. RLlib has as many as the last."""
    n_envs: int = 32
    """Environments of all actors together, and trajectories of a batch (paper: 32)."""
    n_steps: int = 20
    """T (paper: 20)."""
    unroll_length: int = 10
    """L of discovered GVFs (paper: 10); the speed is measured over whole unrolls."""
    compile: bool = True
    """Whether our updates are compiled."""
    mixed_precision: bool = False
    """Whether games are also played by IMPALA with `mixed_precision=True`; slow where bfloat16 is emulated."""
    device: str = "cpu"
    """Of the learner: `cpu`, `cuda`, or `auto` for CUDA if available."""
    threads: int = 1
    """PyTorch's threads where a learner is in this process; actors have one thread each."""
    measures: tuple[Literal["speed", "update"], ...] = ("speed", "update")
    """`speed` of training, and the learner's `update` alone, with one thread."""
    seconds: float = 10.0
    """Minimum duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "actors")
        check_at_least(self, 1, "n_envs", "n_steps", "unroll_length", "threads", "repetitions")
        check_device_name(self.device)
        for world in self.worlds:
            _title(world)
        for actors in self.actors:
            if actors and self.n_envs % actors:
                raise ValueError(f"actors must be divisors of n_envs = {self.n_envs}, got {actors!r}")

    def cases(self) -> list[Row]:
        sizes = {name: getattr(self, name) for name in ("n_envs", "n_steps", "unroll_length", "compile", "threads")}
        if self.device != "cpu":
            sizes["device"] = str(device_named(self.device))
        return [
            {"measure": measure, "world": _title(world), **sizes} for world in self.worlds for measure in self.measures
        ]

    def measure(self, case: Row) -> Row:
        if case["measure"] == "speed":
            torch.set_num_threads(self.threads)
            return speed(case, self)
        torch.set_num_threads(1)
        return {f"update_{agent}_ms": _update_ms(agent, case, self.seconds) for agent in _agents(case, self)}

    @staticmethod
    def tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
        updates = {f"update, {words}": f"update_{agent}_ms" for agent, words in AGENTS.items()}
        speeds = {"agent": "agent", "actors": "actors", "steps/s": "rate"}
        speeds |= {"to RLlib": "to_rllib", "time, to IMPALA": "time"}
        found = {
            "Environment steps per second during training": table(speed_rows(rows), {"environment": "world", **speeds}),
            "Milliseconds per update of the learner, one thread": table(
                [row for row in rows if row["measure"] == "update"], {"environment": "world", **updates}
            ),
        }
        return {title: made for title, made in found.items() if len(made)}


def speed(case: Row, settings: ImpalaBenchmark) -> Row:
    """Trained steps per second of all agents, by `AGENT-ACTORS` or RLlib's variant."""
    with_ray = find_spec("ray") is not None
    workers = max(1, settings.actors[-1])
    if with_ray:
        from dgvf_agents.impala.cluster import connect

        connect(None, 3 * workers)
    models = {
        f"{agent}-{actors}": _model(agent, case, actors)
        for agent, actors in itertools.product(_agents(case, settings), settings.actors)
        if with_ray or not actors
    }
    rates: dict[str, Rate] = {}
    for name, model in models.items():
        warm_up(model)
        rates[name] = Training(model, max(2 * updates_per_meta_update(model), 10)).rate
    sizes = {name: case[name] for name in ("world", "n_envs", "n_steps", "threads")}
    variants = {
        name: {**sizes, "actors": workers, **own}
        for name, (_, own) in RLLIB.items()
        if "network" not in own or case["world"] not in POLICIES
    }
    rates |= example_rates("rllib_impala.py", ("ray", "tree", "pyarrow"), variants)
    return {"steps_per_s": median_rates(rates, lambda rate: rate(settings.seconds), settings.repetitions)}


def _update_ms(agent: str, case: Row, seconds: float) -> float:
    """Milliseconds per update, meta-updates included."""
    model = _model(agent, case, 0)
    warm_up(model)
    updates, done, start = updates_per_meta_update(model), 0, time.perf_counter()
    while not done or time.perf_counter() - start < seconds:
        for _ in range(updates):
            model.train()  # on the last batch
        synchronize(model.device)
        done += updates
    return 1e3 * (time.perf_counter() - start) / done


def _model(agent: str, case: Row, actors: int) -> DGVFImpala:
    world = case["world"]
    settings = {name: case[name] for name in ("n_envs", "n_steps", "unroll_length", "compile")}
    settings |= {"actors": actors, "mixed_precision": agent == _BFLOAT16, "device": case.get("device", "cpu")}
    task = "none" if agent == _BFLOAT16 else agent
    policy = POLICIES.get(world, "ResNetPolicy")
    return DGVFImpala(policy, _environment(world), auxiliary_task=task, seed=0, **settings)


def _environment(world: str) -> EnvFactory:
    return EnvById(world) if world in POLICIES else partial(_games, world)


def _games(title: str, num_envs: int, seed: int | None) -> VectorEnv:
    return make_atari_vec(title, num_envs, threads=1)


def _agents(case: Row, settings: ImpalaBenchmark) -> list[str]:
    """The agents that are measured in an environment."""
    in_bfloat16 = settings.mixed_precision and case["world"] not in POLICIES
    return [agent for agent in AGENTS if agent != _BFLOAT16 or in_bfloat16]


def _title(world: str) -> str:
    """
    Raises:
        ValueError: there is no such environment.
    """
    return world if world in POLICIES else title_of(world)


def speed_rows(rows: Sequence[Row]) -> list[Row]:
    """A row for each agent and world, with its speed and its ratios to the faster of RLlib's variants and to IMPALA."""
    shown = []
    for row in rows:
        rates = row["steps_per_s"] if row["measure"] == "speed" else {}
        rllib = max((rate for name, rate in rates.items() if name in RLLIB), default=None)
        for name, rate in rates.items():
            agent, _, actors = name.partition("-")
            own = {"agent": RLLIB[name][0]} if name in RLLIB else {"agent": AGENTS[agent], "actors": int(actors)}
            to_rllib = None if rllib is None else rate / rllib
            plain = rates.get(f"none-{actors}") if agent == "discovered" else None
            time_ratio = None if plain is None else plain / rate
            shown.append({"world": row["world"], **own, "rate": rate, "to_rllib": to_rllib, "time": time_ratio})
    return shown
