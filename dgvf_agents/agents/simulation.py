"""Acting and stepping in one compiled function, where an environment is simulated: whole rollouts, and episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn
from torch import Tensor

from dgvf_agents.agents.rollout import Step, bootstrap_positions, check_finite_steps
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import Experience, joined
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

MAX_STEPS = 8
"""Maximum number of steps in one compiled function. Longer functions take more time to compile than they save."""


@final
class Simulation:
    """Simulates whole rollouts of an environment, and lets it continue where they end.

    The environment's noise and the policy's noise are drawn beforehand, and nothing else is random. The steps are
    therefore identical to acting and stepping in turn, up to rounding.
    """

    def __init__(
        self,
        fused: Callable[..., tuple[SimulatedRollout, Experience, Tensor]],
        env: DynamicsVectorEnv,
        n_steps: int,
        compilation: Compilation,
        monitors: Sequence[VecMonitor] = (),
        adapter: GymnasiumVecEnv | None = None,
        index_terminated: bool = False,
    ) -> None:
        """
        Args:
            fused: acts and steps, with the arguments of `FusedSteps`.
            env: the environment, as returned by `simulated_world`.
            n_steps: T ≥ 1, steps of a rollout.
            compilation: of the model; has the device of θ.
            monitors: wrappers of the environment, the outermost first.
            adapter: the environment for Stable-Baselines3, under the monitors; needed for `take_rollout`.
            index_terminated: whether `Rollout.bootstrap_index` includes final observations of terminated episodes.
        """
        self._index_terminated, self._adapter = index_terminated, adapter
        self.env, self.monitors = env, tuple(monitors)
        self._made_of = env.dynamics, env.max_episode_steps
        self.steps = max(s for s in range(1, MAX_STEPS + 1) if n_steps % s == 0)
        self._n_steps, self._device = n_steps, compilation.device
        self._fused = Compiled(fused, compilation)
        self._array: Callable[[Tensor], np.ndarray] = Tensor.numpy if self._device.type == "cpu" else _downloaded
        self._latest: tuple[Any, Any] = None, None  # state and observations after the last rollout
        self.parts: list[Experience] = []
        """The last rollout, `steps` steps each."""

    def simulates(self, env: DynamicsVectorEnv) -> bool:
        """Whether it is of this environment, whose dynamics and time limit may have been changed since."""
        dynamics, limit = self._made_of
        return env is self.env and env.dynamics is dynamics and env.max_episode_steps == limit

    def take_rollout(self, theta: Params, noise: Tensor, observations: np.ndarray, compiled: bool) -> Step | None:
        """Simulate a rollout and take all of its steps at once; the same as T steps of the outermost monitor.

        Args:
            theta: packed θ.
            noise: `[T, B, ...]`, of the policy.
            observations: `[B, *obs]`, the latest ones.
            compiled: whether to use the compiled function.

        Returns:
            the last step, with the infos of all steps that ended episodes; `None` if the observations are not those of
            the environment's current state, which something else stepped or reset then.

        Raises:
            ValueError: a reward or an observation is not finite.
        """
        state = self.env.state
        known = state is self._latest[0] and observations is self._latest[1]
        if not (known or np.array_equal(self.env.dynamics.observe(state), observations)):
            return None
        news: list[tuple[list[dict[str, Any]], np.ndarray]] = []
        for simulated in self.take(theta, noise, compiled):
            last = self._monitored(simulated, news)
        self._latest = self.env.state, last[0]
        return Step(simulated.actions[-1], *last, news)  # type: ignore[arg-type]

    def take(
        self, theta: Params, noise: Tensor, compiled: bool, only_finite: bool = True
    ) -> Iterator[SimulatedRollout]:
        """Simulate steps and take them, `steps` at a time. Monitors do not see them.

        Args:
            theta: packed θ.
            noise: `[N * steps, B, ...]`, of the policy.
            compiled: whether to use the compiled function.
            only_finite: whether to check rewards and observations.

        Raises:
            ValueError: a reward or an observation is not finite.
        """
        self.parts, fused = [], self._fused if compiled else self._fused.eager
        for start in range(0, len(noise), self.steps):
            inputs = self.env.simulation_inputs(self.steps)
            state = type(inputs[0])(*map(self._tensor, inputs[0]))
            with torch.no_grad():
                part = noise[start : start + self.steps]
                rollout, experience, finite = fused(theta, part, state, *map(self._tensor, inputs[1:]))
            actions, states, *others = rollout
            simulated = SimulatedRollout(
                self._array(actions), type(state)(*map(self._array, states)), *map(self._array, others)
            )
            self.parts.append(experience)
            self.env.take_steps(simulated)
            if only_finite and not finite:
                check_finite_steps("observations", simulated.final_observations)
                check_finite_steps("rewards", self._array(rollout.rewards.float()))
                raise ValueError("observations and rewards must be finite in single precision, got one that is not")
            yield simulated

    def _monitored(self, simulated: SimulatedRollout, news: list[Any]) -> VecEnvStepReturn:
        """Let the monitors see steps; returns the last of them as the outermost monitor does.

        Args:
            simulated: the steps.
            news: gets the infos of steps that ended episodes, and which ended.
        """
        dones, infos = simulated.terminated | simulated.truncated, {}
        if ended := np.flatnonzero(dones.any(1)).tolist():
            assert self._adapter is not None
            steps = simulated.steps()
            infos = {t: self._adapter.outcome_of(steps[t])[3] for t in ended}
            news += [(infos[t], dones[t]) for t in ended]
        for monitor in reversed(self.monitors):
            for t, i, gained, length in ended_episodes(simulated, monitor.episode_returns, monitor.episode_lengths):
                record_episode(monitor, gained, length, infos[t][i])
        last = infos.get(len(dones) - 1) or _plain_infos(self.env.num_envs)
        return simulated.observations[-1], simulated.rewards[-1].astype(np.float32), dones[-1], last

    def rollout(self, statistics: Params) -> Rollout:
        """The last rollout.

        Args:
            statistics: `Rollout.statistics`.
        """
        return Rollout(**self.experience(), statistics=statistics)

    def experience(self) -> dict[str, Tensor]:
        """The last rollout's fields that experience decides; with a leading axis of members if `fused` gives it one."""
        whole = joined(self.parts)
        ends = self._array(whole["truncated"] | whole["terminated"] if self._index_terminated else whole["truncated"])
        index, slot = self._positions(ends) if ends[..., :-1, :].any() else self._usual_positions
        return {**whole, "bootstrap_index": index, "bootstrap_slot": slot}

    def _positions(self, ends: np.ndarray) -> tuple[Tensor, Tensor]:
        index, slot = bootstrap_positions(ends)
        return upload(index, self._device), upload(slot, self._device)

    @cached_property
    def _usual_positions(self) -> tuple[Tensor, Tensor]:
        """Of rollouts in which no episode ends early."""
        return self._positions(np.zeros(joined(self.parts)["truncated"].shape, bool))

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)


def _downloaded(tensor: Tensor) -> np.ndarray:
    return tensor.numpy(force=True)


def _plain_infos(num_envs: int) -> list[dict[str, Any]]:
    """Infos of a step that ends no episode."""
    return [{"is_success": False, "TimeLimit.truncated": False} for _ in range(num_envs)]


def ended_episodes(
    simulated: SimulatedRollout, returns: np.ndarray, lengths: np.ndarray
) -> Iterator[tuple[int, int, Any, Any]]:
    """Count steps, and yield step, environment, return and length of every episode that ends.

    Args:
        simulated: the steps.
        returns: `[B]`: of the episodes so far; changed in place.
        lengths: `[B]`: likewise.
    """
    rewards, dones = simulated.rewards.astype(np.float32), simulated.terminated | simulated.truncated
    for t, ended in enumerate(dones.any(1).tolist()):
        returns += rewards[t]
        lengths += 1
        for i in np.flatnonzero(dones[t]).tolist() if ended else ():
            yield t, i, returns[i], lengths[i]
            returns[i] = lengths[i] = 0


def record_episode(monitor: VecMonitor, gained: Any, length: Any, info: dict[str, Any]) -> None:
    """Record an episode that ended, as `VecMonitor.step_wait` does, and add it to its last step's info."""
    episode = {"r": gained, "l": length, "t": round(time.time() - monitor.t_start, 6)}
    info["episode"] = episode | {key: info[key] for key in monitor.info_keywords}
    monitor.episode_count += 1
    if monitor.results_writer:
        monitor.results_writer.write_row(info["episode"])


def simulated_world(env: VecEnv) -> tuple[DynamicsVectorEnv, list[VecMonitor], GymnasiumVecEnv] | None:
    """The environment to simulate behind a `VecEnv`.

    Returns:
        the environment, its monitors, the outermost first, and its adapter; `None` if it is not one of `dgvf_envs` or
        if a wrapper, a subclass or a method that was assigned may change actions or observations.
    """
    monitors, inner = [], env
    while isinstance(inner, VecMonitor) and _is_plain(inner, VecMonitor):
        monitors.append(inner)
        inner = inner.venv
    plain = isinstance(inner, GymnasiumVecEnv) and _is_plain(inner, GymnasiumVecEnv)
    if not plain or not isinstance(inner.env, DynamicsVectorEnv):  # type: ignore[attr-defined]
        return None
    return (inner.env, monitors, inner) if inner.env.supports_simulation else None  # type: ignore[attr-defined, return-value]


def _is_plain(env: Any, kind: type[VecEnv]) -> bool:
    """Whether a `VecEnv` has all methods of its class, and no subclass's."""
    return type(env) is kind and vars(env).keys().isdisjoint(_methods(kind))  # type: ignore[arg-type]  # a class


@cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


@final
class SimulatedEpisodes:
    """Episodes of an agent in a simulated environment: several steps of both are one compiled function.

    Evaluation step by step takes longer than training between evaluations where episodes are long, as for an agent
    that stands still in PuddleWorld.
    """

    def __init__(
        self,
        simulation: Simulation,
        env: VecEnv,
        draw_noise: Callable[..., np.ndarray],
        is_compiled: Callable[[], bool],
    ) -> None:
        """
        Args:
            simulation: of rollouts of `MAX_STEPS` steps.
            env: the environment that it simulates.
            draw_noise: `ActionDistribution.draw_noise`.
            is_compiled: whether updates run compiled.
        """
        self._simulation, self._env, self._is_compiled = simulation, env, is_compiled
        self._draw_noise, self._is_prepared = draw_noise, False

    def run(self, theta: Params, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Undiscounted returns and lengths `[episodes]`, of equally many episodes of each environment or one more.

        The same seed gives the same episodes.

        Args:
            theta: packed θ.
            episodes: number of episodes ≥ 1.
            seed: seed of the environments and the actions.

        Returns:
            returns and lengths, or `None` if updates do not run compiled yet; the compilation of the simulation starts
            in the background then.
        """
        if not self._is_compiled():
            if not self._is_prepared:  # a few eager steps, once: the compilation begins
                self._is_prepared = True
                self._take(theta, self._start(0), False)
            return None
        generator, num_envs = self._start(seed), self._env.num_envs
        left, returns, lengths = np.arange(num_envs) + episodes, np.zeros(num_envs), np.zeros(num_envs, int)
        left //= num_envs
        found = []
        while left.any():
            for simulated in self._take(theta, generator, True):
                for _, i, *episode in ended_episodes(simulated, returns, lengths):
                    if left[i]:
                        found.append(episode)
                        left[i] -= 1
        all_returns, all_lengths = zip(*found, strict=True)
        return np.asarray(all_returns), np.asarray(all_lengths)

    def _start(self, seed: int) -> np.random.Generator:
        self._env.seed(seed)
        self._env.reset()
        return np.random.default_rng(seed)

    def _take(self, theta: Params, generator: np.random.Generator, compiled: bool) -> list[SimulatedRollout]:
        noise = self._draw_noise(generator, MAX_STEPS, self._env.num_envs)
        return list(self._simulation.take(theta, upload(noise, next(iter(theta.values())).device), compiled, False))
