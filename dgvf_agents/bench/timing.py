"""Speed and memory of training."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, final

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.execution.devices import CPU

T = TypeVar("T")

Rate = Callable[[float], float]
"""Environment steps per second of something that trains for at least the given seconds."""


def median_rates(measured: Mapping[str, T], rate_of: Callable[[T], float], repetitions: int) -> dict[str, float]:
    """The median rate of each of several things, which take turns."""
    rounds = [{name: rate_of(thing) for name, thing in measured.items()} for _ in range(repetitions)]
    return {name: statistics.median(rates[name] for rates in rounds) for name in measured}


def updates_per_meta_update(agent: OnPolicyAlgorithm) -> int:
    """L of an agent that discovers; 1 without meta-updates."""
    return agent.unroll_length if isinstance(agent, DiscoveryAlgorithm) and agent.task.discovers else 1


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


@final
class Training:
    """An agent whose training is timed, over whole meta-updates."""

    def __init__(self, agent: OnPolicyAlgorithm, skipped: int = 0) -> None:
        """
        Args:
            agent: any on-policy agent, warm.
            skipped: updates of each call of `learn` that are not timed. Distributed actors start with `learn`, and the
                first batches may have waited for the learner or the reverse.
        """
        self.agent = agent
        self._skipped, self._collecting, self._learning, self._updates = skipped, 0.0, 0.0, 0

    def rate(self, seconds: float) -> float:
        """Train for at least so long; environment steps per second."""
        watch = _Watch(seconds, updates_per_meta_update(self.agent), self._skipped)
        self.agent.learn(10**9, watch, reset_num_timesteps=False)
        self._collecting += watch.collecting
        self._learning += watch.seconds - watch.collecting
        self._updates += watch.updates
        return watch.steps / watch.seconds

    def parts(self) -> dict[str, float]:
        """Milliseconds per update so far, to collect its rollout and to learn from it, its share of meta-updates too.

        What a GPU still computes when a rollout starts counts as collecting.
        """
        return {
            "collecting": 1e3 * self._collecting / self._updates,
            "learning": 1e3 * self._learning / self._updates,
        }


@final
class _Watch(BaseCallback):
    """Times whole rollouts with their updates; stops at the first step after these, the earliest that it can."""

    def __init__(self, least: float, multiple: int, skipped: int) -> None:
        super().__init__()
        self.seconds = self.collecting = 0.0
        self.steps = 0
        self.updates = -skipped
        self._least, self._multiple = least, multiple
        self._start, self._rollout, self._first = 0.0, 0.0, 0

    def _on_rollout_start(self) -> None:
        if self.updates >= 0 and self.updates % self._multiple == 0:
            synchronize(self.model.device)
        now = self._rollout = time.perf_counter()
        if self.updates == 0:
            self._start, self._first = now, self.num_timesteps
        elif self.updates > 0 and self.updates % self._multiple == 0 and now - self._start >= self._least:
            self.seconds, self.steps = now - self._start, self.num_timesteps - self._first

    def _on_rollout_end(self) -> None:
        if self.updates >= 0:
            self.collecting += time.perf_counter() - self._rollout
        self.updates += 1

    def _on_step(self) -> bool:
        return not self.seconds


def growth_of(model: DiscoveryAlgorithm) -> dict[str, float]:
    """Time per update of a new model over two meta-updates, and peak memory above the warm, idle model's."""
    updates = warm_up(model)
    model.learner.restart_unroll()
    peak, start = Peak(model.device), time.perf_counter()
    learn_updates(model, updates)
    elapsed = time.perf_counter() - start
    return {"ms_per_update": 1e3 * elapsed / updates, "peak_mib": peak.mib()}


@final
class Peak:
    """Peak memory since construction, above the memory in use then."""

    def __init__(self, device: torch.device = CPU) -> None:
        """
        Args:
            device: whose memory; on a CUDA device, PyTorch's tensors.
        """
        self._device = device
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps would hide what is allocated next
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._idle = torch.cuda.memory_allocated(device) / 2**20
        else:
            self._idle = resident_mib()
            Path("/proc/self/clear_refs").write_text("5")

    def mib(self) -> float:
        """In MiB, so far."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20 - self._idle
        return resident_mib("VmHWM") - self._idle


def resident_mib(name: str = "VmRSS") -> float:
    """Resident memory of this process; with `"VmHWM"`, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024  # from KiB


def synchronize(device: torch.device) -> None:
    """Wait for all work on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
