"""Training speed and memory: our agents beside Stable-Baselines3's A2C, on gridworlds and on Atari."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from rich.console import Console
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor
from dgvf_agents.bench.environments import game_table, measure_game
from dgvf_agents.bench.harness import Benchmark, Table, check_at_least, ratio
from dgvf_agents.bench.reference import jax_rates
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import Rate, Training, growth_of, learn_updates, median_rates, resident_mib, warm_up
from dgvf_agents.execution.devices import check_device_name, device_named
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
    "a2c": "our A2C",
    "a2c-bfloat16": "our A2C, bfloat16 encoder",
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
    iterations: int = 1_000
    """Meta-updates over which memory must not grow, on the first of the worlds."""
    worlds: tuple[str, ...] = tuple(POLICIES)
    """Ids of the environments."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions")
        check_at_least(self, 10, "iterations")
        check_worlds(self.worlds)

    def cases(self) -> list[Row]:
        timing = {"measure": "speed", "seconds": self.seconds, "repetitions": self.repetitions}
        growth = [(length, 128, storage) for length in self.unroll_lengths for storage in ("graph", "recompute")]
        growth += [(10, questions, "graph") for questions in self.questions]
        first, last = ({"world": world, "threads": 1} for world in (self.worlds[0], self.worlds[-1]))
        return [
            *(
                {**timing, "world": world, "threads": threads}
                for world, threads in itertools.product(self.worlds, self.threads)
            ),
            *(
                {**last, "measure": "growth", "unroll_length": length, "questions": questions, "storage": storage}
                for length, questions, storage in growth
            ),
            {**first, "measure": "lasting", "unroll_length": 10, "iterations": self.iterations},
        ]

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(case["threads"])
        if case["measure"] == "speed":
            return speed(("sb3", "sb3-adapter", "none", "discovered"), case)
        model = grid_agent("discovered", case)
        return growth_of(model) if case["measure"] == "growth" else lasting(model, case)

    @staticmethod
    def tables(rows: Sequence[Row]) -> Iterator[Table]:
        yield from _tables(rows)


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
        names = ("game", "n_envs", "n_steps", "questions", "mixed_precision", "threads", "compile")
        common = {name: getattr(self, name) for name in (*names, "seconds", "repetitions")}
        common |= {"device": str(device_named(self.device)), "storage": "graph"}
        return [
            *(
                {**common, "unroll_length": self.unroll_lengths[-1], "measure": measure}
                for measure in ("environments", "speed")
            ),
            *(
                {**common, "measure": "growth", "unroll_length": length, "storage": storage}
                for length in self.unroll_lengths
                for storage in ("graph", "recompute")
            ),
        ]

    def run(self) -> list[Row]:
        config = atari_config(self.game, "a2c")
        assert config.atari is not None
        Console().print(f"{config.env}: {config.atari.describe()}", markup=False, highlight=False)
        return super().run()

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(self.threads)
        if case["measure"] == "environments":
            return measure_game(*(case[name] for name in ("game", "n_envs", "threads", "seconds", "repetitions")))
        if case["measure"] == "speed":
            names = ["sb3", "sb3-adapter", "a2c", "a2c-bfloat16", "discovered"]
            return speed([name for name in names if name != "a2c-bfloat16" or not self.mixed_precision], case)
        return growth_of(_game_agent("discovered", case))

    @staticmethod
    def tables(rows: Sequence[Row]) -> Iterator[Table]:
        yield game_table([row for row in rows if row["measure"] == "environments"])
        yield from _tables([row if "world" in row else {**row, "world": row["game"]} for row in rows])


def speed(names: Sequence[str], case: Row) -> Row:
    """Steps per second of agents with the same networks, environments and threads, and milliseconds of their parts.

    Discovered GVFs on gridworlds run in JAX too, if it is installed.
    """
    agents = {name: _agent(name, case) for name in names}
    for agent in agents.values():
        warm_up(agent)  # compiles on all cores
    trained = {name: Training(agent) for name, agent in agents.items()}
    rates: dict[str, Rate] = {name: training.rate for name, training in trained.items()}
    if "game" not in case:
        rates |= jax_rates(case["world"], 1, case["threads"], "cpu")
    found = median_rates(rates, lambda rate: rate(case["seconds"]), case["repetitions"])
    parts = {name: training.parts() for name, training in trained.items() if not name.startswith("sb3")}
    return {"steps_per_s": found, "ms_per_iteration": parts}


def lasting(model: DGVFA2C, case: Row) -> Row:
    """Resident memory after the first tenth of many meta-updates, and after all of them."""
    tenth = case["iterations"] // 10 * model.unroll_length
    learn_updates(model, tenth)
    early = resident_mib()
    learn_updates(model, 9 * tenth)
    return {"early_mib": early, "late_mib": resident_mib()}


def check_worlds(worlds: Sequence[str]) -> None:
    """
    Raises:
        ValueError: agents are not measured in one of them.
    """
    if unknown := set(worlds) - set(POLICIES):
        raise ValueError(f"worlds must be among {sorted(POLICIES)}, got {sorted(unknown)}")


def grid_agent(task: str, case: Row, seed: int = 0) -> DGVFA2C:
    """Our compiled agent with an auxiliary task on a gridworld; a case may have other settings."""
    mode = "joint" if task == "none" else "auxiliary"
    settings: dict[str, Any] = {"auxiliary_task": task, "encoder_mode": mode, "device": "cpu"}
    settings |= {name: case[name] for name in ("unroll_length", "questions", "storage", "device") if name in case}
    env = make_vec(case["world"], 16, seed=seed)
    return DGVFA2C(POLICIES[case["world"]], env, seed=seed, compile=True, **PAPER, **settings)


def _game_agent(name: str, case: Row) -> DGVFA2C:
    """Our agent on a game, `a2c` or `discovered`."""
    names = ("n_envs", "n_steps", "unroll_length", "questions", "storage", "device", "threads", "compile")
    config = atari_config(case["game"], "discovered" if name == "discovered" else "a2c")
    given = {**{field: case[field] for field in names}, "mixed_precision": case["mixed_precision"] or "-" in name}
    model = build(dataclasses.replace(config, **given))
    assert isinstance(model, DGVFA2C)
    return model


def _agent(name: str, case: Row) -> OnPolicyAlgorithm:
    on_game, own = "game" in case, name == "sb3"
    if not name.startswith("sb3"):
        return _game_agent(name, case) if on_game else grid_agent(name, case)
    if on_game:
        game, n_envs, n_steps = title_of(case["game"]), case["n_envs"], case["n_steps"]
        config = dataclasses.replace(atari_config(game, "a2c"), n_envs=n_envs, threads=case["threads"])
        if own:
            env: VecEnv = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", n_envs, seed=0), 4)
        else:
            env = training_environments(config)
        return A2C("CnnPolicy", env, n_steps=n_steps, ent_coef=config.ent_coef, seed=0, device=case["device"])
    env = make_vec_env(case["world"], 16, seed=0) if own else make_vec(case["world"], 16, seed=0)
    extractor = MLPExtractor if POLICIES[case["world"]] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    of = {measure: [row for row in rows if row["measure"] == measure] for measure in ("speed", "growth", "lasting")}
    title = "Environment steps per second during training; ratios of speed, and of time to our A2C"
    yield Table(title, _SPEED, [{**row, **_ratios(row["steps_per_s"])} for row in of["speed"]])
    parts = [row for row in rows if "ms_per_iteration" in row]
    columns = [
        (f"{AGENTS[name]}, {part}", f"{{ms_per_iteration[{name}][{part}]:.2f}}")
        for name, of_name in (parts[0]["ms_per_iteration"].items() if parts else ())
        for part in of_name
    ]
    yield Table("Milliseconds per update and its rollout", [*_CASE, *columns], parts)
    yield Table("Growth with unroll length L and number of questions D, discovered GVFs", _GROWTH, of["growth"])
    yield Table("Resident memory over a long run, discovered GVFs", _LASTING, of["lasting"])


def _ratios(rates: dict[str, float]) -> Row:
    ours = "none" if "none" in rates else "a2c"
    discovered = {f"to_{other}": ratio(rates, "discovered", other) for other in ("sb3", "jax")}
    return {**discovered, "ours_to_sb3": ratio(rates, ours, "sb3"), "time": ratio(rates, ours, "discovered")}


_CASE = (("environment", "{world}"), ("threads", "{threads:d}"))
_SPEED = (
    *_CASE,
    *((words, f"{{steps_per_s[{name}]:,.0f}}") for name, words in AGENTS.items()),
    *(("our A2C / SB3", "{ours_to_sb3:.2f}"), ("discovered / SB3", "{to_sb3:.2f}")),
    *(("time, discovered / our A2C", "{time:.2f}"), ("discovered / JAX", "{to_jax:.2f}")),
)
_GROWTH = (
    *(("environment", "{world}"), ("L", "{unroll_length:d}"), ("D", "{questions:d}"), ("storage", "`{storage}`")),
    *(("ms per update", "{ms_per_update:.1f}"), ("peak MiB over the model's", "{peak_mib:,.0f}")),
)
_LASTING = (
    *(("environment", "{world}"), ("meta-updates", "{iterations:,}")),
    *(("MiB after a tenth of them", "{early_mib:.0f}"), ("after all", "{late_mib:.0f}")),
)
