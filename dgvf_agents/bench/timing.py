"""Speed of environments and of training, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.execution.devices import CPU

WARM_UP_STEPS = 20
"""Environment steps before the clock starts: buffers are filled, caches warm."""


def stepping_rates(
    envs: Sequence[VectorEnv | VecEnv], actions: np.ndarray, seconds: float, repetitions: int
) -> list[float]:
    """Environment steps per second of vector environments that were reset and take turns.

    Args:
        envs: the environments, with N environments each.
        actions: [K, N], K ≥ `WARM_UP_STEPS`: taken in turn, the same by all.
        seconds: duration of each repetition.
        repetitions: of each environment; the median counts.
    """
    for env in envs:
        for k in range(WARM_UP_STEPS):
            env.step(actions[k])

    def rate_of(env: VectorEnv | VecEnv) -> float:
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or steps == 0:
            env.step(actions[steps % len(actions)])
            steps += 1
        return steps * env.num_envs / elapsed

    return list(median_rates(dict(enumerate(envs)), rate_of, repetitions).values())


def median_rates(measured: Mapping[Any, Any], rate_of: Callable[[Any], float], repetitions: int) -> dict[Any, float]:
    """The median rate of each of several things, which take turns."""
    rates: dict[Any, list[float]] = {name: [] for name in measured}
    for _ in range(repetitions):
        for name, thing in measured.items():
            rates[name].append(rate_of(thing))
    return {name: statistics.median(found) for name, found in rates.items()}


def learn_for(agent: OnPolicyAlgorithm, seconds: float, updates: int = 1) -> None:
    """Train for at least that long in one call of `learn`, whose setup takes time too, and wait for the device.

    Args:
        agent: any on-policy agent.
        seconds: ≥ 0.
        updates: ≥ 1; training stops after a multiple of them, so that meta-updates count for their share.
    """
    agent.learn(_FOREVER, _UntilClock(seconds, updates), reset_num_timesteps=False)
    synchronize(agent.device)


def training_rate(agent: OnPolicyAlgorithm, seconds: float, updates: int = 1) -> float:
    """Environment steps per second of `learn_for`."""
    before, start = agent.num_timesteps, time.perf_counter()
    learn_for(agent, seconds, updates)
    return (agent.num_timesteps - before) / (time.perf_counter() - start)


_FOREVER = 10**9  # steps


@final
class _UntilClock(BaseCallback):
    """Stops at the first step of the first rollout that is not needed; callbacks cannot stop training before it."""

    def __init__(self, seconds: float, updates: int) -> None:
        super().__init__()
        self._end, self._updates, self._rollouts = time.perf_counter() + seconds, updates, 0
        self._stop = False

    def _on_rollout_start(self) -> None:
        whole = self._rollouts > 0 and self._rollouts % self._updates == 0
        self._stop = whole and time.perf_counter() >= self._end
        self._rollouts += 1

    def _on_step(self) -> bool:
        return not self._stop


@final
class Stopwatch:
    """Seconds spent in methods, by part; the time of a nested part is not counted in the outer one.

    It synchronizes with the device before it reads the clock, so that work counts where it is requested.
    """

    def __init__(self, device: torch.device = CPU) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)
        """By part."""
        self._open: list[str] = []
        self._since = 0.0

    def time(self, owner: Any, method: str, part: str) -> None:
        """Count the time of `owner.method` towards `part` from now on."""
        function = getattr(owner, method)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            self._lap()
            self._open.append(part)
            try:
                return function(*arguments, **keywords)
            finally:
                self._lap()
                self._open.pop()

        setattr(owner, method, timed)

    def _lap(self) -> None:
        """Add the time since the last lap to the innermost part."""
        synchronize(self._device)
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


def synchronize(device: torch.device) -> None:
    """Wait for all work on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
