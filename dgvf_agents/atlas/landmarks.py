"""What a person might name to describe values over a world's states: rooms, objects, puddles, distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dgvf_envs.collect_objects import CollectObjects
from dgvf_envs.puddle_world import PuddleWorld

NEAR_MOVES = 2
"""Moves within which a cell counts as near an object."""
NEAR_EDGE = 0.1
"""Distance within which a point counts as near an edge of the square."""
NEAR_GOAL = 0.3
"""L1 distance to the goal's edge within which a point counts as near it."""


class Landmark(NamedTuple):
    """A number per state with a name."""

    values: np.ndarray
    """`[S]`."""
    more: str
    """What the agent does where the number is large; completes "will I"."""
    less: str
    """What it does where the number is small."""


def landmarks_of_rooms(
    world: CollectObjects, agent: np.ndarray, holds_first: np.ndarray, distance: np.ndarray, terminal: np.ndarray
) -> tuple[Landmark, ...]:
    """The first object, the episode's end, rooms, doorways, places near the objects, rows, columns, ways to go.

    Args:
        world: the world.
        agent: `[S]`: index of the agent's cell.
        holds_first: `[S]` boolean.
        distance: `[S]`: moves to the end.
        terminal: `[S]` boolean: arriving there ends the episode.
    """
    grid = world.map
    rows, columns = grid.cells[agent].T.astype(np.float64)
    to_first, to_second = (grid.distances[agent, cell] for cell in (world.first_cell, world.second_cell))
    found = [
        Landmark(holds_first.astype(float), "have object 1", "still lack object 1"),
        Landmark(terminal.astype(float), "finish the episode", "not finish the episode"),
        Landmark(rows, "be further down", "be further up"),
        Landmark(columns, "be further right", "be further left"),
        Landmark(distance, "be far from the end of the task", "be close to the end of the task"),
        Landmark(
            np.where(holds_first, to_second, to_first),
            "be far from the object to take next",
            "be close to the object to take next",
        ),
        Landmark(to_first, "be far from where object 1 lies", "be close to where object 1 lies"),
        Landmark(to_second, "be far from where object 2 lies", "be close to where object 2 lies"),
    ]
    for name, inside in rooms(world):
        found += _in_either_phase(f"be in the {name}", f"keep out of the {name}", inside[agent], holds_first)
    in_door = grid.doors[tuple(grid.cells[agent].T)]
    found += _in_either_phase("be in a doorway", "keep out of doorways", in_door, holds_first)
    for name, moves in (("object 1's place", to_first), ("object 2's place", to_second)):
        found += _in_either_phase(f"be right by {name}", f"keep away from {name}", moves <= NEAR_MOVES, holds_first)
    return tuple(landmark for landmark in found if np.ptp(landmark.values) > 0)


def _in_either_phase(more: str, less: str, inside: np.ndarray, holds_first: np.ndarray) -> Iterator[Landmark]:
    yield Landmark(inside.astype(float), more, less)
    for when, phase in (("before taking object 1", ~holds_first), ("after taking object 1", holds_first)):
        yield Landmark((inside & phase).astype(float), f"{more} {when}", f"{less} {when}")


def rooms(world: CollectObjects) -> list[tuple[str, np.ndarray]]:
    """The rooms of a map by name, each with which cells `[C]` lie inside; doorways belong to none."""
    grid = world.map
    numbers = grid.rooms[tuple(grid.cells.T)]
    middle = (np.array(grid.shape) - 1) / 2
    found = []
    for number in range(numbers.max() + 1):
        inside = numbers == number
        row, column = grid.cells[inside].mean(axis=0) - middle
        found.append((f"{'top' if row < 0 else 'bottom'}-{'left' if column < 0 else 'right'} room", inside))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        return [(f"room {number + 1}", inside) for number, (_, inside) in enumerate(found)]
    return found


def landmarks_of_square(world: PuddleWorld, x: np.ndarray, y: np.ndarray, distance: np.ndarray) -> tuple[Landmark, ...]:
    """Directions, quadrants, edges, the goal and the puddles.

    Args:
        world: the world.
        x: `[S]`.
        y: `[S]`.
        distance: `[S]`: L1 distance to the goal's edge.
    """
    cost = -world.reward(x, y) / world.reward_scale - 1.0
    found = [
        Landmark(x, "be further right", "be further left"),
        Landmark(y, "be further up", "be further down"),
        Landmark(distance, "be far from the goal", "be close to the goal"),
        Landmark(world.in_goal(x, y).astype(float), "reach the goal", "not reach the goal"),
        Landmark(x - y, "be toward the bottom-right corner", "be toward the top-left corner"),
        Landmark(np.sqrt(np.maximum(cost, 0.0)), "be deep in a puddle", "be clear of the puddles"),
    ]
    places = {
        ("be right by", "keep away from", "the goal"): distance < NEAR_GOAL,
        ("be in", "keep out of", "the top-left quarter"): (x < 0.5) & (y >= 0.5),
        ("be in", "keep out of", "the top-right quarter"): (x >= 0.5) & (y >= 0.5),
        ("be in", "keep out of", "the bottom-left quarter"): (x < 0.5) & (y < 0.5),
        ("be in", "keep out of", "the bottom-right quarter"): (x >= 0.5) & (y < 0.5),
        ("be at", "keep away from", "the left edge"): x < NEAR_EDGE,
        ("be at", "keep away from", "the right edge"): x > 1.0 - NEAR_EDGE,
        ("be at", "keep away from", "the bottom edge"): y < NEAR_EDGE,
        ("be at", "keep away from", "the top edge"): y > 1.0 - NEAR_EDGE,
    }
    for (more, less, where), inside in places.items():
        found.append(Landmark(inside.astype(float), f"{more} {where}", f"{less} {where}"))
    return tuple(landmark for landmark in found if np.ptp(landmark.values) > 0)
