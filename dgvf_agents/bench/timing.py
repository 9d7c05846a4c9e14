"""Speed of environments and of training, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, final

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.bench.report import Row
from dgvf_agents.core.unroll import Unroll
from dgvf_agents.execution.devices import CPU

T = TypeVar("T")

WARM_UP_STEPS = 20
"""Environment steps before the clock starts: buffers are filled, caches warm."""


def stepping_rates(envs: Mapping[str, VectorEnv | VecEnv], seconds: float, repetitions: int) -> Row:
    """Environment steps per second of vector environments, which take turns and are closed.

    Args:
        envs: the environments by name, with N environments each, the first a Gymnasium `VectorEnv`.
        seconds: duration of each repetition.
        repetitions: of each environment; the median counts.

    Returns:
        `NAME_steps_per_s` of each.
    """
    first = next(iter(envs.values()))
    first.action_space.seed(0)
    actions = np.stack([first.action_space.sample() for _ in range(64)])  # [64, N], the same for all
    for env in envs.values():
        env.reset(seed=0) if isinstance(env, VectorEnv) else env.reset()
        for k in range(WARM_UP_STEPS):
            env.step(actions[k])

    def rate_of(env: VectorEnv | VecEnv) -> float:
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or steps == 0:
            env.step(actions[steps % len(actions)])
            steps += 1
        return steps * env.num_envs / elapsed

    rates = median_rates(envs, rate_of, repetitions)
    for env in envs.values():
        env.close()
    return {f"{name}_steps_per_s": rate for name, rate in rates.items()}


def median_rates(measured: Mapping[str, T], rate_of: Callable[[T], float], repetitions: int) -> dict[str, float]:
    """The median rate of each of several things, which take turns."""
    rounds = [{name: rate_of(thing) for name, thing in measured.items()} for _ in range(repetitions)]
    return {name: statistics.median(rates[name] for rates in rounds) for name in measured}


def training_rates(agents: Mapping[str, OnPolicyAlgorithm], seconds: float, repetitions: int) -> Row:
    """Environment steps per second of agents that take turns, by name."""
    for agent in agents.values():
        warm_up(agent)
    return {"steps_per_s": median_rates(agents, lambda agent: training_rate(agent, seconds), repetitions)}


def training_rate(agent: OnPolicyAlgorithm, seconds: float) -> float:
    """Environment steps per second of `learn_for`."""
    before, start = agent.num_timesteps, time.perf_counter()
    learn_for(agent, seconds)
    return (agent.num_timesteps - before) / (time.perf_counter() - start)


def learn_for(agent: OnPolicyAlgorithm, seconds: float) -> None:
    """Train for at least that long in one call of `learn`, whose setup takes time too, and wait for the device.

    Training stops after a multiple of the updates per meta-update, so that meta-updates count for their share.

    Args:
        agent: any on-policy agent.
        seconds: ≥ 0.
    """
    agent.learn(_FOREVER, _UntilClock(seconds, updates_per_meta_update(agent)), reset_num_timesteps=False)
    synchronize(agent.device)


def learn_updates(agent: OnPolicyAlgorithm, updates: int) -> None:
    """Train for a number of updates, and wait for the device."""
    agent.learn(updates * agent.n_envs * agent.n_steps, reset_num_timesteps=False)
    synchronize(agent.device)


def warm_up(agent: OnPolicyAlgorithm) -> int:
    """Train for two meta-updates, after which all is compiled; returns how many updates that took.

    The first meta-update comes with the batch after an unroll, and one more follows.
    """
    updates = 2 * updates_per_meta_update(agent) + 1
    learn_updates(agent, updates)
    return updates


def updates_per_meta_update(agent: OnPolicyAlgorithm) -> int:
    """L of an agent that discovers; 1 without meta-updates."""
    return agent.unroll_length if isinstance(agent, DiscoveryAlgorithm) and agent.task.discovers else 1


def steady_rate(agent: DiscoveryAlgorithm, seconds: float) -> float:
    """Environment steps per second of one call of `learn`, without its first two meta-updates or ten updates.

    Distributed actors start with `learn`, and the first batches may have waited for the learner or the reverse.
    """
    per_meta_update = updates_per_meta_update(agent)
    clock = _SteadyClock(seconds, per_meta_update, max(2 * per_meta_update, 10))
    agent.learn(_FOREVER, clock, reset_num_timesteps=False)
    return clock.rate


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
class _SteadyClock(BaseCallback):
    """Measures from the start of a rollout to that of another, a multiple of some updates later, and stops there."""

    def __init__(self, seconds: float, updates: int, before: int) -> None:
        super().__init__()
        self.rate = 0.0
        self._seconds, self._updates, self._before, self._rollouts = seconds, updates, before, 0
        self._steps, self._start = 0, 0.0

    def _on_rollout_start(self) -> None:
        measured, now = self._rollouts - self._before, time.perf_counter()
        self._rollouts += 1
        if measured == 0:
            self._steps, self._start = self.num_timesteps, now
        elif measured > 0 and measured % self._updates == 0 and now - self._start >= self._seconds:
            self.rate = (self.num_timesteps - self._steps) / (now - self._start)

    def _on_step(self) -> bool:
        return not self.rate


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


PARTS = ("environment", "acting", "inner updates", "inner updates with a meta-loss", "meta-gradient", "rest")
"""Of training. The rest is bookkeeping: episodes, callbacks, assembling batches.

With summed meta-losses, an update is compiled together with the meta-loss of the parameters before it, from the same
batch.
"""


def parts_of(model: DGVFA2C, seconds: float) -> tuple[dict[str, float], int]:
    """Seconds spent in each of `PARTS` when a new model trains for at least `seconds`, and the number of updates."""
    watch = Stopwatch(model.device)
    watch.time(model.env, "step", "environment")
    for method in ("actions", "simulated_actions"):  # the latter steps simulated environments, too
        watch.time(model._collector.actor, method, "acting")
    watch.time(model, "train", "inner updates")
    watch.time(model.learner, "_meta_update", "meta-gradient")
    new_unroll = model.learner._new_unroll

    def timed_unroll(update: int) -> Unroll:
        unroll = new_unroll(update)
        for method in ("add_meta_loss", "gradient"):
            watch.time(unroll, method, "meta-gradient")
        watch.time(unroll, "update_with_meta_loss", "inner updates with a meta-loss")
        return unroll

    vars(model.learner)["_new_unroll"] = timed_unroll
    warm_up(model)
    watch.time(model, "learn", "rest")
    watch.seconds.clear()
    before = model._n_updates
    learn_for(model, seconds)
    return {part: watch.seconds[part] for part in PARTS}, model._n_updates - before


def synchronize(device: torch.device) -> None:
    """Wait for all work on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
