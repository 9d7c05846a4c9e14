"""Training speed and memory on Atari: our agents beside Stable-Baselines3's A2C, each case in a subprocess."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import torch
from rich.table import Table
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.bench.environments import game_table, measure_game
from dgvf_agents.bench.harness import Benchmark, check_at_least, make_table
from dgvf_agents.bench.memory import growth_of
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import parts_of, training_rates
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_agents.options import AtariMethod
from dgvf_agents.train.config import TrainConfig, atari_config
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.train import build
from dgvf_envs.atari.games import title_of

AGENTS = {
    "sb3": "SB3 A2C",
    "sb3-adapter": "SB3 A2C, our environments",
    "a2c": "our A2C",
    "a2c-bfloat16": "our A2C, bfloat16 encoder",
    "discovered": "discovered GVFs",
}
"""The agents whose speed is measured, with their names in tables. `a2c-bfloat16` is left out where all of our encoders
use bfloat16."""


@final
@dataclass(frozen=True)
class AtariBenchmark(Benchmark):
    """Measure training steps per second on a game, where the time goes, and memory as unrolls grow."""

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
        longest = {**common, "unroll_length": self.unroll_lengths[-1]}
        return [
            *({**longest, "measure": measure} for measure in ("environments", "speed")),
            *({**longest, "measure": "parts", "method": method} for method in ("a2c", "discovered")),
            *(
                {**common, "measure": "growth", "unroll_length": length, "storage": storage}
                for length in self.unroll_lengths
                for storage in ("graph", "recompute")
            ),
        ]

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(self.threads)
        return MEASURES[case["measure"]](case)

    def tables(self, rows: Sequence[Row]) -> Iterator[Table]:
        of = {measure: [row for row in rows if row["measure"] == measure] for measure in MEASURES}
        yield game_table(of["environments"])
        yield _speed_table(of["speed"][0]["steps_per_s"])
        parts = [(part, f"{{fractions[{part}]:.0%}}") for part in of["parts"][0]["fractions"]]
        yield make_table("Where the time goes", of["parts"], [("agent", "{method}"), *parts])
        yield make_table("Growth with the unroll length L", of["growth"], _GROWTH)


def environments(case: Row) -> Row:
    """Environment steps per second without any agent."""
    return measure_game(*(case[name] for name in ("game", "n_envs", "threads", "seconds", "repetitions")))


def speed(case: Row) -> Row:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, batches and threads.

    SB3's A2C runs twice: on `make_atari_env`, as its users have it, and on our vector environment (`sb3-adapter`).
    """
    names = [name for name in AGENTS if name != "a2c-bfloat16" or not case["mixed_precision"]]
    return training_rates({name: _agent(name, case) for name in names}, case["seconds"], case["repetitions"])


def parts(case: Row) -> Row:
    """Where the time of training goes: the fraction of each of `PARTS`, and the rest."""
    seconds = parts_of(_ours(case["method"], case), case["seconds"])[0]
    return {"fractions": {part: value / sum(seconds.values()) for part, value in seconds.items()}}


def growth(case: Row) -> Row:
    """Time per update, and peak memory above that of the warm, idle model."""
    return growth_of(_ours("discovered", case))


MEASURES = {function.__name__: function for function in (environments, speed, parts, growth)}
"""By name."""


def _config(method: AtariMethod, case: Row) -> TrainConfig:
    names = ("n_envs", "n_steps", "unroll_length", "questions", "storage", "device", "mixed_precision", "threads")
    return dataclasses.replace(
        atari_config(case["game"], method), compile=case["compile"], **{name: case[name] for name in names}
    )


def _ours(method: AtariMethod, case: Row) -> DGVFA2C:
    model = build(_config(method, case))
    assert isinstance(model, DGVFA2C)
    return model


def _agent(name: str, case: Row) -> OnPolicyAlgorithm:
    if name == "a2c-bfloat16":
        return _ours("a2c", {**case, "mixed_precision": True})
    if not name.startswith("sb3"):
        return _ours("a2c" if name == "a2c" else "discovered", case)
    config = _config("a2c", case)
    env: VecEnv = training_environments(config)
    if name == "sb3":
        env.close()
        env = VecFrameStack(make_atari_env(f"{config.env}NoFrameskip-v4", config.n_envs, seed=0), 4)
    return A2C("CnnPolicy", env, n_steps=config.n_steps, ent_coef=config.ent_coef, seed=0, device=config.device)


def _speed_table(rates: dict[str, float]) -> Table:
    rows = [{"agent": AGENTS[name], "rate": rate, "to_sb3": rate / rates["sb3"]} for name, rate in rates.items()]
    columns = [("agent", "{agent}"), ("steps/s", "{rate:,.0f}"), ("to SB3's A2C", "{to_sb3:.2f}x")]
    table = make_table("Training on Atari, environment steps per second", rows, columns)
    table.caption = f"A step of discovered GVFs takes {rates['a2c'] / rates['discovered']:.2f}x our A2C's."
    return table


_GROWTH = (
    *(("L", "{unroll_length:d}"), ("storage", "{storage}"), ("ms per update", "{ms_per_update:.1f}")),
    *(("peak MiB over the model's", "{peak_mib:.0f}"), ("of it L copies, MiB", "{copies_mib:.0f}")),
)
