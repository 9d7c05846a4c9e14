"""Every state of a world, and where each lies on the world's map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple, final

import numpy as np

from dgvf_agents.atlas.landmarks import Landmark, landmarks_of_rooms, landmarks_of_square
from dgvf_envs.collect_objects import CollectObjects, CollectObjectsState
from dgvf_envs.collect_objects.grid_map import MOVES
from dgvf_envs.collect_objects.view import CollectObjectsView
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.planning import TransitionTable, transition_table
from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.view import PuddleWorldView
from dgvf_envs.rendering import View


class Panel(NamedTuple):
    """One map: the states that differ in position alone."""

    name: str
    """What these states have in common, in a few words."""
    layout: np.ndarray
    """`[rows, columns]` integer: the state at each place, -1 where there is none; rows as in `rendering.Overlay`."""
    example: Any
    """One of the states, every field a scalar: what stands on the map."""

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of states `[S]` laid out on the map `[rows, columns]`, NaN where there is no state."""
        return np.where(self.layout >= 0, values[self.layout], np.nan)


@final
@dataclass(frozen=True)
class WorldStates:
    """The S reachable states of a world."""

    world: Dynamics
    """The world."""
    view: View
    """What it looks like."""
    states: Any
    """The states, fields `[S]`."""
    terminal: np.ndarray
    """`[S]` boolean: arriving there ends the episode, so that the agent never acts there."""
    panels: tuple[Panel, ...]
    """The maps; every state is on exactly one."""
    place: np.ndarray
    """`[S]` integer: states at the same position have the same place."""
    position: np.ndarray
    """`[S, 2]`: (row, column), or (x, y)."""
    holds_first: np.ndarray | None
    """`[S]` boolean: the first object is taken; `None` where there are no objects."""
    distance: np.ndarray
    """`[S]`: the fewest moves to a rewarded end, or the L1 distance to the goal's edge."""
    moves: np.ndarray
    """`[A, 2]`: how far each action leads to the right and downward on the map, as shares of its side."""
    landmarks: tuple[Landmark, ...]
    """What a person might name to describe values over these states."""
    table: TransitionTable | None
    """Transitions among `states`, where they are finite and deterministic."""

    @property
    def acting(self) -> np.ndarray:
        """`[S]` boolean: the agent acts there."""
        return ~self.terminal

    def observations(self) -> np.ndarray:
        """`[S, ...]`: what the agent sees."""
        return self.world.observe(self.states)

    def panel_of(self, state: Any) -> Panel:
        """The map of a single state, every field a scalar; the last one where the episode is over."""
        if isinstance(state, CollectObjectsState):
            for panel in self.panels:
                if (panel.example.first, panel.example.second) == (bool(state.first), bool(state.second)):
                    return panel
        return self.panels[-1]

    def words(self, state: int) -> str:
        """Where state number `state` is: cell or point."""
        first, second = self.position[state]
        if isinstance(self.world, PuddleWorld):
            return f"({first:.2f}, {second:.2f})"
        return f"row {int(first)}, column {int(second)}"


@singledispatch
def enumerate_states(world: Dynamics) -> WorldStates:
    """All states of a world that can be reached, or a grid over them where they are continuous.

    Raises:
        ValueError: the world is of a kind that has no map.
    """
    raise ValueError(f"world must be a CollectObjects or a PuddleWorld, got {type(world).__name__}")


@enumerate_states.register
def _rooms(world: CollectObjects) -> WorldStates:
    everything, table = world.states(), transition_table(world)
    reached, terminal = _reachable(table)
    number = np.cumsum(reached) - 1
    states = CollectObjectsState(*(np.asarray(field)[reached] for field in everything))
    own = _restricted(table, reached, terminal, number)
    phase = _phases(own, states, terminal[reached])
    panels = []
    for first, second in dict.fromkeys(zip(*(flags.tolist() for flags in phase), strict=True)):
        on_it = np.flatnonzero((phase[0] == first) & (phase[1] == second))
        index = np.full(world.map.shape, -1)
        index[tuple(world.map.cells[states.agent[on_it]].T)] = on_it
        example = CollectObjectsState(int(states.agent[on_it[0]]), first, second)
        panels.append(Panel(_phase_name(first, second), index, example))
    panels.sort(key=lambda panel: (-panel.example.first, -panel.example.second))
    distance = _moves_to_end(own)
    return WorldStates(
        world=world,
        view=CollectObjectsView(world),
        states=states,
        terminal=terminal[reached],
        panels=tuple(panels),
        place=np.asarray(states.agent),
        position=world.map.cells[states.agent].astype(np.float64),
        holds_first=~states.first,
        distance=distance,
        moves=np.array([(column, row) for row, column in MOVES]) / max(world.map.shape),
        landmarks=landmarks_of_rooms(world, states.agent, ~states.first, distance, terminal[reached]),
        table=own,
    )


def _phase_name(first: bool, second: bool) -> str:
    names = {(True, True): "before object 1 is taken", (False, True): "after object 1 is taken"}
    return names.get((first, second), "object 2 is gone, object 1 is not" if first else "nothing is left")


def _reachable(table: TransitionTable) -> tuple[np.ndarray, np.ndarray]:
    """Which states can be reached from the starts, and which of them end the episode; `[S]` boolean each."""
    reached, terminal = table.start > 0, np.zeros(len(table.start), dtype=bool)
    frontier = reached
    while frontier.any():
        arrived = table.next_state[frontier]
        terminal[arrived[table.terminated[frontier]]] = True
        following = np.zeros_like(reached)
        following[arrived] = True
        frontier = following & ~reached & ~terminal
        reached = reached | following
    return reached, terminal


def _restricted(table: TransitionTable, kept: np.ndarray, terminal: np.ndarray, number: np.ndarray) -> TransitionTable:
    """The table of the kept states alone; from terminal ones nothing leads on."""
    stays = np.broadcast_to(np.arange(len(kept))[:, None], table.next_state.shape)
    target = np.where(terminal[:, None], stays, table.next_state)[kept]
    reward = np.where(terminal[:, None], 0.0, table.reward)[kept]
    ends = (table.terminated | terminal[:, None])[kept]
    return TransitionTable(number[target], reward, ends, table.start[kept])


def _moves_to_end(table: TransitionTable) -> np.ndarray:
    """The fewest moves to a rewarded end `[S]`, 0 in terminal states, infinity where there is no way."""
    last = table.terminated & (table.reward > 0)
    ended = table.terminated.all(axis=1) & (table.next_state == np.arange(len(table.start))[:, None]).all(axis=1)
    moves = np.where(ended, 0.0, np.inf)
    while True:
        onward = np.where(last, 0.0, np.where(table.terminated, np.inf, moves[table.next_state]))
        shorter = np.where(ended, 0.0, 1.0 + onward.min(axis=1))
        if (shorter == moves).all():
            return moves
        moves = shorter


def _phases(table: TransitionTable, states: CollectObjectsState, terminal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is left, `[S]` each for the first and second object; in terminal states, before the last move."""
    first, second = states.first.copy(), states.second.copy()
    for state in np.flatnonzero(~terminal):
        for target in table.next_state[state]:
            if terminal[target]:
                first[target], second[target] = states.first[state], states.second[state]
    return first, second


GRID = 41
"""Points along each side of the square."""


@enumerate_states.register
def _square(world: PuddleWorld) -> WorldStates:
    axis = np.linspace(0.0, 1.0, GRID)
    x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))  # row 0 is y = 0, as in an Overlay
    states = PuddleWorldState(x, y)
    index = np.arange(GRID * GRID)
    to_goal = abs(world.goal[0] - x) + abs(world.goal[1] - y)
    distance = np.maximum(to_goal - world.goal_threshold, 0.0)
    panel = Panel("the square", index.reshape(GRID, GRID), PuddleWorldState(float(x[0]), float(y[0])))
    return WorldStates(
        world=world,
        view=PuddleWorldView(world),
        states=states,
        terminal=world.in_goal(x, y),
        panels=(panel,),
        place=index,
        position=np.stack([x, y], axis=1),
        holds_first=None,
        distance=distance,
        moves=np.stack([world.constants.move_x, -world.constants.move_y], axis=1),
        landmarks=landmarks_of_square(world, x, y, distance),
        table=None,
    )
