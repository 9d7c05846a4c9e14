"""Training speed of IMPALA with and without distributed actors, beside RLlib's, and the parts that it is made of."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.bench.harness import Benchmark, Table, check_at_least, ratio
from dgvf_agents.bench.reference import rllib_rates
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import Rate, Training, median_rates, synchronize, updates_per_meta_update, warm_up
from dgvf_agents.bench.training import POLICIES
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_agents.impala.actors import EnvById, EnvFactory, EnvironmentActor, wrapped
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.impala.transport import batch_of, size_of
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
    measures: tuple[Literal["speed", "parts"], ...] = ("speed", "parts")
    """`speed` of training, and what a batch costs in its `parts` one by one, the learner's update among them."""
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
        torch.set_num_threads(self.threads if case["measure"] == "speed" else 1)
        return speed(case, self) if case["measure"] == "speed" else parts(case, self)

    @staticmethod
    def tables(rows: Sequence[Row]) -> Iterator[Table]:
        yield Table("Environment steps per second during training", _SPEED, speed_rows(rows))
        parts = [row for row in rows if row["measure"] == "parts"]
        yield Table("Milliseconds per batch, part by part, one thread", _PARTS, parts)


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
    rates |= rllib_rates({
        name: {**sizes, "actors": workers, **own}
        for name, (_, own) in RLLIB.items()
        if "network" not in own or case["world"] not in POLICIES
    })  # fmt: skip
    return {"steps_per_s": median_rates(rates, lambda rate: rate(settings.seconds), settings.repetitions)}


def parts(case: Row, settings: ImpalaBenchmark) -> Row:
    """Milliseconds that a batch takes in each part, measured one by one in one process, and bytes that travel."""
    model = _model("none", case, 1)
    actor, parameters = EnvironmentActor(model._actor_spec(), 0, 0), model._parameters()
    environment = _stepping_ms(wrapped(_environment(case["world"]), model.n_envs, 0), model.n_steps, settings.seconds)
    batch_of([_round_trip(actor.rollout(parameters))], model.device, {}, model.task.reads_features)
    acting, transport, repetitions = 0.0, 0.0, 0
    while acting < settings.seconds or repetitions < 2:
        start = time.perf_counter()
        rollout = actor.rollout(parameters)
        middle = time.perf_counter()
        batch = batch_of([_round_trip(rollout)], model.device, {}, model.task.reads_features)
        synchronize(model.device)
        acting, transport = acting + middle - start, transport + time.perf_counter() - middle
        repetitions += 1
    return {
        "environment_ms": environment,
        "acting_ms": 1e3 * acting / repetitions - environment,
        "transport_ms": 1e3 * transport / repetitions,
        **{f"update_{agent}_ms": _update_ms(agent, case, batch, settings.seconds) for agent in _agents(case, settings)},
        "rollout_bytes": size_of(rollout),
        "parameter_bytes": parameters.theta.nbytes,
    }


def _stepping_ms(env: VecEnv, steps: int, seconds: float) -> float:
    """Milliseconds of so many steps with random actions."""
    actions, repetitions, start = np.stack([env.action_space.sample() for _ in range(env.num_envs)]), 0, 0.0
    env.reset()
    while repetitions < 2 or time.perf_counter() - start < seconds:
        start = start or time.perf_counter()
        for _ in range(steps):
            env.step(actions)
        repetitions += 1
    return 1e3 * (time.perf_counter() - start) / repetitions


def _round_trip(value: Any) -> Any:
    """A value after a round trip through Ray's object store, if Ray is installed."""
    if find_spec("ray") is None:
        return value
    from dgvf_agents.impala.cluster import connect

    ray = connect(None, 1)
    return ray.get(ray.put(value))


def _update_ms(agent: str, case: Row, batch: Any, seconds: float) -> float:
    """Milliseconds per update on one batch, meta-updates included."""
    model = _model(agent, case, 0)
    model._setup_learn(1 << 40)
    updates, done, start = updates_per_meta_update(model), -1, 0.0
    while done < 1 or time.perf_counter() - start < seconds:
        for _ in range(updates + (done < 0)):  # the first time one more, with which all is compiled
            model._rollout = batch
            model.train()
        synchronize(model.device)
        done += 1
        if done == 0:
            start = time.perf_counter()
    return 1e3 * (time.perf_counter() - start) / (done * updates)


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
            plain = ratio(rates, f"none-{actors}", name) if agent == "discovered" else None
            shown.append({"world": row["world"], **own, "rate": rate, "to_rllib": to_rllib, "time": plain})
    return shown


_SPEED = (
    *(("environment", "{world}"), ("agent", "{agent}"), ("actors", "{actors:d}"), ("steps/s", "{rate:,.0f}")),
    *(("to RLlib", "{to_rllib:.2f}"), ("time, to IMPALA", "{time:.2f}")),
)
_PARTS = (
    ("world", "{world}"),
    *((name, f"{{{name}_ms:.1f}}") for name in ("environment", "acting", "transport")),
    *((f"update, {words}", f"{{update_{agent}_ms:.1f}}") for agent, words in AGENTS.items()),
    ("rollout, bytes", "{rollout_bytes:,}"),
)
