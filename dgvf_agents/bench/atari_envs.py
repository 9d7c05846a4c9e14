"""Environment steps per second on Atari: our vector environment, Gymnasium's wrappers, and Stable-Baselines3's."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.table import Table
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

from dgvf_agents.bench.stepping import median_rates
from dgvf_agents.bench.tables import headed
from dgvf_envs.atari import make_atari, make_atari_vec
from dgvf_envs.atari.emulator import title_of


def measure(game: str, n: int, threads: int, seconds: float, repetitions: int) -> dict[str, float | int | str]:
    """The rates of three ways to step a game under the paper's preset, which take turns.

    Stable-Baselines3's `make_atari_env` is measured under `VecFrameStack`; it presses FIRE where we do not, and the
    other two give the same data.

    Args:
        game: in Gymnasium's or ALE's spelling.
        n: the number of copies.
        threads: of our emulators; the others have one.
        seconds: how long each repetition runs.
        repetitions: of each; the median counts.
    """
    ours = make_atari_vec(game, n, "paper", threads)
    wrappers = SyncVectorEnv([lambda: make_atari(game, "paper")] * n, autoreset_mode=AutoresetMode.SAME_STEP)
    sb3 = VecFrameStack(make_atari_env(f"{title_of(game)}NoFrameskip-v4", n, seed=0), 4)
    ours.action_space.seed(0)
    actions = np.stack([ours.action_space.sample() for _ in range(64)])
    ours.reset(seed=0)
    wrappers.reset(seed=0)
    sb3.reset()
    vector_rate, sync_rate, sb3_rate = median_rates([ours, wrappers, sb3], actions, seconds, repetitions)
    for env in (ours, wrappers, sb3):
        env.close()
    return {
        "game": title_of(game),
        "copies": n,
        "threads": threads,
        "vector_steps_per_s": vector_rate,
        "sync_steps_per_s": sync_rate,
        "sb3_steps_per_s": sb3_rate,
        "ratio": vector_rate / sync_rate,
        "sb3_ratio": vector_rate / sb3_rate,
    }


def table(rows: list[dict[str, float | int | str]]) -> Table:
    """What `measure` found, to print."""
    headings = ("game", "copies", "vector env", "SyncVectorEnv", "ratio", "make_atari_env", "ratio")
    shown = headed("Atari: environment steps per second, one process", headings, first_are_names=True)
    for row in rows:
        shown.add_row(
            str(row["game"]),
            f"{row['copies']:,}",
            f"{row['vector_steps_per_s']:,.0f}",
            f"{row['sync_steps_per_s']:,.0f}",
            f"{row['ratio']:.1f}x",
            f"{row['sb3_steps_per_s']:,.0f}",
            f"{row['sb3_ratio']:.1f}x",
        )
    return shown
