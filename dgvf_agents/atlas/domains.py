"""The domains of this project: every state of Collect-Objects, a grid over PuddleWorld."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark, Target, Wording, register
from dgvf_agents.atlas.maps import Axis, Maps, Panel
from dgvf_envs.collect_objects.env import CollectObjects, CollectObjectsState
from dgvf_envs.collect_objects.grid_map import MOVES
from dgvf_envs.collect_objects.view import CollectObjectsView
from dgvf_envs.planning import TransitionTable, transition_table
from dgvf_envs.puddle_world.env import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.view import PuddleWorldView

NEAR_MOVES = 2
"""Moves within which a cell counts as near an object."""


@final
class Rooms(Domain):
    """The N reachable states of a Collect-Objects world."""

    wording = Wording(
        points="states, all of them",
        landmarks="rooms, doorways, objects, distances, whether object 1 is taken",
        task="Take object 1, then object 2.",
        maps="The cell of an object that is next to be taken belongs to the other map: arriving there takes it.",
    )

    def __init__(self, world: CollectObjects) -> None:
        table, reached = _reached(world)
        states = CollectObjectsState(*(np.asarray(field)[reached] for field in world.states()))
        self.world, self.states = world, states
        self.table: TransitionTable = table
        self.acting = ~np.isin(np.arange(len(table.start)), table.next_state[table.terminated])
        self.observations = world.observe(states)
        self.position = world.map.cells[states.agent].astype(np.float64)
        self.holds_first = ~states.first
        self.distance: np.ndarray = np.where(self.acting, _moves_to_end(table), 0.0)
        moves = np.array([(column, row) for row, column in MOVES]) / max(world.map.shape)
        axes = _axes(*world.map.shape)
        self.layout: Maps = Maps(CollectObjectsView(world), states, self._panels(), moves, axes)
        self.landmarks = tuple(one for one in self._landmarks() if np.ptp(one.values) > 0)
        self.targets = (
            Target("position", "position", self.position),
            Target("distance", "distance to goal", self.distance),
            Target("holds_first", "has object 1", self.holds_first),
        )

    @property
    def groups(self) -> np.ndarray:
        return np.asarray(self.states.agent)

    def name(self, point: int) -> str:
        row, column = self.position[point].astype(int).tolist()
        panels = self.layout.panels
        phase = next(f" {panel.name}" for panel in panels if (panel.layout == point).any())
        return f"row {row}, column {column}{phase if len(panels) > 1 else ''}"

    def panel_of(self, state: Any) -> Panel:
        objects = bool(state.first), bool(state.second)
        panels = self.layout.panels
        return next((panel for panel in panels if (panel.example.first, panel.example.second) == objects), panels[-1])

    def _panels(self) -> tuple[Panel, ...]:
        """A map for each set of objects left; a terminal state is on the map of the states before the last move."""
        first, second = self.states.first.copy(), self.states.second.copy()
        source, action = np.nonzero(~self.acting[self.table.next_state] & self.acting[:, None])
        target = self.table.next_state[source, action]
        first[target], second[target] = first[source], second[source]
        panels = []
        for objects in sorted(set(zip(first.tolist(), second.tolist(), strict=True)), reverse=True):
            on_it = np.flatnonzero((first == objects[0]) & (second == objects[1]))
            layout = np.full(self.world.map.shape, -1)
            layout[tuple(self.world.map.cells[self.states.agent[on_it]].T)] = on_it
            example = CollectObjectsState(int(self.states.agent[on_it[0]]), *objects)
            panels.append(Panel(_PANEL_NAMES[objects], layout, example))
        return tuple(panels)

    def _landmarks(self) -> Iterator[Landmark]:
        grid, agent = self.world.map, self.states.agent
        rows, columns = self.position.T
        to_first, to_second = (grid.distances[agent, cell] for cell in (self.world.first_cell, self.world.second_cell))
        to_next = np.where(self.holds_first, to_second, to_first)
        yield Landmark(self.holds_first.astype(float), "have object 1", "still lack object 1")
        yield Landmark((~self.acting).astype(float), "finish the episode", "not finish the episode")
        yield Landmark(rows, "be further down", "be further up")
        yield Landmark(columns, "be further right", "be further left")
        for distance, name in (
            (self.distance, "the end of the task"),
            (to_next, "the object to take next"),
            (to_first, "where object 1 lies"),
            (to_second, "where object 2 lies"),
        ):
            yield Landmark(distance, f"be far from {name}", f"be close to {name}")
        for name, inside in rooms(self.world):
            yield from self._in_either_phase(f"be in the {name}", f"keep out of the {name}", inside[agent])
        in_door = grid.doors[tuple(grid.cells[agent].T)]
        yield from self._in_either_phase("be in a doorway", "keep out of doorways", in_door)
        for name, moves in (("object 1's place", to_first), ("object 2's place", to_second)):
            near = moves <= NEAR_MOVES
            yield from self._in_either_phase(f"be right by {name}", f"keep away from {name}", near)

    def _in_either_phase(self, more: str, less: str, inside: np.ndarray) -> Iterator[Landmark]:
        yield Landmark(inside.astype(float), more, less)
        for when, phase in (("before taking object 1", ~self.holds_first), ("after taking object 1", self.holds_first)):
            yield Landmark((inside & phase).astype(float), f"{more} {when}", f"{less} {when}")


register(CollectObjects, Rooms)

_PANEL_NAMES = {
    (True, True): "before object 1 is taken",
    (False, True): "after object 1 is taken",
    (True, False): "object 2 is gone, object 1 is not",
    (False, False): "nothing is left",
}
"""By whether the first and the second object are left."""


def rooms(world: CollectObjects) -> list[tuple[str, np.ndarray]]:
    """The rooms of a map by name, each with which cells `[C]` lie inside; doorways belong to none."""
    grid = world.map
    numbers = grid.rooms[tuple(grid.cells.T)]
    middle = (np.array(grid.shape) - 1) / 2
    found = []
    for number in range(numbers.max() + 1):
        row, column = grid.cells[numbers == number].mean(axis=0) - middle
        name = f"{'top' if row < 0 else 'bottom'}-{'left' if column < 0 else 'right'} room"
        found.append((name, numbers == number))
    if len({name for name, _ in found}) < len(found):
        return [(f"room {number}", inside) for number, (_, inside) in enumerate(found, start=1)]
    return found


def _axes(rows: int, columns: int) -> tuple[Axis, Axis]:
    """Every second row and column by number; the shorter side of a map is in the middle of the square."""
    side = max(rows, columns)
    horizontal, vertical = (
        tuple(((i + 0.5 + (side - count) / 2) / side, str(i)) for i in range(1, count, 2)) for count in (columns, rows)
    )
    return Axis("column", horizontal), Axis("row", vertical)


def _reached(world: CollectObjects) -> tuple[TransitionTable, np.ndarray]:
    """The table of the states that some episode visits, terminal ones absorbing; and whether each `[S]` is there."""
    table = transition_table(world)
    terminal = np.zeros((len(table.start), 1), dtype=bool)
    terminal[table.next_state[table.terminated]] = True
    following = np.where(terminal, np.arange(len(terminal))[:, None], table.next_state)
    reached = table.start > 0
    while not reached[following[reached]].all():
        reached[following[reached]] = True
    parts = (np.cumsum(reached) - 1)[following], np.where(terminal, 0.0, table.reward), table.terminated | terminal
    return TransitionTable(*(part[reached] for part in (*parts, table.start))), reached


def _moves_to_end(table: TransitionTable) -> np.ndarray:
    """The fewest moves to a rewarded end `[S]`, infinity if there is no way."""
    moves = np.where((table.terminated & (table.reward > 0)).any(axis=1), 1.0, np.inf)
    for _ in range(len(moves)):
        onward = np.where(table.terminated, np.inf, moves[table.next_state]).min(axis=1)
        moves = np.minimum(moves, 1.0 + onward)
    return moves


GRID = 41
"""Points along each side of the square."""
NEAR_EDGE = 0.1
"""Distance within which a point counts as near an edge of the square."""
NEAR_GOAL = 0.3
"""L1 distance to the goal's edge within which a point counts as near it."""


@final
class Square(Domain):
    """Positions of a PuddleWorld at even distances."""

    wording = Wording(points="places of the square", landmarks="directions, quarters, edges, puddles, the goal")

    def __init__(self, world: PuddleWorld) -> None:
        axis = np.linspace(0.0, 1.0, GRID)
        x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))  # row 0 is y = 0, as in an Overlay
        states = PuddleWorldState(x, y)
        self.world, self.position = world, np.stack([x, y], axis=1)
        self.observations = world.observe(states)
        self.acting = ~world.in_goal(x, y)
        self.distance = np.maximum(abs(world.goal[0] - x) + abs(world.goal[1] - y) - world.goal_threshold, 0.0)
        panel = Panel("the square", np.arange(GRID * GRID).reshape(GRID, GRID), PuddleWorldState(0.0, 0.0))
        moves = np.stack([world.constants.move_x, -world.constants.move_y], axis=1)
        axes = Axis("x", ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))), Axis("y", ((0.0, "1"), (0.5, "0.5"), (1.0, "0")))
        self.layout = Maps(PuddleWorldView(world), states, (panel,), moves, axes)
        self.landmarks = tuple(one for one in self._landmarks() if np.ptp(one.values) > 0)
        self.targets = (
            Target("position", "position", self.position),
            Target("distance", "distance to goal", self.distance),
        )

    def name(self, point: int) -> str:
        x, y = self.position[point]
        return f"({x:.2f}, {y:.2f})"

    def _landmarks(self) -> Iterator[Landmark]:
        world, distance, (x, y) = self.world, self.distance, self.position.T
        assert distance is not None
        cost = -world.reward(x, y) / world.reward_scale - 1.0
        yield Landmark(x, "be further right", "be further left")
        yield Landmark(y, "be further up", "be further down")
        yield Landmark(distance, "be far from the goal", "be close to the goal")
        yield Landmark((~self.acting).astype(float), "reach the goal", "not reach the goal")
        yield Landmark(x - y, "be toward the bottom-right corner", "be toward the top-left corner")
        yield Landmark(np.sqrt(np.maximum(cost, 0.0)), "be deep in a puddle", "be clear of the puddles")
        for more, less, where, inside in (
            ("be right by", "keep away from", "the goal", distance < NEAR_GOAL),
            ("be in", "keep out of", "the top-left quarter", (x < 0.5) & (y >= 0.5)),
            ("be in", "keep out of", "the top-right quarter", (x >= 0.5) & (y >= 0.5)),
            ("be in", "keep out of", "the bottom-left quarter", (x < 0.5) & (y < 0.5)),
            ("be in", "keep out of", "the bottom-right quarter", (x >= 0.5) & (y < 0.5)),
            ("be at", "keep away from", "the left edge", x < NEAR_EDGE),
            ("be at", "keep away from", "the right edge", x > 1.0 - NEAR_EDGE),
            ("be at", "keep away from", "the bottom edge", y < NEAR_EDGE),
            ("be at", "keep away from", "the top edge", y > 1.0 - NEAR_EDGE),
        ):
            yield Landmark(inside.astype(float), f"{more} {where}", f"{less} {where}")


register(PuddleWorld, Square)
