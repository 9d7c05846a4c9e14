"""Environment steps per second: our vector environments beside `SyncVectorEnv`, on Atari beside others' too."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

import dgvf_envs
from dgvf_agents.bench.harness import Benchmark, Row, combinations, compared, seconds_per_call
from dgvf_envs.atari import make_atari, make_atari_vec
from dgvf_envs.atari.games import title_of

WORLDS, GAMES = "Environment steps per second, one process", "Agent steps per second, one process"
"""Titles of tables."""


@final
@dataclass(frozen=True, kw_only=True)
class EnvsBenchmark(Benchmark):
    """Environment steps per second: our vector environments beside SyncVectorEnv over our scalar ones."""

    name: ClassVar[str] = "envs"
    isolated: ClassVar[bool] = False
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

    def cases(self) -> list[Row]:
        titles = [title_of(game) for game in self.games]
        worlds = combinations(table=[WORLDS], environment=self.ids, copies=self.copies)
        return worlds + combinations(table=[GAMES], environment=titles, copies=self.game_copies)

    def measure(self, case: Row) -> list[Row]:
        name, copies = case["environment"], case["copies"]
        if case["table"] == WORLDS:
            modes = {"vector env": "vector_entry_point", "SyncVectorEnv": "sync"}
            made = {side: gym.make_vec(name, num_envs=copies, vectorization_mode=mode) for side, mode in modes.items()}
            return [stepping_rates(made, self.seconds, self.repetitions)]
        # the paper's preset; Stable-Baselines3's presses FIRE where we do not, the other two give the same data
        same_step = AutoresetMode.SAME_STEP
        games: dict[str, VectorEnv | VecEnv] = {
            "vector env": make_atari_vec(name, copies, "paper", self.threads),
            "SyncVectorEnv": SyncVectorEnv([lambda: make_atari(name, "paper")] * copies, autoreset_mode=same_step),
            "make_atari_env": VecFrameStack(make_atari_env(f"{name}NoFrameskip-v4", copies, seed=0), 4),
        }
        return [stepping_rates(games, self.seconds, self.repetitions)]


def stepping_rates(envs: Mapping[str, VectorEnv | VecEnv], seconds: float, repetitions: int) -> Row:
    """Environment steps per second of vector environments, which take turns and are closed.

    Args:
        envs: the environments by name, with N environments each, the first a Gymnasium `VectorEnv`.
        seconds: duration of each repetition.
        repetitions: of each environment; the median counts.

    Returns:
        the rate of each, and ratios of the first.
    """
    first = next(iter(envs.values()))
    first.action_space.seed(0)
    actions = np.stack([first.action_space.sample() for _ in range(64)])  # [64, N], the same for all
    for env in envs.values():
        env.reset(seed=0) if isinstance(env, VectorEnv) else env.reset()
        for k in range(20):  # buffers are filled, caches warm
            env.step(actions[k])

    def rate(env: VectorEnv | VecEnv, seconds: float) -> float:
        drawn = itertools.cycle(actions)
        return env.num_envs / seconds_per_call(lambda: env.step(next(drawn)), seconds)

    ratios = {f"to {name}": ("vector env", name) for name in envs if name != "vector env"}
    found = compared({name: partial(rate, env) for name, env in envs.items()}, seconds, repetitions, ratios)
    for env in envs.values():
        env.close()
    return found
