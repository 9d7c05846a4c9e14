"""Acting: step by step, or several steps of policy and environment in one compiled function, where it is simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn
from torch import Tensor

from dgvf_agents.agents.rollout import Arrays, Step, bootstrap_positions, check_finite_steps
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import Experience, FusedSteps, joined
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv

MAX_STEPS = 8
"""Maximum number of steps in one compiled function. Longer functions take more time to compile than they save."""


@final
class Simulation:
    """Simulates the next steps of an environment; the environment caches the outcomes.

    The environment's noise and the policy's noise are drawn beforehand, and nothing else is random. The steps are
    therefore identical to acting and stepping in turn.
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
        self.steps = max(s for s in range(1, MAX_STEPS + 1) if n_steps % s == 0)
        self._n_steps, self._device = n_steps, compilation.device
        self._fused = Compiled(fused, compilation)
        self._array: Callable[[Tensor], np.ndarray] = Tensor.numpy if self._device.type == "cpu" else _downloaded
        self._outcomes: list[SimulatedRollout] = []  # of the `steps` steps simulated last
        self._latest: tuple[Any, Any] = None, None  # state and observations after the steps that were ever simulated
        self._rewards = np.empty(0, np.float32)  # `[steps, B]`
        self._log_probs: Tensor | None = None  # `[steps, B]`, of their actions
        self._episode_ends: list[bool] = []  # whether an episode ends in each of them
        self.parts: list[Experience] = []
        """The rollout so far, `steps` steps each."""
        self._has_ends = False  # whether an episode ends in the rollout
        self._usual_positions: tuple[Tensor, Tensor] | None = None

    def start_rollout(self) -> None:
        """Forget all simulated steps."""
        self._outcomes, self.parts, self._has_ends = [], [], False

    def simulate(self, theta: Params, noise: Tensor, observations: np.ndarray, compiled: bool = True) -> bool:
        """Simulate the next `steps` steps.

        Args:
            theta: packed θ.
            noise: `[steps, B, ...]`, of the policy.
            observations: `[B, *obs]`, the latest ones.
            compiled: whether to use the compiled function. An eager one is slower than acting step by step.

        Returns:
            whether they were: false, if the observations do not belong to the environment's current state. Something
            else stepped or reset it then, and the agent must act on the observations it has.
        """
        inputs = self.env.lookahead_inputs(self.steps)
        if not self._is_current(inputs[0], observations):
            self.start_rollout()
            return False
        simulated, experience, finite = self._simulated(theta, noise, inputs, compiled)
        self._outcomes = self.env.set_lookahead(simulated)
        self._latest = self._outcomes[-1].states, self._outcomes[-1].observations
        self._rewards = simulated.rewards.astype(np.float32)
        self._episode_ends = (simulated.terminated | simulated.truncated).any(1).tolist()
        self._has_ends |= any(self._episode_ends)
        self._log_probs = experience.get("behavior_log_probs")
        if bool(finite):
            self.parts.append(experience)
        return True

    def _is_current(self, state: Any, observations: np.ndarray) -> bool:
        """Whether observations belong to the environment's current state."""
        if state is self._latest[0] and observations is self._latest[1]:
            return True
        return np.array_equal(self.env.dynamics.observe(state), observations)

    def take_rollout(
        self, theta: Params, noise: Tensor, observations: np.ndarray, compiled: bool = True
    ) -> tuple[Any, ...] | None:
        """Simulate a rollout and take all of its steps at once; the same as T steps of the outermost monitor.

        Args:
            theta: packed θ.
            noise: `[T, B, ...]`, of the policy.
            observations: `[B, *obs]`, the latest ones.
            compiled: whether to use the compiled function.

        Returns:
            actions, observations, rewards, whether episodes ended and infos of the last step, and the infos of all
            steps that ended episodes; `None` if the observations are not those of the environment's current state.

        Raises:
            ValueError: a reward or an observation is not finite.
        """
        if not self._is_current(self.env.lookahead_inputs(0)[0], observations):
            return None
        news: list[tuple[list[dict[str, Any]], np.ndarray]] = []
        outcome: Any = None
        for start in range(0, self._n_steps, self.steps):
            simulated, finite = self.take_part(theta, noise[start : start + self.steps], compiled)
            if not finite:
                check_finite_steps("observations", simulated.final_observations)
                check_finite_steps("rewards", self._array(self.parts[-1]["rewards"]))
            outcome = self._monitored(simulated, news)
        self._has_ends = bool(news)
        self._latest = self.env.lookahead_inputs(0)[0], outcome[0]
        return (simulated.actions[-1], *outcome, news)

    def take_part(self, theta: Params, noise: Tensor, compiled: bool = True) -> tuple[SimulatedRollout, bool]:
        """Simulate the next `steps` steps and take them all at once. Monitors do not see them.

        Args:
            theta: packed θ.
            noise: `[steps, B, ...]`, of the policy.
            compiled: whether to use the compiled function.

        Returns:
            the steps, and whether all of them are finite.
        """
        simulated, experience, finite = self._simulated(theta, noise, self.env.lookahead_inputs(self.steps), compiled)
        self.parts.append(experience)
        self.env.take_steps(simulated)
        return simulated, bool(finite)

    def _monitored(self, simulated: SimulatedRollout, news: list[Any]) -> VecEnvStepReturn:
        """Let the monitors see steps; returns the last of them as the outermost monitor does.

        Args:
            simulated: the steps.
            news: gets the infos of steps that ended episodes, and which ended.
        """
        rewards, dones = simulated.rewards.astype(np.float32), simulated.terminated | simulated.truncated
        for t, ended in enumerate(dones.any(1).tolist()):
            for monitor in self.monitors:
                monitor.episode_returns += rewards[t]
                monitor.episode_lengths += 1
            if ended:
                assert self._adapter is not None
                infos = self._adapter.outcome_of(simulated.steps()[t])[3]
                for monitor in reversed(self.monitors):
                    end_episodes(monitor, dones[t], infos)
                news.append((infos, dones[t]))
        last = infos if ended else _plain_infos(self.env.num_envs)
        return simulated.observations[-1], rewards[-1], dones[-1], last

    def _simulated(
        self, theta: Params, noise: Tensor, inputs: tuple[Any, ...], compiled: bool
    ) -> tuple[SimulatedRollout, Experience, Tensor]:
        """The steps from `inputs` on in NumPy, the learner's view of them, and whether all of it is finite."""
        state = type(inputs[0])(*map(self._tensor, inputs[0]))
        fused = self._fused if compiled else self._fused.eager
        with torch.no_grad():
            rollout, experience, finite = fused(theta, noise, state, *map(self._tensor, inputs[1:]))
        actions, states, *others = rollout
        simulated = SimulatedRollout(
            self._array(actions), type(state)(*map(self._array, states)), *map(self._array, others)
        )
        return simulated, experience, finite

    def actions(self, observations: np.ndarray, t: int) -> np.ndarray | None:
        """Simulated actions `[B]`.

        Args:
            observations: `[B, *obs]`, the latest ones.
            t: step of the simulated ones.

        Returns:
            the actions, or `None` if the steps are not simulated or something else stepped or reset the environment.
        """
        expected = self._outcomes and (t == 0 or observations is self._outcomes[t - 1].observations)
        if not (expected and self.env.has_lookahead):
            self.start_rollout()
            return None
        return self._outcomes[t].actions

    def log_probs(self, t: int) -> Tensor | None:
        """`[B]`: log-probabilities of the actions that `actions` returned for step t, if the policy gives them."""
        return None if self._log_probs is None else self._log_probs[t]

    def step_within_episodes(self, t: int) -> VecEnvStepReturn | None:
        """Step the environment and its monitors, if `actions` returned step t's actions and no episode ends in it.

        The same as `env.step` of the outermost monitor, in a fraction of the time.
        """
        if self._episode_ends[t]:
            return None
        simulated, rewards = self.step(t), self._rewards[t]
        for monitor in self.monitors:
            monitor.episode_returns += rewards
            monitor.episode_lengths += 1
        infos = _plain_infos(self.env.num_envs)
        return simulated.observations, rewards, simulated.terminated, infos

    def step(self, t: int) -> SimulatedRollout:
        """Step the environment with the simulated actions of step t; returns the step, without the time axis."""
        simulated = self.env.simulated_step(self._outcomes[t].actions)
        assert simulated is not None
        return simulated

    @property
    def current_actions(self) -> np.ndarray | None:
        """`[steps, B]`: the actions simulated last, whether or not they were taken since."""
        return np.stack([outcome.actions for outcome in self._outcomes]) if self._outcomes else None

    @property
    def current_log_probs(self) -> Tensor | None:
        """`[steps, B]`: the log-probabilities of `current_actions`, if the policy gives them."""
        return self._log_probs if self._outcomes else None

    def rollout(self, last_observations: np.ndarray, statistics: Params) -> Rollout | None:
        """The rollout, if all of its steps were simulated and everything in it is finite.

        Args:
            last_observations: `[B, *obs]`, the latest ones.
            statistics: `Rollout.statistics`.
        """
        unfinished = len(self.parts) * self.steps < self._n_steps
        if unfinished or last_observations is not self._latest[1]:
            return None
        whole = joined(self.parts)
        index, slot = self._bootstrap_positions(whole)
        return Rollout(**whole, bootstrap_index=index, bootstrap_slot=slot, statistics=statistics)

    def _bootstrap_positions(self, whole: Experience) -> tuple[Tensor, Tensor]:
        """`bootstrap_positions` on the device; those without ends of episodes are always the same."""
        if not self._has_ends and self._usual_positions is not None:
            return self._usual_positions
        ends = whole["truncated"] | whole["terminated"] if self._index_terminated else whole["truncated"]
        index, slot = bootstrap_positions(self._array(ends))
        positions = upload(index, self._device), upload(slot, self._device)
        if not self._has_ends:
            self._usual_positions = positions
        return positions

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)


def _downloaded(tensor: Tensor) -> np.ndarray:
    return tensor.numpy(force=True)


def _plain_infos(num_envs: int) -> list[dict[str, Any]]:
    """Infos of a step that ends no episode."""
    return [{"is_success": False, "TimeLimit.truncated": False} for _ in range(num_envs)]


def end_episodes(monitor: VecMonitor, dones: np.ndarray, infos: list[dict[str, Any]]) -> None:
    """Record the episodes that ended in a step, as `VecMonitor.step_wait` does, and add them to the infos."""
    for i in np.flatnonzero(dones).tolist():
        seconds = round(time.time() - monitor.t_start, 6)
        episode = {"r": monitor.episode_returns[i], "l": monitor.episode_lengths[i], "t": seconds}
        episode |= {key: infos[i][key] for key in monitor.info_keywords}
        infos[i]["episode"] = episode
        monitor.episode_count += 1
        monitor.episode_returns[i] = monitor.episode_lengths[i] = 0
        if monitor.results_writer:
            monitor.results_writer.write_row(episode)


def simulated_world(env: VecEnv) -> tuple[DynamicsVectorEnv, list[VecMonitor], GymnasiumVecEnv] | None:
    """The environment to simulate behind a `VecEnv`.

    Returns:
        the environment, its monitors, the outermost first, and its adapter; `None` if it is not one of `dgvf_envs` or
        if a wrapper may change actions or observations.
    """
    monitors = []
    while type(env) is VecMonitor:
        monitors.append(env)
        env = env.venv
    if not isinstance(env, GymnasiumVecEnv) or not isinstance(env.env, DynamicsVectorEnv):
        return None
    return (env.env, monitors, env) if env.env.supports_lookahead else None


@final
class Actor:
    """Samples actions during rollout collection. The noise of a whole rollout is drawn at its start."""

    def __init__(
        self,
        act: Act,
        distribution: ActionDistribution,
        n_steps: int,
        compilation: Compilation,
        updates: Callable[[], int] = lambda: 0,
        exploration: Callable[[], Tensor] | None = None,
        index_terminated: bool = False,
    ) -> None:
        """
        Args:
            act: samples actions.
            distribution: distribution of the actions; draws the noise.
            n_steps: T, steps of a rollout.
            compilation: which rollouts are compiled, and the device of θ. Environments are simulated only if rollouts
                are, now or later: NumPy is faster otherwise.
            updates: returns the number of updates so far.
            exploration: returns the exploration matrices of gSDE, which replace the noise.
            index_terminated: see `Simulation`.
        """
        self._index_terminated = index_terminated
        self._plain_act, self._act = act, Compiled(act, compilation)
        self._distribution, self._n_steps, self._device = distribution, n_steps, compilation.device
        self._updates, self._exploration = updates, exploration
        self.compilation = compilation
        """Which rollouts are compiled."""
        self._rng = np.random.default_rng()
        self._noise: np.ndarray | None = None
        self._uploaded_noise: Tensor | None = None
        self._simulation: Simulation | None = None
        self._restored_actions: np.ndarray | None = None  # simulated before the state was saved
        self._restored_log_probs: Tensor | None = None
        self.log_probs: Tensor | None = None
        """`[B]`: log-probabilities of the actions sampled last, if `act` gives them."""

    def seed(self, seed: int) -> None:
        """Seed the noise of the next rollouts."""
        self._rng = np.random.default_rng(seed)

    def elsewhere(self, n_steps: int) -> Actor:
        """An actor of the same agent for another environment, with noise of its own.

        Args:
            n_steps: T of its rollouts.
        """
        given = (self._plain_act, self._distribution, n_steps, self.compilation, self._updates)
        return Actor(*given, self._exploration, self._index_terminated)

    def set_env(self, env: VecEnv) -> None:
        """Set the environment. Its rollouts are simulated if possible."""
        found = simulated_world(env) if self.compilation.planned else None
        if found is None:
            self._simulation = None
        elif self._simulation is None or self._simulation.env is not found[0]:
            world, monitors, adapter = found
            fused = FusedSteps(self._plain_act, world.dynamics, world.max_episode_steps, self._device)
            self._simulation = Simulation(
                fused, world, self._n_steps, self.compilation, monitors, adapter, self._index_terminated
            )

    def start_rollout(self, num_envs: int) -> None:
        """Draw the noise of a rollout."""
        self._noise, self._uploaded_noise = self.draw_noise(num_envs), None
        self._restored_actions = None
        if self._simulation is not None:
            self._simulation.start_rollout()

    def draw_noise(self, num_envs: int) -> np.ndarray:
        """`[T, B, ...]`: the noise of the next rollout, for others that collect it in this actor's place."""
        return self._distribution.draw_noise(self._rng, self._n_steps, num_envs)

    def simulated_actions(self, theta: Params, observations: Arrays, t: int) -> np.ndarray | None:
        """Actions `[B]` of step t, if the environment is simulated; see `Simulation`.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, as returned by the environment.
            t: index of the step in the rollout.
        """
        simulation = self._simulation
        if simulation is None:
            return None
        assert isinstance(observations, np.ndarray)  # simulated environments have no Dict observations
        step = t % simulation.steps
        if step == 0:
            self._restored_actions = None
            noise = self._noise_of_rollout[t : t + simulation.steps]
            simulation.simulate(theta, noise, observations, self.is_compiled)
        elif self._restored_actions is not None and simulation.env.has_lookahead:
            self.log_probs = None if self._restored_log_probs is None else self._restored_log_probs[step]
            return self._restored_actions[step]
        self.log_probs = simulation.log_probs(step)
        return simulation.actions(observations, step)

    def step_within_episodes(self, t: int) -> VecEnvStepReturn | None:
        """Step the environment, if `simulated_actions` simulated step t; see `Simulation`."""
        simulation = self._simulation
        if simulation is None or self._restored_actions is not None:
            return None
        return simulation.step_within_episodes(t % simulation.steps)

    def take_rollout(self, theta: Params, observations: Arrays) -> Step | None:
        """Act and step T times at once, if the environment is simulated; see `Simulation`."""
        simulation = self._simulation
        if simulation is None:
            return None
        assert isinstance(observations, np.ndarray)
        taken = simulation.take_rollout(theta, self._noise_of_rollout, observations, self.is_compiled)
        return None if taken is None else Step(*taken)

    def take_steps(self, theta: Params) -> SimulatedRollout:
        """Act and step T times in the environment, which is simulated; see `Simulation`.

        Args:
            theta: packed θ.
        """
        simulation = self._simulation
        assert simulation is not None
        assert simulation.steps == self._n_steps
        self.start_rollout(simulation.env.num_envs)
        return simulation.take_part(theta, self._noise_of_rollout, self.is_compiled)[0]

    def simulated_rollout(self, last_observations: Arrays, statistics: Params) -> Rollout | None:
        """The rollout, if all of its steps were simulated; see `Simulation.rollout`."""
        if self._simulation is None:
            return None
        assert isinstance(last_observations, np.ndarray)
        return self._simulation.rollout(last_observations, statistics)

    def actions(self, theta: Params, observations: Observations, t: int) -> np.ndarray:
        """Actions `[B, ...]` of step t.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`, on the device.
            t: index of the step in the rollout.
        """
        noise = self._noise_of_rollout[t] if self._exploration is None else self._exploration()
        act = self._act if self.is_compiled else self._act.eager
        with torch.no_grad():
            sampled = act(theta, observations, noise)
        self.log_probs = sampled.log_probs
        return sampled.actions.cpu().numpy()

    @property
    def _noise_of_rollout(self) -> Tensor:
        """`[T, B, ...]`, on the device."""
        if self._uploaded_noise is None:
            assert self._noise is not None
            self._uploaded_noise = upload(self._noise, self._device)
        return self._uploaded_noise

    @property
    def is_compiled(self) -> bool:
        """Whether the next rollout is compiled. The first is not, so that acting and updates compile at one time."""
        updates = self._updates()
        return updates > 0 and self.compilation.active_at(updates)

    def get_state(self) -> dict[str, Any]:
        """The noise generator, and the noise, simulated actions and their log-probabilities of the current rollout."""
        simulation = self._simulation
        simulated, log_probs = self._restored_actions, self._restored_log_probs
        if simulation is not None and simulation.current_actions is not None:
            simulated, log_probs = simulation.current_actions, simulation.current_log_probs
        return {
            "generator": self._rng,
            "noise": self._noise,
            "simulated_actions": simulated,
            "simulated_log_probs": log_probs,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `get_state`; only the generator between rollouts."""
        self._rng, self._noise, self._uploaded_noise = state["generator"], state.get("noise"), None
        self._restored_actions, self._restored_log_probs = (
            state.get(name) for name in ("simulated_actions", "simulated_log_probs")
        )


@final
class SimulatedEpisodes:
    """Episodes of an agent in a simulated environment: several steps of both are one compiled function.

    Evaluation step by step takes longer than training between evaluations where episodes are long, as for an agent
    that stands still in PuddleWorld.
    """

    def __init__(self, actor: Actor, env: VecEnv) -> None:
        """
        Args:
            actor: the agent's. Its own noise does not advance.
            env: the environment; see `simulates`.
        """
        self._actor, self._env = actor.elsewhere(MAX_STEPS), env
        self._actor.set_env(env)
        self._is_prepared = False

    @staticmethod
    def simulates(actor: Actor, env: VecEnv) -> bool:
        """Whether an agent in this environment can be simulated, now or later in its training."""
        return actor.compilation.planned and simulated_world(env) is not None

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
        if not self._actor.is_compiled:
            self._prepare(theta)
            return None
        self._start(seed)
        tally = _Tally((episodes + np.arange(self._env.num_envs)) // self._env.num_envs)
        while not tally.complete:
            tally.add(self._actor.take_steps(theta))
        return tally.returns_and_lengths()

    def _start(self, seed: int) -> None:
        self._env.seed(seed)
        self._actor.seed(seed)
        self._env.reset()

    def _prepare(self, theta: Params) -> None:
        """Simulate a few steps eagerly, once: the compilation begins."""
        if not self._is_prepared:
            self._is_prepared = True
            self._start(0)
            self._actor.take_steps(theta)


@final
class _Tally:
    """Returns and lengths of the first episodes of each environment."""

    def __init__(self, episodes: np.ndarray) -> None:
        """
        Args:
            episodes: `[B]`, number of episodes of each environment.
        """
        self._left = episodes
        self._returns, self._lengths = np.zeros(len(episodes)), np.zeros(len(episodes), dtype=int)
        self._found: list[tuple[float, int]] = []

    @property
    def complete(self) -> bool:
        """Whether there are all episodes."""
        return not self._left.any()

    def add(self, steps: SimulatedRollout) -> None:
        """Add the next steps; episodes beyond those asked for are not counted."""
        dones, rewards = steps.terminated | steps.truncated, steps.rewards.astype(np.float32)
        if dones.any():
            for step in zip(rewards, dones, strict=True):
                self._add_step(*step)
        else:
            self._returns, self._lengths = np.add.reduce([self._returns, *rewards]), self._lengths + len(dones)

    def _add_step(self, rewards: np.ndarray, dones: np.ndarray) -> None:
        self._returns, self._lengths = self._returns + rewards, self._lengths + 1
        counted = np.flatnonzero(dones & (self._left > 0))
        self._found += zip(self._returns[counted].tolist(), self._lengths[counted].tolist(), strict=True)
        self._left[counted] -= 1
        self._returns[dones], self._lengths[dones] = 0.0, 0

    def returns_and_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Of all episodes, in the order in which they ended."""
        returns, lengths = zip(*self._found, strict=True)
        return np.asarray(returns), np.asarray(lengths)
