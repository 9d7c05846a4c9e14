"""Training speed and memory: our agents beside Stable-Baselines3's A2C, on gridworlds and on Atari."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor
from dgvf_agents.bench.environments import GAMES, measure_game
from dgvf_agents.bench.harness import (
    Benchmark,
    Rate,
    Row,
    Training,
    check_at_least,
    growth_of,
    jax_rates,
    median_rates,
    warm_up,
    with_ratios,
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
SPEED = "Environment steps per second during training; ratios of speed, and of time to our A2C"
PARTS = "Milliseconds per update and its rollout"
GROWTH = "Growth with unroll length L and number of questions D, discovered GVFs"
SB3, SB3_ADAPTER, OURS, DISCOVERED = "SB3 A2C", "SB3 A2C, our envs", "our A2C", "discovered GVFs"
"""Agents. SB3's A2C runs twice: on its own vector environment, as its users have it, and on ours."""
BFLOAT16 = "our A2C, bfloat16 encoder"


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
        last = {"table": GROWTH, "environment": self.worlds[-1]}
        return [
            *(
                {"table": SPEED, "environment": world, "threads": threads}
                for world, threads in itertools.product(self.worlds, self.threads)
            ),
            *({**last, "L": length, "D": questions, "storage": storage} for length, questions, storage in growth),
        ]

    def measure(self, case: Row) -> list[Row]:
        threads, world = case.get("threads", 1), case["environment"]
        torch.set_num_threads(threads)
        if case["table"] == GROWTH:
            sizes = {"unroll_length": case["L"], "questions": case["D"], "storage": case["storage"]}
            return [growth_of(grid_agent("discovered", world, **sizes))]
        agents: dict[str, OnPolicyAlgorithm] = {
            SB3: _sb3_agent(world, own=True),
            SB3_ADAPTER: _sb3_agent(world, own=False),
            OURS: grid_agent("none", world),
            DISCOVERED: grid_agent("discovered", world),
        }
        return speed(agents, jax_rates(world, 1, threads, "cpu"), self.seconds, self.repetitions)


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
        title = title_of(self.game)
        return [
            {"table": GAMES, "environment": title, "copies": self.n_envs},
            {"table": SPEED, "environment": title, "threads": self.threads},
            *(
                {"table": GROWTH, "environment": title, "L": length, "D": self.questions, "storage": storage}
                for length, storage in itertools.product(self.unroll_lengths, ("graph", "recompute"))
            ),
        ]

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(self.threads)
        if case["table"] == GAMES:
            return [measure_game(self.game, self.n_envs, self.threads, self.seconds, self.repetitions)]
        if case["table"] == GROWTH:
            return [growth_of(self._agent(DISCOVERED, case["L"], storage=case["storage"]))]
        names = (OURS, BFLOAT16, DISCOVERED)[:: 2 if self.mixed_precision else 1]
        agents: dict[str, OnPolicyAlgorithm] = {SB3: self._sb3_agent(own=True), SB3_ADAPTER: self._sb3_agent(own=False)}
        agents |= {name: self._agent(name, self.unroll_lengths[-1]) for name in names}
        return speed(agents, {}, self.seconds, self.repetitions)

    def _agent(self, name: str, unroll_length: int, storage: Storage = "graph") -> DGVFA2C:
        names = ("n_envs", "n_steps", "questions", "device", "threads", "compile")
        config = dataclasses.replace(
            atari_config(self.game, "discovered" if name == DISCOVERED else "a2c"),
            unroll_length=unroll_length,
            storage=storage,
            mixed_precision=self.mixed_precision or name == BFLOAT16,
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


def speed(
    agents: Mapping[str, OnPolicyAlgorithm], others: Mapping[str, Rate], seconds: float, repetitions: int
) -> list[Row]:
    """Steps per second of agents and others, which take turns, and milliseconds of our agents' parts."""
    for agent in agents.values():
        warm_up(agent)  # compiles on all cores
    trained = {name: Training(agent) for name, agent in agents.items()}
    rates = {**{name: training.rate for name, training in trained.items()}, **others}
    found = median_rates(rates, lambda rate: rate(seconds), repetitions)
    ratios = {
        "our A2C / SB3": (OURS, SB3),
        "discovered / SB3": (DISCOVERED, SB3),
        "time, discovered / our A2C": (OURS, DISCOVERED),
        "discovered / JAX": (DISCOVERED, "JAX"),
    }
    parts = {
        f"{name}, {part}": value
        for name, training in trained.items()
        if name not in (SB3, SB3_ADAPTER)
        for part, value in training.parts().items()
    }
    return [with_ratios(dict(found), ratios), {"table": PARTS, **parts}]


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
