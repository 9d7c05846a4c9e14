"""Training speed and memory: our agents beside Stable-Baselines3's A2C, on gridworlds and on Atari."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor
from dgvf_agents.bench.environments import environment_tables, measure_game
from dgvf_agents.bench.harness import (
    Benchmark,
    Rate,
    Row,
    Training,
    check_at_least,
    growth_of,
    jax_rates,
    median_rates,
    table,
    warm_up,
)
from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.options import Storage
from dgvf_agents.train.config import atari_config
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.train import build
from dgvf_envs.atari.games import title_of
from dgvf_envs.sb3_adapter import make_vec

POLICIES = {"PuddleWorld-v0": "PaperMlpPolicy", "CollectObjects-v0": "PaperCnnPolicy"}
"""By environment."""
PAPER: dict[str, Any] = {"auxiliary_weighting": "fixed", "ent_coef": 0.01, "max_grad_norm": None}
"""Settings of the gridworld presets that are not defaults."""
AGENTS = {
    "sb3": "SB3 A2C",
    "sb3-adapter": "SB3 A2C, our envs",
    "none": "our A2C",
    "bfloat16": "our A2C, bfloat16 encoder",
    "discovered": "discovered GVFs",
    "jax": "JAX",
}
"""Names in tables. SB3's A2C runs twice: on its own vector environment, as its users have it, and on ours."""


@final
@dataclass(frozen=True)
class AgentsBenchmark(Benchmark):
    """Training speed and memory on gridworlds: our agents beside Stable-Baselines3's A2C."""

    name: ClassVar[str] = "agents"
    optional_packages: ClassVar[tuple[str, ...]] = ("jax", "jaxlib")
    threads: tuple[int, ...] = (1, 2)
    """Numbers of PyTorch threads."""
    seconds: float = 5.0
    """Duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    unroll_lengths: tuple[int, ...] = (5, 10, 25, 50)
    """L for the growth table."""
    questions: tuple[int, ...] = (8, 32, 128)
    """D for the growth table."""
    worlds: tuple[str, ...] = tuple(POLICIES)
    """Ids of the environments."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions")
        check_worlds(self.worlds)

    def cases(self) -> list[Row]:
        growth = [(length, 128, storage) for length in self.unroll_lengths for storage in ("graph", "recompute")]
        growth += [(10, questions, "graph") for questions in self.questions]
        last = {"world": self.worlds[-1], "threads": 1, "measure": "growth"}
        return [
            *(
                {"world": world, "threads": threads, "measure": "speed"}
                for world, threads in itertools.product(self.worlds, self.threads)
            ),
            *(
                {**last, "unroll_length": length, "questions": questions, "storage": storage}
                for length, questions, storage in growth
            ),
        ]

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(case["threads"])
        world = case["world"]
        if case["measure"] == "growth":
            sizes = {name: case[name] for name in ("unroll_length", "questions", "storage")}
            return growth_of(grid_agent("discovered", world, **sizes))
        agents: dict[str, OnPolicyAlgorithm] = {"sb3": _sb3_agent(world, True), "sb3-adapter": _sb3_agent(world, False)}
        agents |= {task: grid_agent(task, world) for task in ("none", "discovered")}
        return speed(agents, jax_rates(world, 1, case["threads"], "cpu"), self.seconds, self.repetitions)

    @staticmethod
    def tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
        return _tables(rows)


@final
@dataclass(frozen=True)
class AtariBenchmark(Benchmark):
    """Training speed and memory on a game: our agents beside Stable-Baselines3's A2C, on the CPU or on CUDA."""

    name: ClassVar[str] = "atari"
    game: str = "Breakout"
    """The game in Gymnasium's or ALE's spelling."""
    n_envs: int = 32
    """Parallel games of every agent (paper: 32)."""
    n_steps: int = 20
    """Steps per game and update of every agent (paper: 20)."""
    questions: int = 128
    """D (paper: 128)."""
    unroll_lengths: tuple[int, ...] = (2, 5, 10)
    """L for the growth table; the speed of discovered GVFs is measured at the last (paper: 10)."""
    device: str = "auto"
    """Of all agents: `cpu`, `cuda`, or `auto` for CUDA if available."""
    mixed_precision: bool = False
    """Whether our agents' encoders use bfloat16."""
    threads: int = 1
    """Threads of PyTorch, and of our emulators."""
    compile: bool = True
    """Whether our agents' updates are compiled."""
    seconds: float = 20.0
    """Minimum duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        title_of(self.game)
        check_device_name(self.device)
        if not self.unroll_lengths:
            raise ValueError(f"unroll_lengths must have a value, got {self.unroll_lengths!r}")
        check_at_least(self, 1, "n_envs", "n_steps", "questions", "unroll_lengths", "threads", "repetitions")

    def cases(self) -> list[Row]:
        common = {"game": self.game, "threads": self.threads}
        return [
            *({**common, "measure": measure} for measure in ("environments", "speed")),
            *(
                {
                    **common,
                    "measure": "growth",
                    "questions": self.questions,
                    "unroll_length": length,
                    "storage": storage,
                }
                for length, storage in itertools.product(self.unroll_lengths, ("graph", "recompute"))
            ),
        ]

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(self.threads)
        if case["measure"] == "environments":
            return measure_game(self.game, self.n_envs, self.threads, self.seconds, self.repetitions)
        if case["measure"] == "growth":
            return growth_of(self._agent("discovered", case["unroll_length"], storage=case["storage"]))
        names = ("none", "bfloat16", "discovered")[:: 2 if self.mixed_precision else 1]
        agents: dict[str, OnPolicyAlgorithm] = {"sb3": self._sb3_agent(own=True), "sb3-adapter": self._sb3_agent(False)}
        agents |= {name: self._agent(name, self.unroll_lengths[-1]) for name in names}
        return speed(agents, {}, self.seconds, self.repetitions)

    def _agent(self, name: str, unroll_length: int, storage: Storage = "graph") -> DGVFA2C:
        names = ("n_envs", "n_steps", "questions", "device", "threads", "compile")
        config = dataclasses.replace(
            atari_config(self.game, "discovered" if name == "discovered" else "a2c"),
            unroll_length=unroll_length,
            storage=storage,
            mixed_precision=self.mixed_precision or name == "bfloat16",
            **{field: getattr(self, field) for field in names},
        )
        model = build(config)
        assert isinstance(model, DGVFA2C)
        return model

    def _sb3_agent(self, own: bool) -> A2C:
        title = title_of(self.game)
        config = dataclasses.replace(atari_config(title, "a2c"), n_envs=self.n_envs, threads=self.threads)
        if own:
            env: VecEnv = VecFrameStack(make_atari_env(f"{title}NoFrameskip-v4", self.n_envs, seed=0), 4)
        else:
            env = training_environments(config)
        return A2C("CnnPolicy", env, n_steps=self.n_steps, ent_coef=config.ent_coef, seed=0, device=self.device)

    @staticmethod
    def tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
        environments = environment_tables([row for row in rows if row["measure"] == "environments"])
        return environments | _tables([row if "world" in row else {**row, "world": row["game"]} for row in rows])


def speed(agents: Mapping[str, OnPolicyAlgorithm], others: Mapping[str, Rate], seconds: float, repetitions: int) -> Row:
    """Steps per second of agents and others, which take turns, and milliseconds of our agents' parts."""
    for agent in agents.values():
        warm_up(agent)  # compiles on all cores
    trained = {name: Training(agent) for name, agent in agents.items()}
    rates = {**{name: training.rate for name, training in trained.items()}, **others}
    found = median_rates(rates, lambda rate: rate(seconds), repetitions)
    parts = {name: training.parts() for name, training in trained.items() if not name.startswith("sb3")}
    return {"steps_per_s": found, "ms_per_iteration": parts}


def check_worlds(worlds: Sequence[str]) -> None:
    """
    Raises:
        ValueError: agents are not measured in one of them.
    """
    if unknown := set(worlds) - set(POLICIES):
        raise ValueError(f"worlds must be among {sorted(POLICIES)}, got {sorted(unknown)}")


def grid_agent(task: str, world: str, seed: int = 0, **settings: Any) -> DGVFA2C:
    """Our compiled agent with an auxiliary task on a gridworld."""
    mode: Any = "joint" if task == "none" else "auxiliary"
    given = {"device": "cpu", **PAPER, "auxiliary_task": task, "encoder_mode": mode, **settings}
    return DGVFA2C(POLICIES[world], make_vec(world, 16, seed=seed), seed=seed, compile=True, **given)


def _sb3_agent(world: str, own: bool) -> A2C:
    env = make_vec_env(world, 16, seed=0) if own else make_vec(world, 16, seed=0)
    extractor = MLPExtractor if POLICIES[world] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


def _tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
    case = {"environment": "world", "threads": "threads"}
    plain, rates = AGENTS["none"], {words: f"steps_per_s.{name}" for name, words in AGENTS.items()}
    ratios = {
        f"{plain} / SB3": (plain, AGENTS["sb3"]),
        "discovered / SB3": (AGENTS["discovered"], AGENTS["sb3"]),
        f"time, discovered / {plain}": (plain, AGENTS["discovered"]),
        "discovered / JAX": (AGENTS["discovered"], "JAX"),
    }
    parts = [row for row in rows if "ms_per_iteration" in row]
    columns = {
        f"{AGENTS[name]}, {part}": f"ms_per_iteration.{name}.{part}"
        for name, of_name in (parts[0]["ms_per_iteration"].items() if parts else ())
        for part in of_name
    }
    growth = {"environment": "world", "L": "unroll_length", "D": "questions", "storage": "storage"}
    growth |= {"ms per update": "ms_per_update", "peak MiB over the model's": "peak_mib"}
    found = {
        "Environment steps per second during training; ratios of speed, and of time to our A2C": table(
            [row for row in rows if row["measure"] == "speed"], case | rates, ratios
        ),
        "Milliseconds per update and its rollout": table(parts, case | columns),
        "Growth with unroll length L and number of questions D, discovered GVFs": table(
            [row for row in rows if row["measure"] == "growth"], growth
        ),
    }
    return {title: made for title, made in found.items() if len(made)}
