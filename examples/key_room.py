"""A world of your own: fetch the key, then leave through the door.

It trains with discovered questions, and the atlas draws them over its map.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark, register
from dgvf_agents.atlas.maps import Maps, Panel
from dgvf_agents.atlas.page import write_atlas
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.train import train
from dgvf_envs.functional.dynamics import Dynamics, Transition
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.rendering import AGENT, LINE, Canvas, EpisodeSnapshot, Overlay, View

SIDE = 5
CELLS = SIDE * SIDE  # numbered row by row
KEY, DOOR = SIDE - 1, CELLS - SIDE  # top right, bottom left
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # up, down, left, right


class KeyRoomState(NamedTuple):
    """B agents: where they are, and whether they have the key."""

    cell: Any
    has_key: Any


@dataclass(frozen=True)
class KeyRoom(Dynamics[KeyRoomState]):
    """A room without walls. Leaving through the door with the key is worth 1."""

    observation_space = gym.spaces.Box(0.0, 1.0, (CELLS + 1,), np.float32)
    action_space = gym.spaces.Discrete(4)
    reset_draws, step_draws, constants = 1, 0, ()

    def reset(self, uniforms: np.ndarray) -> KeyRoomState:
        cell = (uniforms[:, 0] * CELLS).astype(np.int64)
        return KeyRoomState(cell, cell == KEY)

    def step(
        self,
        state: KeyRoomState,
        action: np.ndarray,
        uniforms: np.ndarray,
    ) -> Transition:
        place = np.stack(np.divmod(state.cell, SIDE), axis=-1) + MOVES[action]
        cell = np.clip(place, 0, SIDE - 1) @ (SIDE, 1)
        has_key = state.has_key | (cell == KEY)
        left = has_key & (cell == DOOR)
        return Transition(KeyRoomState(cell, has_key), left.astype(float), left, left)

    def observe(self, state: KeyRoomState) -> np.ndarray:
        one_hot = np.eye(CELLS, dtype=np.float32)[state.cell]
        return np.column_stack([one_hot, state.has_key]).astype(np.float32)


class KeyRoomView(View[KeyRoomState]):
    """How the room is drawn."""

    title = "Key room"

    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[KeyRoomState]) -> None:
        canvas.surface.fill(LINE, canvas.map)

    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        canvas.image(overlay.image(), canvas.map, smooth=False)

    def draw_objects(
        self,
        canvas: Canvas,
        state: KeyRoomState,
        size: float = 1.0,
    ) -> None:
        for cell, name in ((DOOR, "door"), (KEY, "" if state.has_key else "key")):
            x, y = self.center(canvas, KeyRoomState(cell, False))
            canvas.text(name, x, y, 7.0 * size, align="center")

    def center(self, canvas: Canvas, state: KeyRoomState) -> tuple[float, float]:
        row, column = divmod(int(state.cell), SIDE)
        width = canvas.map.width / SIDE
        x = canvas.map.left + (column + 0.5) * width
        return x, canvas.map.top + (row + 0.5) * width

    def draw_actors(
        self,
        canvas: Canvas,
        snapshot: EpisodeSnapshot[KeyRoomState],
    ) -> None:
        self.draw_objects(canvas, snapshot.state)
        canvas.disc(AGENT, *self.center(canvas, snapshot.state), 4.0 * canvas.unit)

    def draw_panel(self, *given: Any) -> None:
        return


class KeyRoomEnv(DynamicsEnv[KeyRoomState]):
    """The room as a Gymnasium environment."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(KeyRoom(), KeyRoomView(), render_mode)


gym.register(
    "KeyRoom-v0",
    entry_point=KeyRoomEnv,  # type: ignore[arg-type]
    max_episode_steps=40,
)


class KeyRoomDomain(Domain):
    """What the atlas needs to know: all states, where they lie, and their names."""

    layout: Maps

    def __init__(self, world: KeyRoom) -> None:
        cell, has_key = np.tile(np.arange(CELLS), 2), np.repeat([False, True], CELLS)
        reachable = has_key | (cell != KEY)
        number = np.where(reachable, np.cumsum(reachable) - 1, -1)  # -1: no such state
        without, with_key = number.reshape(2, SIDE, SIDE)
        panels = (
            Panel("without the key", without, KeyRoomState(0, False)),
            Panel("with the key", with_key, KeyRoomState(0, True)),
        )
        cell, has_key = cell[reachable], has_key[reachable]
        self.states = KeyRoomState(cell, has_key)
        self.layout = Maps(KeyRoomView(), self.states, panels, MOVES[:, ::-1] / SIDE)
        self.observations = world.observe(self.states)
        self.acting = ~(has_key & (cell == DOOR))
        self.landmarks = (
            Landmark(has_key * 1.0, "have the key", "be without the key"),
            Landmark((cell == KEY) * 1.0, "be at the key", "be away from the key"),
            Landmark((cell == DOOR) * 1.0, "be at the door", "be away from the door"),
        )

    def name(self, point: int) -> str:
        row, column = divmod(int(self.states.cell[point]), SIDE)
        key = "with" if self.states.has_key[point] else "without"
        return f"row {row}, column {column}, {key} the key"

    def panel_of(self, state: KeyRoomState) -> Panel:
        return self.layout.panels[int(state.has_key)]


register(KeyRoom, KeyRoomDomain)


def main(run: Path = Path("runs/key-room"), **settings: Any) -> Path:
    """Train an agent, its encoder by discovered questions alone; returns its atlas."""
    defaults = {"steps": 100_000, "learning_rate": 1e-3, "evaluate_every": 20_000}
    config = TrainConfig(env="KeyRoom-v0", policy="MlpPolicy", **(defaults | settings))
    train(config, run)
    return write_atlas(run)


if __name__ == "__main__":
    print(f"The atlas is {main()}.")
