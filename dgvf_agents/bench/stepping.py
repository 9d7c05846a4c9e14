"""How fast environments step, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv

WARM_UP_STEPS = 20
"""Steps before the clock starts: buffers are filled, caches warm."""


def median_rates(
    envs: Sequence[VectorEnv | VecEnv], actions: np.ndarray, seconds: float, repetitions: int
) -> list[float]:
    """Environment steps per second, all copies together, of environments that were reset and take turns.

    Args:
        envs: the environments, with N copies each.
        actions: `[K, N]`, K ≥ `WARM_UP_STEPS`: taken in turn, the same by all.
        seconds: how long each repetition runs.
        repetitions: of each environment; the median counts.
    """
    for env in envs:
        for k in range(WARM_UP_STEPS):
            env.step(actions[k])
    rates: list[list[float]] = [[] for _ in envs]
    for _ in range(repetitions):
        for env, rate in zip(envs, rates, strict=True):
            rate.append(_steps_per_second(env, actions, seconds))
    return [statistics.median(rate) for rate in rates]


def _steps_per_second(env: VectorEnv | VecEnv, actions: np.ndarray, seconds: float) -> float:
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or steps == 0:
        env.step(actions[steps % len(actions)])
        steps += 1
    return steps * env.num_envs / elapsed
