"""Vector environments made from `Dynamics`, and several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dgvf_envs.argument_checks import check_count, checked_actions, checked_reset_mask, checked_seeds
from dgvf_envs.functional.dynamics import Dynamics, State, with_rows
from dgvf_envs.functional.random_streams import UniformStreams
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.rendering import EpisodeSnapshot, Overlaid, Renderer, View

StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
"""Observations, rewards, terminations, truncations and infos."""


class DynamicsVectorEnv(Overlaid, VectorEnv[np.ndarray, np.ndarray, np.ndarray], Generic[State]):
    """N environments with the same `Dynamics` as a `gymnasium.vector.VectorEnv`.

    It returns the same values as `gymnasium.vector.SyncVectorEnv` with N `DynamicsEnv` under a time limit, but steps
    all environments with a few array operations.

    **Seeding.** `reset(seed=s)` with an integer seeds environment i with `s + i`; a sequence has one seed per
    environment, and `None` leaves the environment's random stream as it is. Environment i then behaves exactly like a
    `DynamicsEnv` with that seed.

    **Autoreset.** `metadata["autoreset_mode"]` is the mode. `NEXT_STEP`: the step after the end of an episode ignores
    the action and returns the first observation of the next episode with reward 0. `SAME_STEP`: the step that ends an
    episode returns the first observation of the next one; the final observation and info are in `infos["final_obs"]`
    and `infos["final_info"]`, under the masks `infos["_final_obs"]` and `infos["_final_info"]`. `DISABLED`: the caller
    resets with `reset(options={"reset_mask": mask})`, which works in every mode.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012, Gymnasium reads a plain class attribute
        "render_modes": ["human", "rgb_array"],
        "render_fps": 30,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        dynamics: Dynamics[State],
        view: View[State],
        num_envs: int,
        max_episode_steps: int | None,
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None = None,
        screen_size: int = 600,
    ) -> None:
        """
        Args:
            dynamics: the dynamics.
            view: how the environment is drawn.
            num_envs: number of environments N ≥ 1.
            max_episode_steps: the time limit in steps, ≥ 1; `None` for no limit.
            autoreset_mode: when an environment is reset after the end of an episode.
            render_mode: `None`, `"human"` (one window with all environments) or `"rgb_array"` (one frame per
                environment).
            screen_size: height of each picture in pixels.

        Raises:
            ValueError: an argument is out of range.
        """
        check_count("num_envs", num_envs)
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps)
        self.dynamics = dynamics
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.single_observation_space = dynamics.observation_space
        self.single_action_space = dynamics.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._renderer = Renderer(view, render_mode, self.metadata, screen_size)
        self._streams: UniformStreams | None = None
        self._seeds: list[int] = []
        self._state: Any = None  # a State after the first reset
        self._elapsed_steps = np.zeros(num_envs, dtype=np.int64)
        self._done = np.zeros(num_envs, dtype=np.bool_)
        self._snapshots: list[EpisodeSnapshot[State]] = []

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generators. They are ahead of the environments, which draw random numbers in blocks."""
        return tuple(self._seeded_streams().generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of the environments."""
        self._seeded_streams()
        return tuple(self._seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset all environments, or those selected by `options["reset_mask"]` (`[N]` boolean).

        Raises:
            ValueError: the number of seeds or the shape of the mask does not match N, or the mask is all false.
            TypeError: the mask is not a boolean array.
            ResetNeeded: the mask is partial and there was no full reset before.
        """
        mask = checked_reset_mask(options, self.num_envs, was_reset=self._state is not None)
        seeds = checked_seeds(seed, self.num_envs)
        rows = np.flatnonzero(mask)
        self._reseed(seeds, rows)
        self._restart(rows)
        if self.render_mode == "human":
            self.render()
        return self.dynamics.observe(self._state), {}

    def step(self, actions: np.ndarray) -> StepResult:
        """Step all environments.

        Args:
            actions: `[N]` integer.

        Returns:
            Observations `[N, ...]`, rewards `[N]` float64, terminations and truncations `[N]` boolean, and infos:
            `is_success` `[N]` with its mask `_is_success`, and the entries of the autoreset mode.

        Raises:
            InvalidAction: the actions have the wrong shape or type, or one is out of range.
            ResetNeeded: the environment has not been reset, or (only with `DISABLED`) an episode is over.
        """
        self._check_step_allowed()
        actions = checked_actions(actions, self.num_envs, int(self.dynamics.action_space.n))
        streams = self._seeded_streams()
        resetting = self._done.copy() if self._done.any() else None  # NEXT_STEP: for these, this step is the reset
        stepping = ~self._done

        uniforms = streams.peek(self.dynamics.step_draws)
        streams.advance(self.dynamics.step_draws, None if resetting is None else stepping)
        self._state, rewards, terminated, success = self.dynamics.step(self._state, actions, uniforms)
        self._elapsed_steps += 1
        limit = self.max_episode_steps
        truncated = self._elapsed_steps >= limit if limit else np.zeros_like(terminated)

        if resetting is not None:
            self._restart(np.flatnonzero(resetting))
            rewards[resetting] = 0.0
            terminated, truncated, success = terminated & stepping, truncated & stepping, success & stepping
        self._record(rewards, resetting)
        done = terminated | truncated
        observations = self.dynamics.observe(self._state)
        infos: dict[str, Any] = {}
        absent = resetting
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._done = done
        elif done.any():
            infos, absent = final_infos(observations, _final_success(success, done), done), done
            rows = np.flatnonzero(done)
            self._restart(rows)
            observations[done] = self.dynamics.observe(type(self._state)(*(field[rows] for field in self._state)))
        infos |= success_info(success, absent)
        if self.render_mode == "human":
            self.render()
        return observations, rewards, terminated, truncated, infos

    @property
    def supports_simulation(self) -> bool:
        """Whether simulated rollouts match this environment.

        They do if the autoreset mode is `SAME_STEP`, nothing is rendered, and `step` and `reset` are not a subclass's.
        """
        own = all(getattr(getattr(self, f.__name__), "__func__", None) is f for f in _SIMULATED)
        return own and self.autoreset_mode is AutoresetMode.SAME_STEP and self.render_mode is None

    @property
    def state(self) -> State:
        """The environments' states; do not modify them.

        Raises:
            ResetNeeded: the environment has not been reset.
        """
        if self._state is None:
            raise ResetNeeded("state was read before reset(): call reset() first")
        return self._state

    def simulation_inputs(self, steps: int) -> tuple[State, np.ndarray, np.ndarray, np.ndarray]:
        """The arguments of `simulate_rollout` for the next `steps` steps; do not modify them.

        Returns:
            The arguments `state`, `elapsed_steps`, `uniforms` and `cursor`.

        Raises:
            ResetNeeded: the environment has not been reset.
        """
        count = steps * (self.dynamics.step_draws + self.dynamics.reset_draws)
        return self.state, self._elapsed_steps, *self._seeded_streams().prefetch(count)

    def take_steps(self, rollout: SimulatedRollout) -> None:
        """Take all steps of a rollout simulated from the current `simulation_inputs` at once.

        Args:
            rollout: NumPy arrays; the environment takes ownership.

        Raises:
            ValueError: the environment does not support simulation.
        """
        if not self.supports_simulation:
            given = f"{self.autoreset_mode} and {self.render_mode!r}"
            raise ValueError(f"take_steps() needs autoreset_mode SAME_STEP and no render_mode, got {given}")
        self._state = type(rollout.states)(*(field[-1] for field in rollout.states))
        self._elapsed_steps = rollout.elapsed_steps[-1]
        self._seeded_streams().advance(rollout.draws.sum(0))

    def _check_step_allowed(self) -> None:
        if self._state is None:
            raise ResetNeeded("step() was called before reset(): call reset() first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._done.any():
            raise ResetNeeded(
                f"the episodes of environments {np.flatnonzero(self._done).tolist()} are over and autoreset is "
                'disabled: call reset(options={"reset_mask": mask}) first'
            )

    def like(self, num_envs: int) -> DynamicsVectorEnv[State]:
        """A vector environment of the same kind with another number of environments, without rendering."""
        view = self._renderer.view
        return DynamicsVectorEnv(self.dynamics, view, num_envs, self.max_episode_steps, self.autoreset_mode)

    def get_state(self) -> dict[str, Any]:
        """The complete state of the environments and their random streams: numbers, strings and new arrays."""
        streams = self._streams
        return {
            "world": self._description(),
            "state": None if self._state is None else [field.copy() for field in self._state],
            "steps": self._elapsed_steps.copy(),
            "done": self._done.copy(),
            "streams": None if streams is None else streams.positions(),
            "seeds": list(self._seeds),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a result of `get_state`, of this environment or of one made with the same arguments.

        Pictures show all environments as if their episodes began now.

        Raises:
            ValueError: the state belongs to different dynamics, another number of environments, another time limit or
                another autoreset mode.
            TypeError: the state is malformed.
        """
        if state["world"] != self._description():
            raise ValueError(f"state must belong to {self._description()}, got one of {state['world']}")
        self._check_state(state)
        self._state, self._streams, self._snapshots = None, None, []
        if state["streams"] is not None:
            self._seeded_streams().set_positions(state["streams"])
        self._seeds = list(state["seeds"])
        if state["state"] is not None:
            self._state = self.dynamics.state_from(state["state"])
            self._begin_episodes(np.arange(self.num_envs))
        self._elapsed_steps, self._done = np.array(state["steps"]), np.array(state["done"])

    def _check_state(self, state: dict[str, Any]) -> None:
        """Check that all arrays have a row for each environment; their other axes belong to the dynamics."""
        steps, done, streams = (state[name] for name in ("steps", "done", "streams"))
        for array in (steps, done, *(state["state"] or ())):
            if array.shape[:1] != (self.num_envs,):
                raise TypeError(f"state must have arrays of {self.num_envs} environments, got {array.shape}")
            if not np.isfinite(array).all():
                raise TypeError("state must have finite numbers")
        if (steps.dtype, done.dtype) != (np.int64, np.bool_) or (steps < 0).any():
            raise TypeError(f"steps and done must be counts and booleans, got {steps.dtype} and {done.dtype}")
        if streams is not None and len(streams) != self.num_envs:
            raise TypeError(f"streams must be {self.num_envs}, got {len(streams)}")

    def _description(self) -> str:
        """Identifies what a state belongs to; part of the format of saved states."""
        limit, mode = self.max_episode_steps, self.autoreset_mode.name
        return f"{self.num_envs} copies of {self.dynamics!r}, max_episode_steps={limit}, {mode}"

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw all environments: a tuple of `[H, W, 3]` uint8 arrays, or `None` with render mode `"human"`.

        Raises:
            ResetNeeded: the environment has not been reset.
        """
        if self.render_mode is None:
            gym.logger.warn("render() was called without a render mode; pass one when making the environment")
            return None
        if self._state is None:
            raise ResetNeeded("render() was called before reset(): call reset() first")
        if self.render_mode == "human":
            self._renderer.show(self._snapshots)
            return None
        return tuple(self._renderer.frame(snapshot) for snapshot in self._snapshots)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window, if there is one."""
        self._renderer.close()

    def _reseed(self, seeds: Sequence[int | None], rows: np.ndarray) -> None:
        streams = self._seeded_streams()
        for row in rows:
            if (seed := seeds[row]) is not None:
                generator, self._seeds[row] = seeding.np_random(seed)
                streams.reseed(int(row), generator)

    def _seeded_streams(self) -> UniformStreams:
        if self._streams is None:
            generators, seeds = zip(*(seeding.np_random() for _ in range(self.num_envs)), strict=True)
            self._seeds = list(seeds)
            self._streams = UniformStreams(generators, max(self.dynamics.reset_draws, self.dynamics.step_draws))
        return self._streams

    def _restart(self, rows: np.ndarray) -> None:
        """Begin new episodes in these environments."""
        initial = self.dynamics.reset(self._seeded_streams().take(rows, self.dynamics.reset_draws))
        self._state = initial if len(rows) == self.num_envs else with_rows(self._state, rows, initial)
        self._begin_episodes(rows)

    def _begin_episodes(self, rows: np.ndarray) -> None:
        self._elapsed_steps[rows] = 0
        self._done[rows] = False
        if self.render_mode is None:
            return
        self._snapshots = self._snapshots or [EpisodeSnapshot.at_start(self._state, i) for i in range(self.num_envs)]
        for row in rows:
            self._snapshots[row] = EpisodeSnapshot.at_start(self._state, row)

    def _record(self, rewards: np.ndarray, resetting: np.ndarray | None) -> None:
        """Update the snapshots; without a render mode there are none."""
        if self.render_mode is None:
            return
        for row, snapshot in enumerate(self._snapshots):
            if resetting is None or not resetting[row]:
                self._snapshots[row] = snapshot.after_step(self._state, row, float(rewards[row]))


_SIMULATED = (DynamicsVectorEnv.reset, DynamicsVectorEnv.step)
"""What a simulation stands for."""


def success_info(success: np.ndarray, absent: np.ndarray | None) -> dict[str, Any]:
    """`is_success` `[N]` with its mask; environments that report none (`absent` `[N]`) are masked out."""
    if absent is None:
        return {"is_success": success.copy(), "_is_success": np.ones_like(success)}
    if absent.all():
        return {}
    return {"is_success": success & ~absent, "_is_success": ~absent}


def final_infos(observations: np.ndarray, info: dict[str, Any], done: np.ndarray) -> dict[str, Any]:
    """The final observations and infos of the episodes that ended (`done` `[N]`).

    Args:
        observations: `[N, ...]`.
        info: `final_info`, with masks.
        done: `[N]` boolean.
    """
    final_obs = np.full(len(done), None, dtype=object)
    for row in np.flatnonzero(done):
        final_obs[row] = observations[row].copy()
    return {"final_obs": final_obs, "_final_obs": done.copy(), "final_info": info, "_final_info": done.copy()}


def _final_success(success: np.ndarray, done: np.ndarray) -> dict[str, Any]:
    return {"is_success": success & done, "_is_success": done.copy()}


def joined(envs: Sequence[DynamicsVectorEnv[Any]]) -> DynamicsVectorEnv[Any]:
    """One vector environment with all environments of several, in order, in their current states.

    It has no rendering, and shares nothing with them that changes. `split` lets them continue where it is.

    Args:
        envs: at least one, each with N_i environments; all were reset.

    Raises:
        ValueError: they differ in dynamics, time limit or autoreset mode, or one was not reset.
    """
    first = envs[0]
    kinds = [(repr(env.dynamics), env.max_episode_steps, env.autoreset_mode) for env in envs]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"envs must have equal dynamics, time limits and autoreset modes, got {sorted(set(kinds))}")
    states = [env.get_state() for env in envs]
    if any(state["state"] is None or state["streams"] is None for state in states):
        raise ValueError("envs must have been reset, got one that was not")
    env = first.like(sum(other.num_envs for other in envs))
    env.set_state(
        {
            "world": env.get_state()["world"],
            "state": [np.concatenate(fields) for fields in zip(*(state["state"] for state in states), strict=True)],
            "steps": np.concatenate([state["steps"] for state in states]),
            "done": np.concatenate([state["done"] for state in states]),
            "streams": [position for state in states for position in state["streams"]],
            "seeds": [seed for state in states for seed in state["seeds"]],
        }
    )
    return env


def split(env: DynamicsVectorEnv[Any], start: int, part: DynamicsVectorEnv[Any]) -> None:
    """Let a vector environment continue where some environments of a joined one are.

    Args:
        env: as `joined` returned it.
        start: index of the first of these environments.
        part: one of the environments that were joined; set to the state of `part.num_envs` environments from `start`.
    """
    state, rows = env.get_state(), slice(start, start + part.num_envs)
    part.set_state(
        {
            "world": part.get_state()["world"],
            "state": [field[rows] for field in state["state"]],
            "steps": state["steps"][rows],
            "done": state["done"][rows],
            "streams": state["streams"][rows],
            "seeds": state["seeds"][rows],
        }
    )
