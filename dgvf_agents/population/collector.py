"""Collects the rollouts of all members of a population at once, in one simulated environment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.agents.rollout import bootstrap_positions
from dgvf_agents.agents.simulation import Simulation, simulated_world
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Params
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import Experience, PopulationSteps
from dgvf_agents.execution.fused import joined as joined_parts
from dgvf_agents.population.stacking import equally_long
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv, joined, split


@final
class PopulationCollector:
    """The environments of P members, as one of P · B."""

    def __init__(
        self,
        act: Act,
        envs: Sequence[VecEnv],
        observations: Sequence[np.ndarray],
        n_steps: int,
        compilation: Compilation,
    ) -> None:
        """
        Args:
            act: samples the actions of one member.
            envs: the members' environments, each with one `VecMonitor`; changed by `restore` only.
            observations: the latest observations `[B, *obs]` of every member.
            n_steps: T.
            compilation: which rollouts are compiled, and the device.

        Raises:
            ValueError: an environment cannot be simulated, or they differ.
        """
        self._worlds, self._monitors = map(list, zip(*map(_world_and_monitor, envs), strict=True))
        self.num_envs, self._n_steps, self._device = self._worlds[0].num_envs, n_steps, compilation.device
        env = joined(self._worlds)
        fused = PopulationSteps(act, env.dynamics, env.max_episode_steps, self._device, len(envs))
        self._simulation = Simulation(fused, env, n_steps, compilation)
        self._observations = np.concatenate(observations)
        self._returns = np.concatenate([monitor.episode_returns for monitor in self._monitors])
        self._lengths = np.concatenate([monitor.episode_lengths for monitor in self._monitors])
        self._dones = np.zeros(len(self._returns), bool)
        self._episodes: list[list[tuple[dict[str, Any], bool]]] = [[] for _ in envs]
        self._usual_positions: tuple[Tensor, Tensor] | None = None

    def collect(self, theta: Params, noise: Sequence[np.ndarray], compiled: bool) -> dict[str, Any]:
        """Collect one rollout of every member.

        Args:
            theta: packed θ `[P, n]`.
            noise: the policies' noise `[T, B, ...]` of every member.
            compiled: whether the steps run compiled.

        Returns:
            the fields of `Rollout` that experience decides, each with a leading axis of members.

        Raises:
            ValueError: an observation or a reward is not finite.
        """
        drawn = upload(np.concatenate(noise, axis=1), self._device)
        self._simulation.start_rollout()
        for start in range(0, self._n_steps, self._simulation.steps):
            part = drawn[start : start + self._simulation.steps]
            simulated, finite = self._simulation.take_part(theta, part, compiled)
            if not finite:
                raise ValueError("observations and rewards must be finite, got one that is not")
            for step in simulated.steps():
                self._count(step)
        return self._fields(self._simulation.parts)

    def _fields(self, parts: Sequence[Experience]) -> dict[str, Any]:
        whole = joined_parts(parts, time_axis=1)
        index, slot = self._bootstrap_positions(whole["truncated"].numpy(force=True))
        return {**whole, "bootstrap_index": index, "bootstrap_slot": slot, "statistics": {}}

    def _bootstrap_positions(self, truncated: np.ndarray) -> tuple[Tensor, Tensor]:
        """`bootstrap_positions` of every member on the device; those without early ends are always the same."""
        usual = not truncated[:, :-1].any()
        if usual and self._usual_positions is not None:
            return self._usual_positions
        found = [bootstrap_positions(own) for own in truncated]
        indices = torch.stack(equally_long([torch.from_numpy(index) for index, _ in found])).numpy()
        positions = upload(indices, self._device), upload(np.stack([slot for _, slot in found]), self._device)
        if usual:
            self._usual_positions = positions
        return positions

    def _count(self, step: SimulatedRollout) -> None:
        """Take a step into the episodes' returns and lengths, as `VecMonitor` does."""
        self._observations = step.observations
        self._returns += step.rewards.astype(np.float32)
        self._lengths += 1
        self._dones = step.terminated | step.truncated
        for i in np.flatnonzero(self._dones).tolist():
            member = i // self.num_envs
            seconds = round(time.time() - self._monitors[member].t_start, 6)
            episode = {"r": self._returns[i], "l": self._lengths[i], "t": seconds}
            self._episodes[member].append((episode, bool(step.success[i])))
        self._returns[self._dones], self._lengths[self._dones] = 0, 0

    def episodes(self, member: int) -> list[tuple[dict[str, Any], bool]]:
        """Return, length and time of the member's episodes since the last call, as a `VecMonitor` gives them, and
        whether each succeeded.
        """
        found, self._episodes[member] = self._episodes[member], []
        monitor = self._monitors[member]
        monitor.episode_count += len(found)
        if monitor.results_writer:
            for episode, _ in found:
                monitor.results_writer.write_row(episode)
        return found

    def latest(self, member: int) -> tuple[np.ndarray, np.ndarray]:
        """The member's latest observations `[B, *obs]`, and whether an episode starts with each `[B]`."""
        rows = self._rows(member)
        return self._observations[rows].copy(), self._dones[rows].copy()

    def restore(self, member: int) -> None:
        """Let the member's own environment continue where it is here."""
        rows, monitor = self._rows(member), self._monitors[member]
        split(self._simulation.env, rows.start, self._worlds[member])
        monitor.episode_returns[:], monitor.episode_lengths[:] = self._returns[rows], self._lengths[rows]

    def _rows(self, member: int) -> slice:
        return slice(member * self.num_envs, (member + 1) * self.num_envs)


def _world_and_monitor(env: VecEnv) -> tuple[DynamicsVectorEnv[Any], VecMonitor]:
    found = simulated_world(env)
    if found is None or len(found[1]) != 1:
        raise ValueError(
            f"env must be an environment of dgvf_envs under one VecMonitor, as make_vec returns, got {env}"
        )
    world, (monitor,), _ = found
    return world, monitor
