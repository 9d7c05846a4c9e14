"""A corridor: a finite world with a domain, as a user would write it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark, Target, Wording
from dgvf_agents.atlas.maps import Axis, Maps, Panel
from dgvf_envs.functional.dynamics import Dynamics, Transition
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.planning import TransitionTable
from dgvf_envs.rendering import AGENT, LINE, Canvas, EpisodeSnapshot, Overlay, View

LENGTH = 6


class Cells(NamedTuple):
    """States: the agent's cell."""

    cell: Any


@dataclass(frozen=True)
class Corridor(Dynamics[Cells]):
    """Walk to the right end, which is worth 1."""

    observation_space = gym.spaces.Box(0.0, 1.0, (LENGTH,), np.float32)
    action_space = gym.spaces.Discrete(2)  # left, right
    reset_draws, step_draws, constants = 0, 0, ()

    def reset(self, uniforms: np.ndarray) -> Cells:
        return Cells(np.zeros(len(uniforms), dtype=np.int64))

    def step(self, state: Cells, action: np.ndarray, uniforms: np.ndarray) -> Transition:
        cell = np.clip(state.cell + 2 * action - 1, 0, LENGTH - 1)
        end = cell == LENGTH - 1
        return Transition(Cells(cell), end.astype(float), end, end)

    def observe(self, state: Cells) -> np.ndarray:
        return np.eye(LENGTH, dtype=np.float32)[state.cell]


class CorridorView(View[Cells]):
    """How the corridor is drawn: in windows, videos and the maps of the atlas."""

    title = "Corridor"

    def draw_map(self, canvas: Canvas, snapshot: EpisodeSnapshot[Cells]) -> None:
        canvas.surface.fill(LINE, canvas.map)

    def draw_overlay(self, canvas: Canvas, overlay: Overlay) -> None:
        canvas.image(overlay.image(), canvas.map, smooth=False)

    def center(self, canvas: Canvas, state: Cells) -> tuple[float, float]:
        return canvas.map.left + (state.cell + 0.5) / LENGTH * canvas.map.width, canvas.map.centery

    def draw_actors(self, canvas: Canvas, snapshot: EpisodeSnapshot[Cells]) -> None:
        canvas.disc(AGENT, *self.center(canvas, snapshot.state), 3 * canvas.unit)

    def draw_panel(self, canvas: Canvas, snapshot: EpisodeSnapshot[Cells], top: float, overlaid: bool) -> None:
        return


class CorridorEnv(DynamicsEnv[Cells]):
    """The corridor as a Gymnasium environment."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(Corridor(), CorridorView(), render_mode)


class CorridorDomain(Domain):
    """What the atlas needs to know of the corridor."""

    wording = Wording(points="cells of the corridor", landmarks="ends", task="Walk to the right.")

    def __init__(self, world: Corridor) -> None:
        cells = np.arange(LENGTH)
        # required: where the points lie, what the agent sees there, and whether it acts there
        panel = Panel("the corridor", layout=cells[None, :], example=Cells(0))
        moves = np.array([(-1, 0), (1, 0)]) / LENGTH
        ticks = tuple(((cell + 0.5) / LENGTH, str(cell)) for cell in cells)
        self.layout = Maps(CorridorView(), Cells(cells), (panel,), moves, (Axis("cell", ticks), Axis("", ())))
        self.observations = world.observe(Cells(cells))
        self.acting = cells < LENGTH - 1
        # optional: names for captions, what to decode from the features, and transitions for exact returns
        self.landmarks = (
            Landmark(cells, "be further right", "be further left"),
            Landmark((cells == LENGTH - 1) * 1.0, "arrive", "not arrive"),
        )
        self.distance = LENGTH - 1.0 - cells
        self.targets = (Target("cell", "cell", cells.astype(float)), Target("half", "right half", cells >= LENGTH // 2))
        following = np.stack([np.maximum(cells - 1, 0), np.minimum(cells + 1, LENGTH - 1)], axis=1)
        end = following == LENGTH - 1
        self.table = TransitionTable(following, end * 1.0, end, (cells == 0) * 1.0)

    def name(self, point: int) -> str:
        return f"cell {point}"
