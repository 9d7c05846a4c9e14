"""Environment steps per second: our vector environments beside `SyncVectorEnv`, on Atari beside others' too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

import dgvf_envs
from dgvf_agents.bench.report import Row, check_at_least, make_table, write_report
from dgvf_agents.bench.timing import stepping_rates
from dgvf_envs.atari import make_atari, make_atari_vec
from dgvf_envs.atari.emulator import title_of


@dataclass(frozen=True)
class EnvsBenchmark:
    """Measure environment steps per second on one core."""

    ids: tuple[str, ...] = tuple(dgvf_envs.ENVIRONMENTS)
    """Environments to measure."""
    copies: tuple[int, ...] = (16, 256, 4096)
    """Numbers of parallel environments."""
    games: tuple[str, ...] = ("Breakout", "Pong")
    """Atari games to measure."""
    game_copies: tuple[int, ...] = (16,)
    """Numbers of parallel games."""
    threads: int = 1
    """Threads of our Atari emulators. The others have one, so more than one is not one core against one."""
    seconds: float = 0.5
    """Duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The two sides take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions", "copies", "threads", "game_copies")


def run(benchmark: EnvsBenchmark) -> list[Row]:
    """Measure, print the tables, and write the report; returns its rows."""
    console = Console()
    seconds, repetitions = benchmark.seconds, benchmark.repetitions
    cases = [(env_id, num_envs) for env_id in benchmark.ids for num_envs in benchmark.copies]
    rows = [
        measure_environment(*case, seconds, repetitions)
        for case in track(cases, "measuring", console=console, transient=True)
    ]
    if rows:
        headings = ("environment", "copies", "vector env", "SyncVectorEnv", "ratio")
        cells = [(row["id"], *_rates(row)) for row in rows]
        console.print(make_table("Environment steps per second, one process", headings, cells))
    game_cases = [(game, num_envs) for game in benchmark.games for num_envs in benchmark.game_copies]
    game_rows = [
        measure_game(*case, benchmark.threads, seconds, repetitions)
        for case in track(game_cases, "measuring games", console=console, transient=True)
    ]
    if game_rows:
        console.print(game_table(game_rows))
    rows += game_rows
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench envs", benchmark, rows)
    return rows


def measure_environment(env_id: str, num_envs: int, seconds: float, repetitions: int) -> Row:
    """The rates of a vector environment and of `SyncVectorEnv`."""
    modes = ("vector_entry_point", "sync")
    envs = [gym.make_vec(env_id, num_envs=num_envs, vectorization_mode=mode) for mode in modes]
    actions = np.stack([envs[0].action_space.sample() for _ in range(64)])
    for env in envs:
        env.reset(seed=0)
    vector, sync = stepping_rates(envs, actions, seconds, repetitions)
    for env in envs:
        env.close()
    rates = {"vector_steps_per_s": vector, "sync_steps_per_s": sync, "ratio": vector / sync}
    return {"id": env_id, "copies": num_envs, **rates}


def measure_game(game: str, num_envs: int, threads: int, seconds: float, repetitions: int) -> Row:
    """The rates of three ways to step a game under the paper's preset.

    Stable-Baselines3's `make_atari_env` is measured under `VecFrameStack`; it presses FIRE where we do not. The other
    two give the same data.

    Args:
        game: in Gymnasium's or ALE's spelling.
        num_envs: the number of parallel games.
        threads: of our emulators; the others have one.
        seconds: duration of each repetition.
        repetitions: of each; the median counts.
    """
    ours = make_atari_vec(game, num_envs, "paper", threads)
    wrappers = SyncVectorEnv([lambda: make_atari(game, "paper")] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    sb3_env = VecFrameStack(make_atari_env(f"{title_of(game)}NoFrameskip-v4", num_envs, seed=0), 4)
    ours.action_space.seed(0)
    actions = np.stack([ours.action_space.sample() for _ in range(64)])
    ours.reset(seed=0)
    wrappers.reset(seed=0)
    sb3_env.reset()
    vector, sync, sb3 = stepping_rates([ours, wrappers, sb3_env], actions, seconds, repetitions)
    for env in (ours, wrappers, sb3_env):
        env.close()
    rates = {"vector_steps_per_s": vector, "sync_steps_per_s": sync, "sb3_steps_per_s": sb3}
    ratios = {"ratio": vector / sync, "sb3_ratio": vector / sb3}
    return {"game": title_of(game), "copies": num_envs, "threads": threads, **rates, **ratios}


def game_table(rows: Sequence[Row]) -> Table:
    """The results of `measure_game`, to print."""
    headings = ("game", "copies", "vector env", "SyncVectorEnv", "ratio", "make_atari_env", "ratio")
    cells = [(row["game"], *_rates(row), f"{row['sb3_steps_per_s']:,.0f}", f"{row['sb3_ratio']:.1f}x") for row in rows]
    return make_table("Atari: environment steps per second, one process", headings, cells)


def _rates(row: Row) -> tuple[str, ...]:
    rates = (f"{row[name]:,.0f}" for name in ("copies", "vector_steps_per_s", "sync_steps_per_s"))
    return (*rates, f"{row['ratio']:.1f}x")
