"""Environment steps per second: our vector environments beside `SyncVectorEnv`, on Atari beside others' too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import track

import dgvf_envs
from dgvf_agents.bench import atari_envs
from dgvf_agents.bench.report import write_report
from dgvf_agents.bench.stepping import median_rates
from dgvf_agents.bench.tables import headed


@dataclass(frozen=True)
class EnvsBenchmark:
    """Measure environment steps per second on one core."""

    ids: tuple[str, ...] = tuple(dgvf_envs.ENVIRONMENTS)
    """Environments to measure."""
    copies: tuple[int, ...] = (16, 256, 4096)
    """Numbers of copies in a vector environment."""
    games: tuple[str, ...] = ("Breakout", "Pong")
    """Atari games to measure."""
    game_copies: tuple[int, ...] = (16,)
    """Numbers of copies of a game."""
    threads: int = 1
    """Threads of our Atari emulators. The others have one, so that more than one is not one core against one."""
    seconds: float = 0.5
    """How long each of the repetitions runs."""
    repetitions: int = 3
    """Repetitions; the median counts. The two sides take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none when left out."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds!r}")
        if self.repetitions < 1 or any(n < 1 for n in self.copies):
            raise ValueError(f"repetitions and copies must be >= 1, got {self.repetitions!r} and {self.copies!r}")
        if self.threads < 1 or any(n < 1 for n in self.game_copies):
            raise ValueError(f"threads and game_copies must be >= 1, got {self.threads!r} and {self.game_copies!r}")


def run(benchmark: EnvsBenchmark) -> list[dict[str, float | int | str]]:
    """Measure, print the table, and write the report; returns its rows."""
    console = Console()
    cases = [(env_id, n) for env_id in benchmark.ids for n in benchmark.copies]
    rows = [_measure(benchmark, env_id, n) for env_id, n in track(cases, "measuring", console=console, transient=True)]
    headings = ("environment", "copies", "vector env", "SyncVectorEnv", "ratio")
    table = headed("Environment steps per second, one process", headings, first_are_names=True)
    for row in rows:
        table.add_row(
            str(row["id"]),
            f"{row['copies']:,}",
            f"{row['vector_steps_per_s']:,.0f}",
            f"{row['sync_steps_per_s']:,.0f}",
            f"{row['ratio']:.1f}x",
        )
    if rows:
        console.print(table)
    game_cases = [(game, n) for game in benchmark.games for n in benchmark.game_copies]
    game_rows = [
        atari_envs.measure(game, n, benchmark.threads, benchmark.seconds, benchmark.repetitions)
        for game, n in track(game_cases, "measuring games", console=console, transient=True)
    ]
    if game_rows:
        console.print(atari_envs.table(game_rows))
    rows += game_rows
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench envs", benchmark, rows)
    return rows


def _measure(benchmark: EnvsBenchmark, env_id: str, n: int) -> dict[str, float | int | str]:
    modes = ("vector_entry_point", "sync")
    envs = [gym.make_vec(env_id, num_envs=n, vectorization_mode=mode) for mode in modes]
    actions = np.stack([envs[0].action_space.sample() for _ in range(64)])
    for env in envs:
        env.reset(seed=0)
    vector, sync = median_rates(envs, actions, benchmark.seconds, benchmark.repetitions)
    for env in envs:
        env.close()
    return {
        "id": env_id,
        "copies": n,
        "vector_steps_per_s": vector,
        "sync_steps_per_s": sync,
        "ratio": vector / sync,
    }
