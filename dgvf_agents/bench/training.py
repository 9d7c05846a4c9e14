"""Training speed and memory: our agents beside Stable-Baselines3's and JAX's, populations, and how training starts."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, final
from unittest.mock import patch

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from torch import Tensor

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor
from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.bench.harness import Benchmark, Peak, Rate, Row, combinations, compared, jax_rates, seconds_per_call
from dgvf_agents.execution.cache import FOLDER
from dgvf_agents.learner import DiscoveryLearner
from dgvf_agents.options import Storage
from dgvf_agents.population.population import Population
from dgvf_agents.train.config import atari_config
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.train import build
from dgvf_envs.atari.games import title_of
from dgvf_envs.sb3_adapter import make_vec

GridWorld = Literal["PuddleWorld-v0", "CollectObjects-v0"]
POLICIES: dict[str, str] = {"PuddleWorld-v0": "PaperMlpPolicy", "CollectObjects-v0": "PaperCnnPolicy"}
"""By environment."""
PAPER: dict[str, Any] = {"auxiliary_weighting": "fixed", "ent_coef": 0.01, "max_grad_norm": None}
"""Settings of the gridworld presets that are not defaults."""
SPEED = "Environment steps per second during training; ratios of speed, and of time to our A2C"
GROWTH = "Growth with unroll length L and number of questions D, discovered GVFs"
SB3, SB3_ADAPTER, SB3_PPO, OURS, DISCOVERED = "SB3 A2C", "SB3 A2C, our envs", "SB3 PPO", "our A2C", "discovered GVFs"
"""Agents. SB3's A2C runs twice: on its own vector environment, as its users have it, and on ours."""
BFLOAT16 = "our A2C, bfloat16 encoder"


# --- time and memory of training --------------------------------------------------------------------------------------


def updates_per_meta_update(agent: OnPolicyAlgorithm) -> int:
    """L of an agent that discovers; 1 without meta-updates, and for PPO."""
    if not (isinstance(agent, DiscoveryAlgorithm) and isinstance(agent.learner, DiscoveryLearner)):
        return 1
    return agent.unroll_length if agent.task.discovers else 1


def warm_up(agent: OnPolicyAlgorithm) -> int:
    """Train for two meta-updates, after which all is compiled, and wait for the device; returns the number of updates.

    The first meta-update comes with the batch after an unroll, and one more follows.
    """
    updates = 2 * updates_per_meta_update(agent) + 1
    agent.learn(updates * agent.n_envs * agent.n_steps, reset_num_timesteps=False)
    synchronize(agent.device)
    return updates


def training_rate(agent: OnPolicyAlgorithm, skipped: int, seconds: float) -> float:
    """Environment steps per second of an agent that trains, over whole meta-updates with their rollouts.

    Args:
        agent: any on-policy agent, warm.
        skipped: updates at first that are not timed. Distributed actors start with `learn`, and the first batches may
            have waited for the learner or the reverse.
        seconds: to train for at least.
    """
    watch = RolloutStarts(skipped, updates_per_meta_update(agent), seconds)
    agent.learn(10**9, watch, reset_num_timesteps=False)
    (start, first), *_, (end, last) = watch.timed
    return (last - first) / (end - start)


@final
class RolloutStarts(RolloutCallback):
    """Notes the time and the environment steps at starts of rollouts; stops training after some seconds of these.

    Those are every `multiple`-th after the first `skipped`.
    """

    def __init__(self, skipped: int = 0, multiple: int = 1, seconds: float = math.inf) -> None:
        super().__init__()
        self.timed: list[tuple[float, int]] = []  # time and environment steps
        self._until, self._multiple, self._seconds = skipped, multiple, seconds

    def _on_rollout_start(self) -> None:
        if self._until == 0:
            synchronize(self.model.device)
            self.timed.append((time.perf_counter(), self.num_timesteps))
            self._until = self._multiple
        self._until -= 1

    def _on_step(self) -> bool:
        return len(self.timed) < 2 or self.timed[-1][0] - self.timed[0][0] < self._seconds


def synchronize(device: torch.device) -> None:
    """Wait for all work on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def growth_of(model: DiscoveryAlgorithm) -> dict[str, float]:
    """Time per update of a new model over two meta-updates, and peak memory above the warm, idle model's."""
    warm_up(model)
    model.learner.restart_unroll()
    peak, start = Peak(model.device), time.perf_counter()
    updates = warm_up(model)
    elapsed = time.perf_counter() - start
    return {"ms per update": 1e3 * elapsed / updates, "peak MiB over the model's": peak.mib()}


# --- agents -----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
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
    worlds: tuple[GridWorld, ...] = ("PuddleWorld-v0", "CollectObjects-v0")
    """Ids of the environments."""

    def cases(self) -> list[Row]:
        growth: dict[str, Any] = {"table": [GROWTH], "environment": self.worlds[-1:]}
        return [
            *combinations(table=[SPEED], environment=self.worlds, threads=self.threads),
            *combinations(**growth, L=self.unroll_lengths, D=[128], storage=["graph", "recompute"]),
            *combinations(**growth, L=[10], D=self.questions, storage=["graph"]),
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
@dataclass(frozen=True, kw_only=True)
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

    def cases(self) -> list[Row]:
        title = title_of(self.game)
        sizes: dict[str, Any] = {"L": self.unroll_lengths, "D": [self.questions], "storage": ["graph", "recompute"]}
        return [
            {"table": SPEED, "environment": title, "threads": self.threads},
            *combinations(table=[GROWTH], environment=[title], **sizes),
        ]

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(self.threads)
        if case["table"] == GROWTH:
            return [growth_of(self._agent(DISCOVERED, case["L"], storage=case["storage"]))]
        names = (OURS, BFLOAT16, DISCOVERED)[:: 2 if self.mixed_precision else 1]
        agents: dict[str, OnPolicyAlgorithm] = {SB3: self._sb3_agent(own=True), SB3_ADAPTER: self._sb3_agent(own=False)}
        agents |= {name: self._agent(name, self.unroll_lengths[-1]) for name in names}
        return speed(agents, {}, self.seconds, self.repetitions)

    def _agent(self, name: str, unroll_length: int, storage: Storage = "graph") -> DiscoveryAlgorithm:
        names = ("n_envs", "n_steps", "questions", "device", "threads", "compile")
        config = dataclasses.replace(
            atari_config(self.game, "discovered" if name == DISCOVERED else "a2c"),
            unroll_length=unroll_length,
            storage=storage,
            mixed_precision=self.mixed_precision or name == BFLOAT16,
            **{field: getattr(self, field) for field in names},
        )
        return build(config)

    def _sb3_agent(self, own: bool) -> A2C:
        config = dataclasses.replace(atari_config(self.game, "a2c"), n_envs=self.n_envs, threads=self.threads)
        if own:
            env: VecEnv = VecFrameStack(make_atari_env(f"{config.env}NoFrameskip-v4", self.n_envs, seed=0), 4)
        else:
            env = training_environments(config)
        return A2C("CnnPolicy", env, n_steps=self.n_steps, ent_coef=config.ent_coef, seed=0, device=self.device)


def speed(
    agents: Mapping[str, OnPolicyAlgorithm], others: Mapping[str, Rate], seconds: float, repetitions: int
) -> list[Row]:
    """Steps per second of agents and others, which take turns."""
    for agent in agents.values():
        warm_up(agent)  # compiles on all cores
    rates: dict[str, Rate] = {**{name: partial(training_rate, agent, 0) for name, agent in agents.items()}, **others}
    ratios = {
        "our A2C / SB3": (OURS, SB3),
        "discovered / SB3": (DISCOVERED, SB3),
        "time, discovered / our A2C": (OURS, DISCOVERED),
        "discovered / JAX": (DISCOVERED, "JAX"),
        "none / SB3": ("none", SB3_PPO),
        "time, discovered / random": ("random", "discovered"),
    }
    return [compared(rates, seconds, repetitions, ratios)]


def grid_agent(task: str, world: str, seed: int = 0, **settings: Any) -> DGVFA2C:
    """Our compiled agent with an auxiliary task on a gridworld."""
    mode = "joint" if task == "none" else "auxiliary"
    given = {"device": "cpu", "compile": True, **PAPER, "auxiliary_task": task, "encoder_mode": mode, **settings}
    return DGVFA2C(POLICIES[world], make_vec(world, 16, seed=seed), seed=seed, **given)


def _sb3_agent(world: str, own: bool) -> A2C:
    env = make_vec_env(world, 16, seed=0) if own else make_vec(world, 16, seed=0)
    extractor = MLPExtractor if POLICIES[world] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


# --- PPO --------------------------------------------------------------------------------------------------------------

_ZOO = {"n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01}
_PPO_SETTINGS: dict[str, dict[str, Any]] = {"CartPole-v1": {}, "Pong": _ZOO}
"""Stable-Baselines3's defaults: 320 gradient steps of an iteration; RL Baselines3 Zoo's for Atari: 16."""


@final
@dataclass(frozen=True, kw_only=True)
class PPOBenchmark(Benchmark):
    """Training speed of PPO with auxiliary tasks beside Stable-Baselines3's PPO."""

    name: ClassVar[str] = "ppo"
    seconds: float = 5.0
    """Minimum duration of each repetition."""
    repetitions: int = 5
    """Repetitions; the median counts. The agents take turns."""

    def cases(self) -> list[Row]:
        title = "Environment steps per second; differences are of parameters after three iterations, at most"
        return [{"table": title, "environment": name} for name in _PPO_SETTINGS]

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(1)
        name, theirs = case["environment"], _learned(case["environment"], SB3_PPO)
        learned = {"none from SB3": _learned(name, "none"), "SB3 from SB3 + 1e-7": _learned(name, SB3_PPO, 1e-7)}
        differences = {label: f"{(one - theirs).abs().max():.1e}" for label, one in learned.items()}
        agents = {task: _ppo_agent(name, task) for task in (SB3_PPO, "none", "random", "discovered")}
        return [row | differences for row in speed(agents, {}, self.seconds, self.repetitions)]


def _learned(name: str, task: str, perturbation: float = 0.0) -> Tensor:
    """All parameters after three iterations; those at the start are changed by about `perturbation` of themselves."""
    model, generator = _ppo_agent(name, task), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.policy.parameters():
            value.mul_(1.0 + perturbation * torch.randn(value.shape, generator=generator))
    model.learn(3 * model.n_steps * model.n_envs)
    return torch.cat([value.detach().flatten() for value in model.policy.parameters()])


def _ppo_agent(name: str, task: str) -> OnPolicyAlgorithm:
    """Ours with an auxiliary task, or `SB3_PPO`."""
    settings: dict[str, Any] = {"policy": "MlpPolicy", "env": name, "seed": 0, "device": "cpu", **_PPO_SETTINGS[name]}
    if name == "Pong":
        config = dataclasses.replace(atari_config(name, "a2c"), n_envs=8, threads=1)
        settings |= {"policy": "CnnPolicy", "env": training_environments(config)}
    return PPO(**settings) if task == SB3_PPO else DGVFPPO(**settings, auxiliary_task=task)


# --- populations ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
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
    worlds: tuple[GridWorld, ...] = ("PuddleWorld-v0", "CollectObjects-v0")
    """Ids of the environments."""
    jax: bool = True
    """Whether JAX is measured too, where it is installed."""

    def cases(self) -> list[Row]:
        title = "Environment steps per second of all members together, discovered GVFs"
        return combinations(table=[title], environment=self.worlds, threads=self.threads, members=self.members)

    def measure(self, case: Row) -> list[Row]:
        torch.set_num_threads(case["threads"])
        agent, world = partial(grid_agent, "discovered", case["environment"], device=self.device), case["environment"]
        alone = agent()
        warm_up(alone)
        peak = Peak(alone.device)
        members = [agent(seed=p) for p in range(case["members"])]
        for member in members:
            member._setup_learn(1 << 40)
        population = Population(members)
        _train(population, 2 * updates_per_meta_update(alone) + 1)
        rates: dict[str, Rate] = {
            "alone": partial(training_rate, alone, 0),
            "population": partial(_population_rate, population),
        }
        rates["population"](self.seconds)
        mib = peak.mib()
        if self.jax:
            rates |= jax_rates(world, case["members"], case["threads"], alone.device.type)
        ratios = {"ratio": ("population", "alone"), "population / JAX": ("population", "JAX")}
        return [{"MiB": mib, **compared(rates, self.seconds, self.repetitions, ratios)}]


def _population_rate(population: Population, seconds: float) -> float:
    """Environment steps per second of all members together, over whole unrolls."""
    first = population.members[0]
    updates = updates_per_meta_update(first)
    steps = len(population.members) * updates * first.n_envs * first.n_steps
    return steps / seconds_per_call(partial(_train, population, updates), seconds)


def _train(population: Population, updates: int) -> None:
    for _ in range(updates):
        population.collect()
        population.update()


# --- the start --------------------------------------------------------------------------------------------------------

MODES: dict[str, Any] = {"False": False, "auto": "auto", "True": True, "auto, full cache": "auto"}
"""Values of `compile` by name. A full cache is the one that the call of `learn` before filled."""


@final
@dataclass(frozen=True, kw_only=True)
class ColdStartBenchmark(Benchmark):
    """Seconds until training starts, runs compiled and ends, with an empty cache of compiled functions."""

    name: ClassVar[str] = "start"
    steps: tuple[int, ...] = (2_000, 20_000, 1_000_000)
    """Environment steps of a call of `learn`."""

    def cases(self) -> list[Row]:
        title = "Seconds from the call of learn, PuddleWorld-v0, discovered GVFs, one thread"
        return [{"table": title, "compile": mode, "steps": steps} for steps in self.steps for mode in MODES]

    def run(self, command: str) -> list[Row]:
        with TemporaryDirectory() as folder, patch.dict(os.environ, {FOLDER: folder}):  # cases' processes inherit it
            return super().run(command)

    def measure(self, case: Row) -> list[Row]:
        mode = case["compile"]
        cache = Path(os.environ[FOLDER]) / f"{mode.partition(',')[0]}-{case['steps']}"
        torch.set_num_threads(1)
        with patch.dict(os.environ, {FOLDER: str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}):
            agent, watch = grid_agent("discovered", "PuddleWorld-v0", compile=MODES[mode]), RolloutStarts()
            start = time.perf_counter()
            agent.learn(case["steps"], watch)
            end = time.perf_counter() - start
        updated = [at - start for at, _ in watch.timed[1:]]
        compiled = (at for update, at in enumerate(updated) if agent.compilation.active_at(update))
        first = {"first update": next(iter(updated), None), "first compiled update": next(compiled, None)}
        return [{**first, "end": end}]


_TRAIN = "dgvf train collect-objects-small discovered"
_MAKE_TRAIN = f"{_TRAIN} --steps 500_000"
_COMMANDS = (
    *("import dgvf_envs", "from dgvf_agents import DGVFA2C"),
    *("dgvf --help", f"{_TRAIN} --help", "dgvf evaluate demo", "dgvf atlas demo"),
    *("dgvf atlas demo/collect-objects-small --kinds 1 --checkpoints 1", _MAKE_TRAIN),
)


@final
@dataclass(frozen=True, kw_only=True)
class FirstHourBenchmark(Benchmark):
    """Seconds until the commands of the first hour are done, in processes of their own."""

    name: ClassVar[str] = "first-hour"
    isolated: ClassVar[bool] = False
    repetitions: int = 3
    """Repetitions; the median counts. Training is measured once."""
    training: bool = True
    """Whether to measure training, which takes ten minutes."""

    def cases(self) -> list[Row]:
        shown = [one for one in _COMMANDS if self.training or one != _MAKE_TRAIN]
        return [{"table": "Seconds until the end, median", "command": one} for one in shown]

    def measure(self, case: Row) -> list[Row]:
        repetitions = 1 if case["command"] == _MAKE_TRAIN else self.repetitions
        return [{"seconds": statistics.median(_seconds(case["command"]) for _ in range(repetitions))}]


def _seconds(command: str) -> float:
    """Of a command, or a statement of Python, as a process in an empty folder."""
    own = command.startswith("dgvf ")
    arguments = ["-m", "dgvf_agents.cli", *command.split()[1:]] if own else ["-c", command]
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)
        return time.perf_counter() - start
