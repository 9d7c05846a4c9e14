"""Training speed of IMPALA with and without distributed actors, beside RLlib's, and the parts that it is made of."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv
from rich.console import RenderableType
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor, ResNetExtractor
from dgvf_agents.bench.harness import Benchmark, check_at_least, make_table
from dgvf_agents.bench.operations import OperationCounter
from dgvf_agents.bench.reference import Rate
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import (
    Stopwatch,
    learn_updates,
    median_rates,
    steady_rate,
    synchronize,
    updates_per_meta_update,
)
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_agents.impala.actor_process import EnvironmentActor
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.impala.environments import EnvById, EnvFactory
from dgvf_agents.impala.transport import batch_of, size_of
from dgvf_envs.atari.games import title_of
from dgvf_envs.atari.vector_env import make_atari_vec

_NETWORKS: dict[str, tuple[str, type[BaseFeaturesExtractor]]] = {
    "PuddleWorld-v0": ("PaperMlpPolicy", MLPExtractor),
    "CollectObjects-v0": ("CnnPolicy", GridCNNExtractor),
}
"""Policy and its encoder by environment; games have the deep residual network."""
_TASKS = {"none": "IMPALA", "discovered": "discovered GVFs"}
"""Auxiliary tasks with their names in tables."""
_BFLOAT16 = "bfloat16"
AGENTS = {"none": "IMPALA", _BFLOAT16: "IMPALA, bfloat16 encoder", "discovered": "discovered GVFs"}
"""Agents with their names in tables."""
PLAIN = "rllib-plain-0"
RLLIB = {
    "rllib-0": "RLlib IMPALA, learner in the same process",
    "rllib-1": "RLlib IMPALA, learner in its own process",
    PLAIN: "RLlib IMPALA, network in plain PyTorch",
}
"""RLlib's variants with their names in tables, by the number of learner processes; `PLAIN` is for games only."""


@final
@dataclass(frozen=True)
class ImpalaBenchmark(Benchmark):
    """Measure trained steps per second of IMPALA, where the time goes, and RLlib's IMPALA beside it."""

    name: ClassVar[str] = "impala"
    optional_packages: ClassVar[tuple[str, ...]] = ("ray",)
    worlds: tuple[str, ...] = (*_NETWORKS, "Pong")
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
        if unknown := set(self.measures) - set(MEASURES):
            raise ValueError(f"measures must be among {sorted(MEASURES)}, got {sorted(unknown)}")
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
        return MEASURES[case["measure"]](case, self)

    def tables(self, rows: Sequence[Row]) -> Iterator[RenderableType]:
        if speeds := [row for row in rows if row["measure"] == "speed"]:
            yield make_table("Training of IMPALA, environment steps per second", speed_rows(speeds), _SPEED)
        if parts := [row for row in rows if row["measure"] == "parts"]:
            yield make_table("Milliseconds per batch of its parts, one by one with one thread", parts, _PARTS)


def speed(case: Row, settings: ImpalaBenchmark) -> Row:
    """Trained steps per second of all agents, by `AGENT-ACTORS` or RLlib's variant."""
    with_ray = find_spec("ray") is not None
    workers = max(1, settings.actors[-1])
    if with_ray:
        from dgvf_agents.impala.cluster import connect

        connect(None, 3 * workers + len(RLLIB))  # CPUs for our actors, and for those and the learners of both variants
    models = {
        f"{agent}-{actors}": _model(agent, case, actors)
        for agent, actors in itertools.product(_agents(case, settings), settings.actors)
        if with_ray or not actors
    }
    for model in models.values():
        _compile(model)
    rates: dict[str, Rate] = {name: partial(steady_rate, model) for name, model in models.items()}
    rates |= _rllib_rates(case, workers)
    return {"steps_per_s": median_rates(rates, lambda rate: rate(settings.seconds), settings.repetitions)}


def _rllib_rates(case: Row, actors: int) -> dict[str, Rate]:
    """Empty if RLlib is not installed."""
    try:
        from dgvf_agents.bench.rllib_reference import PlainResNet, RLlibImpala
    except ImportError:
        return {}
    world, sizes = case["world"], (actors, case["n_envs"], case["n_steps"])
    encoders: dict[str, Any] = dict.fromkeys(("rllib-0", "rllib-1"), _network(world)[1])
    if world not in _NETWORKS:
        encoders[PLAIN] = PlainResNet
    return {name: RLlibImpala(world, encoder, *sizes, int(name[-1])).rate for name, encoder in encoders.items()}


def parts(case: Row, settings: ImpalaBenchmark) -> Row:
    """What a batch costs in each part, measured one by one in one process, and what travels."""
    model = _model("none", case, 1)
    actor = EnvironmentActor(model._actor_spec(), 0, 0)
    watch, repetitions = Stopwatch(), 0
    watch.time(actor._env, "step", "environment")
    parameters = model._parameters()
    _travelled(actor.rollout(parameters))
    watch.seconds.clear()
    acting = transport = 0.0
    while acting < settings.seconds or repetitions < 2:
        start = time.perf_counter()
        message = actor.rollout(parameters)
        middle = time.perf_counter()
        batch = batch_of([_travelled(message).rollout], model.device, {}, model.task.reads_features)
        synchronize(model.device)
        acting, transport = acting + middle - start, transport + time.perf_counter() - middle
        repetitions += 1
    environment = watch.seconds["environment"]
    updates = {agent: _update_of(agent, case, batch, settings.seconds) for agent in _agents(case, settings)}
    return {
        "environment_ms": 1e3 * environment / repetitions,
        "acting_ms": 1e3 * (acting - environment) / repetitions,
        "transport_ms": 1e3 * transport / repetitions,
        **{f"update_{agent}_ms": ms for agent, (ms, _) in updates.items()},
        **{f"update_{agent}_gflop": gflop for agent, (_, gflop) in updates.items()},
        "rollout_bytes": size_of(message.rollout),
        "parameter_bytes": parameters.theta.nbytes,
    }


def _travelled(value: Any) -> Any:
    """A value after its way through Ray's object store, if Ray is installed."""
    if find_spec("ray") is None:
        return value
    from dgvf_agents.impala.cluster import connect

    ray = connect(None, 1)
    return ray.get(ray.put(value))


def _update_of(agent: str, case: Row, batch: Any, seconds: float) -> tuple[float, float]:
    """Milliseconds and GFLOP per update on one batch, meta-updates included."""
    model, counted = _model(agent, case, 0), _model(agent, case, 0, compile=False)
    updates = updates_per_meta_update(model)
    for used in (model, counted):
        used._setup_learn(1 << 40)
        for _ in range(updates + 1):
            _update(used, batch)
    synchronize(model.device)
    rounds, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or not rounds:
        for _ in range(updates):
            _update(model, batch)
        synchronize(model.device)
        rounds += 1
    ms = 1e3 * (time.perf_counter() - start) / (rounds * updates)
    with OperationCounter() as counter:
        for _ in range(updates):
            _update(counted, batch)
    return ms, 1e-9 * counter.total / updates


def _update(model: DGVFImpala, batch: Any) -> None:
    model._rollout = batch
    model.train()


MEASURES: dict[str, Callable[[Row, ImpalaBenchmark], Row]] = {"speed": speed, "parts": parts}
"""By name."""


def _model(agent: str, case: Row, actors: int, **settings: Any) -> DGVFImpala:
    world = case["world"]
    env: EnvFactory = EnvById(world) if world in gym.registry else partial(_games, world)
    sizes = {name: case[name] for name in ("n_envs", "n_steps", "unroll_length", "compile")}
    settings = {"actors": actors, "mixed_precision": agent == _BFLOAT16, **sizes, **settings}
    task = agent if agent in _TASKS else "none"
    device = case.get("device", "cpu")
    return DGVFImpala(_network(world)[0], env, auxiliary_task=task, device=device, seed=0, **settings)


def _agents(case: Row, settings: ImpalaBenchmark) -> list[str]:
    """The agents that are measured in an environment."""
    in_bfloat16 = settings.mixed_precision and case["world"] not in _NETWORKS
    return [agent for agent in AGENTS if agent != _BFLOAT16 or in_bfloat16]


def _compile(model: DGVFImpala) -> None:
    """Train for two meta-updates without its actors, which compiles all that it needs."""
    learn_updates(model, 2 * updates_per_meta_update(model) + 1)


def _games(title: str, num_envs: int, seed: int | None) -> VectorEnv:
    return make_atari_vec(title, num_envs, threads=1)


def _network(world: str) -> tuple[str, type[BaseFeaturesExtractor]]:
    return _NETWORKS.get(world, ("ResNetPolicy", ResNetExtractor))


def _title(world: str) -> str:
    """
    Raises:
        ValueError: there is no such environment.
    """
    return world if world in _NETWORKS else title_of(world)


def speed_rows(rows: Sequence[Row]) -> list[Row]:
    """A row for each agent and world, with its speed and its ratios to the faster of RLlib's variants and to IMPALA."""
    shown = []
    for row in rows:
        rates = row["steps_per_s"]
        rllib = max((rate for name, rate in rates.items() if name in RLLIB), default=None)
        for name, rate in rates.items():
            agent, _, actors = name.partition("-")
            plain = rates.get(f"none-{actors}")
            shown.append(
                {
                    "world": row["world"],
                    "agent": RLLIB.get(name, AGENTS.get(agent)),
                    "actors": "" if name in RLLIB else actors,
                    "rate": rate,
                    "to_rllib": "–" if rllib is None else f"{rate / rllib:.2f}x",
                    "time": f"{plain / rate:.2f}x" if agent == "discovered" and plain else "–",
                }
            )
    return shown


_SPEED = (
    *(("environment", "{world}"), ("agent", "{agent}"), ("actors", "{actors:s}"), ("steps/s", "{rate:,.0f}")),
    *(("to RLlib", "{to_rllib:s}"), ("time, to IMPALA", "{time:s}")),
)
_PARTS = (
    ("environment", "{world}"),
    *((name, f"{{{name}_ms:.1f}}") for name in ("environment", "acting", "transport")),
    *((f"update, {words}", f"{{update_{agent}_ms:.1f}}") for agent, words in _TASKS.items()),
    *(("GFLOP", "{update_none_gflop:.2f}"), ("rollout, bytes", "{rollout_bytes:,.0f}")),
)
