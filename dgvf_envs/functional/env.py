"""A Gymnasium environment made from `Dynamics`."""

from __future__ import annotations

from typing import Any, Generic, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

from dgvf_envs.functional.dynamics import Dynamics, State
from dgvf_envs.functional.random_streams import generator_at
from dgvf_envs.rendering import EpisodeSnapshot, Overlaid, Renderer, View


class DynamicsEnv(Overlaid, gym.Env[np.ndarray, np.integer], Generic[State]):
    """An environment with the given `Dynamics` as a `gymnasium.Env`.

    `np_random` provides `reset_draws` uniform draws at each reset and `step_draws` at each step. Time limits are left
    to Gymnasium (`gymnasium.make(..., max_episode_steps=...)`).
    """

    metadata: dict[str, Any] = {  # noqa: RUF012, Gymnasium reads a plain class attribute
        "render_modes": ["human", "rgb_array"],
        "render_fps": 30,
    }

    def __init__(
        self, dynamics: Dynamics[State], view: View[State], render_mode: str | None = None, screen_size: int = 600
    ) -> None:
        """
        Args:
            dynamics: the dynamics.
            view: how the environment is drawn.
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of the picture in pixels; the window may be resized.

        Raises:
            ValueError: `render_mode` or `screen_size` is not allowed.
        """
        self.dynamics = dynamics
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.render_mode = render_mode
        self._renderer = Renderer(view, render_mode, self.metadata, screen_size)
        self._state: State | None = None
        self._over = False
        self._snapshot: EpisodeSnapshot[State] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.dynamics.reset(self.np_random.random((1, self.dynamics.reset_draws)))
        self._over = False
        if self.render_mode is not None:
            self._snapshot = EpisodeSnapshot.at_start(self._state, 0)
        if self.render_mode == "human":
            self.render()
        return self.dynamics.observe(self._state)[0], {}

    def step(self, action: np.integer) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step.

        Raises:
            InvalidAction: the action is not in the action space.
            ResetNeeded: the environment has not been reset, or its episode has terminated.
        """
        if self._state is None:
            raise ResetNeeded("step() was called before reset(): call reset() first")
        if self._over:
            raise ResetNeeded("step() was called after the episode terminated: call reset() first")
        if not self.action_space.contains(action):
            raise InvalidAction(f"action must be an integer in [0, {self.dynamics.action_space.n - 1}], got {action!r}")
        uniforms = self.np_random.random((1, self.dynamics.step_draws))
        self._state, reward, terminated, success = self.dynamics.step(
            self._state, np.array([action], dtype=np.int64), uniforms
        )
        self._over = bool(terminated[0])
        if self._snapshot is not None:
            self._snapshot = self._snapshot.after_step(self._state, 0, float(reward[0]))
        if self.render_mode == "human":
            self.render()
        info = {"is_success": bool(success[0])}
        return self.dynamics.observe(self._state)[0], float(reward[0]), self._over, False, info

    def get_state(self) -> dict[str, Any]:
        """The complete state of the environment and its random stream: numbers, strings and new arrays."""
        return {
            "world": repr(self.dynamics),
            "state": None if self._state is None else [field.copy() for field in self._state],
            "over": self._over,
            "generator": self.np_random.bit_generator.state,
            "seed": self.np_random_seed,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a result of `get_state`, of this environment or of one made with the same arguments.

        Pictures show the environment as if its episode began now.

        Raises:
            ValueError: the state belongs to different dynamics.
        """
        if state["world"] != repr(self.dynamics):
            raise ValueError(f"state must belong to {self.dynamics!r}, got one of {state['world']}")
        self._np_random, self._np_random_seed = generator_at(state["generator"]), state["seed"]
        self._state, self._over, self._snapshot = None, bool(state["over"]), None
        if state["state"] is not None:
            self._state = self.dynamics.state_from(state["state"])
            if self.render_mode is not None:
                self._snapshot = EpisodeSnapshot.at_start(self._state, 0)

    def render(self) -> np.ndarray | None:
        """Draw the current state: an `[H, W, 3]` uint8 array, or `None` with render mode `"human"`.

        Raises:
            ResetNeeded: the environment has not been reset.
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called without a render mode; pass one, "
                f"for instance gymnasium.make({self.spec.id if self.spec else type(self).__name__!r}, "
                'render_mode="rgb_array")'
            )
            return None
        if self._snapshot is None:
            raise ResetNeeded("render() was called before reset(): call reset() first")
        if self.render_mode == "human":
            self._renderer.show([self._snapshot])
            return None
        return self._renderer.frame(self._snapshot)

    def close(self) -> None:
        """Close the window, if there is one; may be called again."""
        self._renderer.close()
