"""Training speed of IMPALA with and without distributed actors, beside RLlib's, and of its learner alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, final

import torch
from gymnasium.vector import VectorEnv

from dgvf_agents.bench.harness import Benchmark, Rate, Row, example_rates, median_rates, seconds_per_call
from dgvf_agents.bench.training import POLICIES, training_rate, updates_per_meta_update, warm_up
from dgvf_agents.impala.actors import EnvById
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_envs.atari.games import title_of
from dgvf_envs.atari.vector_env import make_atari_vec

SPEED = "Environment steps per second during training"
UPDATE = "Milliseconds per update of the learner, one thread"
IMPALA, BFLOAT16, DISCOVERED = "IMPALA", "IMPALA, bfloat16 encoder", "discovered GVFs"
RLLIB: dict[str, dict[str, Any]] = {
    "RLlib IMPALA, learner in the same process": {"learners": 0},
    "RLlib IMPALA, learner in its own process": {"learners": 1},
    "RLlib IMPALA, network in plain PyTorch": {"learners": 0, "network": "plain"},
}
"""RLlib's variants with their settings. The last is for games only."""


@final
@dataclass(frozen=True, kw_only=True)
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

    def cases(self) -> list[Row]:
        if wrong := [actors for actors in self.actors if actors and self.n_envs % actors]:
            raise ValueError(f"actors must be divisors of n_envs = {self.n_envs}, got {wrong[0]!r}")
        titles = {"speed": SPEED, "update": UPDATE}
        worlds = [world if world in POLICIES else title_of(world) for world in self.worlds]
        return [{"table": titles[measure], "environment": world} for world in worlds for measure in self.measures]

    def measure(self, case: Row) -> list[Row]:
        world = case["environment"]
        on_game = world not in POLICIES
        agents = [IMPALA, *([BFLOAT16] if self.mixed_precision and on_game else []), DISCOVERED]
        if case["table"] == UPDATE:
            torch.set_num_threads(1)
            return [{f"update, {agent}": self._update_ms(agent, world) for agent in agents}]
        torch.set_num_threads(self.threads)
        workers, with_ray = max(1, self.actors[-1]), find_spec("ray") is not None
        if with_ray:
            from dgvf_agents.impala.cluster import connect

            connect(None, 3 * workers)
        rates: dict[Any, Rate] = {}
        for agent, actors in itertools.product(agents, self.actors):
            if with_ray or not actors:
                warm_up(model := self._model(agent, world, actors))
                skipped = max(2 * updates_per_meta_update(model), 10)
                rates[agent, actors] = partial(training_rate, model, skipped)
        sizes = {"world": world, "n_envs": self.n_envs, "n_steps": self.n_steps, "threads": self.threads}
        variants = {
            name: {**sizes, "actors": workers, **own} for name, own in RLLIB.items() if "network" not in own or on_game
        }
        others = example_rates("rllib_impala.py", ("ray", "tree", "pyarrow"), variants)
        rates |= {(name, None): rate for name, rate in others.items()}
        return speed_rows(median_rates(rates, self.seconds, self.repetitions))

    def _update_ms(self, agent: str, world: str) -> float:
        """Milliseconds per update, meta-updates included."""
        model = self._model(agent, world, 0)
        warm_up(model)
        updates = updates_per_meta_update(model)

        def learn() -> None:
            for _ in range(updates):
                model.train()  # on the last batch

        return 1e3 * seconds_per_call(learn, self.seconds) / updates

    def _model(self, agent: str, world: str, actors: int) -> DGVFImpala:
        names = ("n_envs", "n_steps", "unroll_length", "compile", "device")
        return DGVFImpala(
            POLICIES.get(world, "ResNetPolicy"),
            EnvById(world) if world in POLICIES else partial(_games, world),
            auxiliary_task="discovered" if agent == DISCOVERED else "none",
            mixed_precision=agent == BFLOAT16,
            actors=actors,
            seed=0,
            **{name: getattr(self, name) for name in names},
        )


def _games(title: str, num_envs: int, seed: int | None) -> VectorEnv:
    return make_atari_vec(title, num_envs, threads=1)


def speed_rows(rates: Mapping[tuple[str, int | None], float]) -> list[Row]:
    """A row for each agent and number of actors, with ratios to the faster of RLlib's variants and to IMPALA."""
    rllib = max((rate for (agent, _), rate in rates.items() if agent in RLLIB), default=None)
    rows: list[Row] = []
    for (agent, actors), rate in rates.items():
        rows.append({"agent": agent, "actors": actors, "steps/s": rate})
        if rllib is not None:
            rows[-1]["to RLlib"] = rate / rllib
        if agent == DISCOVERED:
            rows[-1]["time, to IMPALA"] = rates[IMPALA, actors] / rate
    return rows
