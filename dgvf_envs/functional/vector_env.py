"""The Gymnasium shell around a world: many copies stepped as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import gymnasium as gym
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dgvf_envs.functional.dynamics import Dynamics, State
from dgvf_envs.functional.random_streams import UniformStreams
from dgvf_envs.functional.simulation import Foresight
from dgvf_envs.rendering import EpisodeSnapshot, OverlayHook, Renderer, View


class DynamicsVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray], Generic[State]):
    """N copies of a world as one `gymnasium.vector.VectorEnv`.

    It behaves like `gymnasium.vector.SyncVectorEnv` over N copies of the scalar environment with a time limit, in every
    value it returns, and costs a few array operations a step whatever N is.

    **Seeds.** `reset(seed=s)` with an integer seeds copy i with `s + i`; a sequence gives one seed per copy (`None`
    leaves that copy's stream going). Copy i then agrees step for step with a scalar environment reset with that seed.

    **Autoreset.** `metadata["autoreset_mode"]` tells the mode. `NEXT_STEP`: the step after an episode's end ignores the
    action and returns the next episode's first observation with reward 0. `SAME_STEP`: the step that ends an episode
    returns the next one's first observation, and `infos["final_obs"]`, `infos["final_info"]` hold the true last ones
    where the masks `infos["_final_obs"]`, `infos["_final_info"]` are true. `DISABLED`: the caller resets, with
    `reset(options={"reset_mask": mask})`, which works in every mode.
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
            dynamics: the world.
            view: what it looks like.
            num_envs: the number of copies N ≥ 1.
            max_episode_steps: steps after which an episode is truncated, ≥ 1; `None` for never.
            autoreset_mode: when a finished copy starts anew.
            render_mode: `None`, `"human"` (one window with all copies) or `"rgb_array"` (one frame per copy).
            screen_size: height of each picture in pixels.

        Raises:
            ValueError: an argument is out of its range.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be >= 1, got {num_envs!r}")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be >= 1 or None, got {max_episode_steps!r}")
        self.dynamics = dynamics
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.single_observation_space = dynamics.observation_space
        self.single_action_space = dynamics.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._renderer = Renderer(view, render_mode, self.metadata, screen_size)
        self._streams: UniformStreams | None = None
        self._seeds: list[int] = []
        self._state: Any = None  # a State once reset
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._done = np.zeros(num_envs, dtype=np.bool_)
        self._snapshots: list[EpisodeSnapshot[State]] = []
        self._expected: Foresight | None = None
        self._expected_step = 0

    @property
    def overlay(self) -> OverlayHook | None:
        """What draws values over every copy's map: a function that returns an `Overlay` or `None`."""
        return self._renderer.overlay

    @overlay.setter
    def overlay(self, hook: OverlayHook | None) -> None:
        self._renderer.overlay = hook

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generators of the copies. They run ahead of the copies, which draw from them in blocks."""
        return tuple(self._seeded_streams().generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of the copies."""
        self._seeded_streams()
        return tuple(self._seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes, in all copies or in those of `options["reset_mask"]` (`[N]` boolean).

        Raises:
            ValueError: the number of seeds, or the mask's shape, is not N, or the mask is empty.
            TypeError: the mask is not a boolean array.
            ResetNeeded: a partial reset was asked for before any full one.
        """
        mask = self._checked_mask((options or {}).get("reset_mask"))
        rows = np.flatnonzero(mask)
        self._expected = None
        self._reseed(seed, mask)
        fresh = self.dynamics.reset(self._seeded_streams().take(rows, self.dynamics.reset_draws))
        if len(rows) == self.num_envs:
            self._state = fresh
        else:
            _put(self._state, rows, fresh)
        self._begin_episodes(rows)
        if self.render_mode == "human":
            self.render()
        return self.dynamics.observe(self._state), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every copy.

        Args:
            actions: `[N]` integer.

        Returns:
            Observations `[N, ...]`, rewards `[N]` float64, terminations and truncations `[N]` boolean, and infos:
            `is_success` `[N]` with its mask `_is_success`, and what the autoreset mode adds.

        Raises:
            InvalidAction: the actions have another shape or type, or are out of range.
            ResetNeeded: the environment was not reset, or (`DISABLED` only) a copy's episode is over.
        """
        if self._expected is not None:
            if np.array_equal(actions, self._expected.actions[self._expected_step]):
                return self._step_as_expected(self._expected)
            self._expected = None
        actions = self._checked_actions(actions)
        streams = self._seeded_streams()
        resetting = self._done.copy() if self._done.any() else None
        stepping = ~self._done

        uniforms = streams.peek(self.dynamics.step_draws)
        streams.advance(self.dynamics.step_draws, None if resetting is None else stepping)
        self._state, rewards, terminated, success = self.dynamics.step(self._state, actions, uniforms)
        self._steps += 1
        truncated = self._steps >= self.max_episode_steps if self.max_episode_steps else np.zeros_like(terminated)

        infos: dict[str, Any] = {}
        if resetting is not None:  # NEXT_STEP: these copies' step is their reset
            self._restart(resetting)
            rewards[resetting] = 0.0
            terminated, truncated, success = terminated & stepping, truncated & stepping, success & stepping
        self._record(rewards, resetting)
        done = terminated | truncated
        observations = self.dynamics.observe(self._state)
        ended = None
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if done.any():
                ended = done
                infos |= self._final(observations, success, done)
                self._restart(done)
                observations[done] = self.dynamics.observe(_rows(self._state, np.flatnonzero(done)))
        else:
            self._done = done
        infos |= _success_info(success, absent=resetting if ended is None else ended)
        if self.render_mode == "human":
            self.render()
        return observations, rewards, terminated, truncated, infos

    @property
    def foreseeable(self) -> bool:
        """Whether `foresee` describes this environment: it resets within the step, and draws nothing."""
        return self.autoreset_mode is AutoresetMode.SAME_STEP and self.render_mode is None

    def outlook(self, steps: int) -> tuple[State, np.ndarray, np.ndarray, np.ndarray]:
        """What `foresee` is given for `steps` steps: state, elapsed, numbers and cursor; to be read only.

        Raises:
            ResetNeeded: the environment was not reset.
        """
        if self._state is None:
            raise ResetNeeded("outlook() was called before reset(): call reset() first")
        count = steps * (self.dynamics.step_draws + self.dynamics.reset_draws)
        return self._state, self._steps, *self._seeded_streams().ahead(count)

    def expect(self, foresight: Foresight) -> None:
        """Return these steps, made of the current `outlook`, from `step` instead of computing them again.

        They last as long as `step` is given the actions foreseen; with another action, or a reset, the rest is dropped.

        Args:
            foresight: of NumPy arrays, which the environment owns from now on.

        Raises:
            ValueError: the environment is not `foreseeable`.
        """
        if not self.foreseeable:
            raise ValueError(
                f"expect() needs autoreset_mode SAME_STEP and no render_mode, got {self.autoreset_mode} and "
                f"{self.render_mode!r}"
            )
        self._expected, self._expected_step = foresight, 0

    @property
    def expecting(self) -> bool:
        """Whether the next step is one that `expect` was told of."""
        return self._expected is not None

    def _step_as_expected(
        self, expected: Foresight
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        t = self._expected_step
        self._expected_step += 1
        if self._expected_step == len(expected.actions):
            self._expected = None
        self._state = type(expected.states)(*(field[t] for field in expected.states))
        self._steps = expected.elapsed[t]
        self._seeded_streams().advance(expected.draws[t])
        terminated, truncated, success = expected.terminated[t], expected.truncated[t], expected.success[t]
        done = terminated | truncated
        infos, ended = {}, None
        if done.any():
            ended, infos = done, self._final(expected.last_observations[t], success, done)
        infos |= _success_info(success, absent=ended)
        rewards = expected.rewards[t].astype(np.float64)
        return expected.observations[t], rewards, terminated, truncated, infos

    def get_state(self) -> dict[str, Any]:
        """Everything that decides what the copies do next, as a dict of numbers, strings and new arrays."""
        streams = self._streams
        return {
            "world": self._world(),
            "state": None if self._state is None else [field.copy() for field in self._state],
            "steps": self._steps.copy(),
            "done": self._done.copy(),
            "streams": None if streams is None else streams.positions(),
            "seeds": list(self._seeds),
            "expected": None if self._expected is None else self._still_expected(self._expected),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from where `get_state` was called, on this or another environment of the same world.

        Pictures show every copy as if its episode began now.

        Raises:
            ValueError: the state is that of another world, another number of copies, or another autoreset mode.
        """
        if state["world"] != self._world():
            raise ValueError(f"state must be that of {self._world()}, got that of {state['world']}")
        self._state, self._streams, self._snapshots = None, None, []
        if state["streams"] is not None:
            self._seeded_streams().go_to(state["streams"])
        self._seeds = list(state["seeds"])
        if state["state"] is not None:
            some: Any = self.dynamics.reset(np.zeros((1, self.dynamics.reset_draws)))
            self._state = type(some)(*(np.array(field) for field in state["state"]))
            self._begin_episodes(np.arange(self.num_envs))
        self._steps, self._done = np.array(state["steps"]), np.array(state["done"])
        self._expected, self._expected_step = None, 0
        if state["expected"] is not None:
            arrays = [np.array(field) for field in state["expected"]]
            fields = len(arrays) - len(Foresight._fields) + 1  # of the world's state, which comes second
            self._expected = Foresight(arrays[0], type(self._state)(*arrays[1 : 1 + fields]), *arrays[1 + fields :])

    def _still_expected(self, expected: Foresight) -> list[np.ndarray]:
        """The steps that are still to come, field by field."""
        fields = [expected.actions, *expected.states, *expected[2:]]
        return [field[self._expected_step :].copy() for field in fields]

    def _world(self) -> str:
        limit, mode = self.max_episode_steps, self.autoreset_mode.name
        return f"{self.num_envs} copies of {self.dynamics!r}, max_episode_steps={limit}, {mode}"

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw every copy: a tuple of `[H, W, 3]` uint8 arrays, or `None` where a window shows them.

        Raises:
            ResetNeeded: the environment was not reset.
        """
        if self.render_mode is None:
            gym.logger.warn("render() was called without a render mode; give one when making the environment")
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

    def _checked_actions(self, actions: np.ndarray) -> np.ndarray:
        if self._state is None:
            raise ResetNeeded("step() was called before reset(): call reset() first")
        actions = np.asarray(actions)
        most = int(self.dynamics.action_space.n) - 1
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise InvalidAction(
                f"actions must be an integer array of shape ({self.num_envs},), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        if actions.min() < 0 or actions.max() > most:
            wrong = int(np.flatnonzero((actions < 0) | (actions > most))[0])
            raise InvalidAction(f"actions must lie in [0, {most}], got {actions[wrong]} for copy {wrong}")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._done.any():
            raise ResetNeeded(
                f"the episodes of copies {np.flatnonzero(self._done).tolist()} are over and autoreset is disabled: "
                'call reset(options={"reset_mask": mask}) first'
            )
        return actions.astype(np.int64, copy=False)  # uint64 mixed with int64 would become floating point

    def _checked_mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be a boolean array, got {mask!r}")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"options['reset_mask'] must have shape ({self.num_envs},) and a True, got {mask!r}")
        if self._state is None and not mask.all():
            raise ResetNeeded("a partial reset was asked for before any full reset()")
        return mask

    def _reseed(self, seed: int | Sequence[int | None] | None, mask: np.ndarray) -> None:
        if seed is None:
            return
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be an integer or {self.num_envs} seeds, got {len(seeds)} seeds")
        streams = self._seeded_streams()
        for row in np.flatnonzero(mask):
            if (single := seeds[row]) is not None:
                generator, self._seeds[row] = seeding.np_random(int(single))
                streams.reseed(int(row), generator)

    def _seeded_streams(self) -> UniformStreams:
        if self._streams is None:
            generators, seeds = zip(*(seeding.np_random() for _ in range(self.num_envs)), strict=True)
            self._seeds = list(seeds)
            self._streams = UniformStreams(generators, max(self.dynamics.reset_draws, self.dynamics.step_draws))
        return self._streams

    def _restart(self, mask: np.ndarray) -> None:
        """Put the copies of `mask` at the start of a new episode."""
        rows = np.flatnonzero(mask)
        _put(self._state, rows, self.dynamics.reset(self._seeded_streams().take(rows, self.dynamics.reset_draws)))
        self._begin_episodes(rows)

    def _begin_episodes(self, rows: np.ndarray) -> None:
        self._steps[rows] = 0
        self._done[rows] = False
        if self.render_mode is None:
            return
        self._snapshots = self._snapshots or [EpisodeSnapshot.at_start(self._state, i) for i in range(self.num_envs)]
        for row in rows:
            self._snapshots[row] = EpisodeSnapshot.at_start(self._state, row)

    def _record(self, rewards: np.ndarray, resetting: np.ndarray | None) -> None:
        """Keep what rendering shows; nothing is kept, and nothing paid for, without a render mode."""
        if self.render_mode is None:
            return
        for row, snapshot in enumerate(self._snapshots):
            if resetting is None or not resetting[row]:
                self._snapshots[row] = snapshot.after_step(self._state, row, float(rewards[row]))

    def _final(self, observations: np.ndarray, success: np.ndarray, done: np.ndarray) -> dict[str, Any]:
        """The last observations and infos of the episodes that just ended, as `SyncVectorEnv` gives them."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(done):
            final_obs[row] = observations[row].copy()
        return {
            "final_obs": final_obs,
            "_final_obs": done.copy(),
            "final_info": {"is_success": success & done, "_is_success": done.copy()},
            "_final_info": done.copy(),
        }


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        allowed = ", ".join(repr(m.value) for m in AutoresetMode)
        raise ValueError(f"autoreset_mode must be an AutoresetMode or one of {allowed}, got {mode!r}") from None


def _success_info(success: np.ndarray, absent: np.ndarray | None) -> dict[str, Any]:
    """`is_success` of the copies that took a step; the others (`absent`) report False under a False mask."""
    if absent is None:
        return {"is_success": success.copy(), "_is_success": np.ones_like(success)}
    if absent.all():
        return {}
    return {"is_success": success & ~absent, "_is_success": ~absent}


def _rows(state: State, rows: np.ndarray) -> State:
    return type(state)(*(field[rows] for field in state))


def _put(state: State, rows: np.ndarray, fresh: State) -> None:
    """Overwrite rows of a state that this environment owns."""
    for field, new in zip(state, fresh, strict=True):
        field[rows] = new
