"""Training for a given time as one call of `learn`, whose beginning and end cost something of their own."""

from __future__ import annotations

import time
from typing import final

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from dgvf_agents.bench.stopwatch import wait_for


def learn_for(agent: OnPolicyAlgorithm, seconds: float, updates: int = 1) -> None:
    """Train for at least that long, until a multiple of so many updates has been done, and the device is done with it.

    Args:
        agent: any of Stable-Baselines3's kind.
        seconds: ≥ 0.
        updates: ≥ 1; those after which an agent has done everything that it does, so that each counts for its share.
    """
    agent.learn(_FOR_EVER, _UntilClock(seconds, updates), reset_num_timesteps=False)
    wait_for(agent.device)


def rate(agent: OnPolicyAlgorithm, seconds: float, updates: int = 1) -> float:
    """Environment steps per second of `learn_for`."""
    before, start = agent.num_timesteps, time.perf_counter()
    learn_for(agent, seconds, updates)
    return (agent.num_timesteps - before) / (time.perf_counter() - start)


_FOR_EVER = 10**9  # steps


@final
class _UntilClock(BaseCallback):
    """Stops training at the first step of a batch that is not needed: there is no other place where it can."""

    def __init__(self, seconds: float, updates: int) -> None:
        super().__init__()
        self._end, self._unit, self._begun = time.perf_counter() + seconds, updates, 0
        self._enough = False

    def _on_rollout_start(self) -> None:
        self._enough = self._begun > 0 and self._begun % self._unit == 0 and time.perf_counter() >= self._end
        self._begun += 1

    def _on_step(self) -> bool:
        return not self._enough
