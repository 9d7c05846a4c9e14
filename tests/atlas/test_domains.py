"""Every state of a world, against the literal transcriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dgvf_agents.atlas.captions import describe_question, name_question
from dgvf_agents.atlas.domain import Domain, Landmark, Target, check_domain
from dgvf_agents.atlas.domains import Rooms as RoomsDomain
from dgvf_agents.atlas.domains import Square
from dgvf_agents.atlas.maps import Maps
from dgvf_envs.collect_objects.env import CollectObjects
from dgvf_envs.puddle_world.env import PuddleWorld
from tests.atlas.runs import domain
from tests.helpers import TINY_MAP, example_module, rooms_in, rooms_of
from tests.oracles import Room, Rooms

WORLDS = {
    "small": CollectObjects(layout="four-rooms-9", objects=((2, 6), (6, 2))),
    "usual": CollectObjects(),
    "remove": CollectObjects(layout="four-rooms-9", objects=((2, 6), (6, 2)), wrong_order="remove"),
    "terminate": CollectObjects(layout="four-rooms-9", objects=((2, 6), (6, 2)), wrong_order="terminate"),
    "own map": CollectObjects(layout=TINY_MAP, observation="state"),
}
each_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


def walk(room: Rooms) -> tuple[set[Room], set[Room]]:
    """The states met by trying every action from every start, and the ones among them that end an episode."""
    met, ends = set(room.starts()), set()
    frontier = list(met)
    while frontier:
        here = frontier.pop()
        for action in range(4):
            there, _, ended, _ = room.step(here, action)
            if ended:
                ends.add(there)
            elif there not in met:
                frontier.append(there)
            met.add(there)
    return met, ends


@each_world
def test_the_states_are_those_that_can_be_reached(world: CollectObjects) -> None:
    states = RoomsDomain(world)
    met, ends = walk(rooms_of(world))
    names = rooms_in(world, states.layout.states)
    assert len(names) == len(set(names))
    assert set(names) == met
    assert {name for name, terminal in zip(names, ~states.acting, strict=True) if terminal} == ends


@pytest.mark.parametrize("name", ["small", "usual", "own map"])
def test_the_distance_is_that_of_the_shortest_solution(name: str) -> None:
    world = WORLDS[name]
    states, room = RoomsDomain(world), rooms_of(world)
    to_second = room.distances_from(room.second)
    for (cell, first, second), distance in zip(rooms_in(world, states.layout.states), states.distance, strict=True):
        expected = room.solution_length(cell) if first else to_second[cell] if second else 0
        assert distance == expected


@each_world
def test_transitions_are_those_of_the_world(world: CollectObjects) -> None:
    states, room = RoomsDomain(world), rooms_of(world)
    names, table = rooms_in(world, states.layout.states), states.table
    assert table.start.sum() == pytest.approx(1.0)
    for state in np.flatnonzero(states.acting):
        for action in range(4):
            there, reward, ended, _ = room.step(names[state], action)
            assert names[table.next_state[state, action]] == there
            assert (table.reward[state, action], table.terminated[state, action]) == (reward, ended)


def test_values_lie_where_their_states_are() -> None:
    states = domain("CollectObjectsSmall-v0")
    before, after = states.layout.panels
    assert (before.name, after.name) == ("before object 1 is taken", "after object 1 is taken")
    agent_row = np.array([observation[0].argmax() // 9 for observation in states.observations])
    for panel in states.layout.panels:
        drawn = panel.spread(agent_row.astype(float))
        rows = np.broadcast_to(np.arange(9)[:, None], (9, 9))
        np.testing.assert_array_equal(drawn[panel.layout >= 0], rows[panel.layout >= 0])
        assert np.isnan(drawn[panel.layout < 0]).all()
    assert before.layout[2, 6] == -1  # arriving there takes the first object
    assert after.layout[6, 2] == np.flatnonzero(~states.acting).item()


@pytest.mark.parametrize("options", [{}, {"goal": (0.0, 1.0), "puddles": "none"}, {"stay": False}])
def test_the_square_is_a_grid_with_y_upward(options: dict[str, Any]) -> None:
    world = PuddleWorld(**options)
    states = Square(world)
    (panel,) = states.layout.panels
    size = len(panel.layout)
    assert panel.layout.shape == (size, size)
    observations = states.observations.astype(float)
    for row, column in ((0, 0), (0, size - 1), (size - 1, 0), (size // 2, 3)):
        expected = (column / (size - 1), row / (size - 1))
        assert observations[panel.layout[row, column]] == pytest.approx(expected, abs=1e-6)
    goal = np.abs(np.array(world.goal) - states.position).sum(axis=1)
    np.testing.assert_array_equal(states.acting, goal >= 0.1)
    np.testing.assert_allclose(states.distance, np.maximum(goal - 0.1, 0.0))
    assert states.panel_of(world.reset(np.full((1, world.reset_draws), 0.5))) is panel


example = example_module("key_room")
SPACE = example.KeyRoom.observation_space


def key_room(**attributes: Any) -> Domain:
    """The domain of the example, with other attributes."""
    domain = example.KeyRoomDomain(example.KeyRoom())
    for name, value in attributes.items():
        setattr(domain, name, value)
    return domain


POINTS = len(key_room().acting)


def layout(points: int) -> Maps:
    """Maps of so many points, in a row."""
    maps: Any = key_room().layout
    return replace(maps, panels=(maps.panels[0]._replace(layout=np.arange(points)[None]),))


def test_domains_that_fit_pass() -> None:
    values = np.arange(POINTS) / POINTS
    targets = Target("place", "place", values), Target("half", "second half", values >= 0.5)
    check_domain(key_room(distance=values, targets=targets, layout=layout(POINTS)), SPACE)
    check_domain(key_room(landmarks=()), SPACE)


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"observations": np.zeros((POINTS, 1))}, "observations"),
        ({"observations": np.zeros(())}, "observations"),
        ({"acting": np.ones(POINTS - 1, dtype=bool)}, "acting"),
        ({"acting": np.ones(POINTS)}, "acting"),
        ({"distance": np.zeros(3)}, "distance"),
        ({"landmarks": (Landmark(np.zeros(2), "a", "b"),)}, r"landmarks\[0\].values"),
        ({"targets": (Target("a", "a", np.zeros(2)),)}, r"targets\[0\].values"),
        ({"layout": layout(POINTS - 1)}, "layout"),
        ({"layout": layout(POINTS + 1)}, "layout"),
    ],
)
def test_what_does_not_fit_is_named(attributes: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must (have|be) "):
        check_domain(key_room(**attributes), SPACE)


# --- captions of cumulants whose meaning is known ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def rooms() -> RoomsDomain:
    return domain("CollectObjectsSmall-v0")


@pytest.fixture(scope="module")
def square() -> Square:
    return domain("PuddleWorld-v0")


def landmark(states: RoomsDomain | Square, words: str) -> np.ndarray:
    (values,) = (one.values for one in states.landmarks if one.more == words)
    return values


def caption(states: RoomsDomain | Square, cumulant: np.ndarray, discount: float = 0.9) -> tuple[str, str]:
    described = describe_question(cumulant, np.full(len(cumulant), discount), states)
    return described.headline, " ".join(described.facts)


def test_a_place_is_named(rooms: RoomsDomain) -> None:
    inside = np.array([(row > 4) and (column > 4) for row, column in rooms.position]).astype(float)
    headline, facts = caption(rooms, -1.0 + 0.3 * inside)
    assert headline == "Will I be in the bottom-right room?"
    assert "explains 100% of how it varies" in facts
    assert caption(rooms, -inside)[0].startswith("Will I keep out of the bottom-right room")


@pytest.mark.parametrize(("share", "named"), [(0.49, False), (0.51, True)])
def test_a_name_explains_most_of_a_question(rooms: RoomsDomain, share: float, named: bool) -> None:
    """The rest is noise that no landmark correlates with."""
    signal = landmark(rooms, "be further right")
    landmarks = np.stack([one.values for one in rooms.landmarks], axis=1)
    known = np.concatenate([landmarks, np.ones((len(signal), 1))], axis=1)
    noise = np.random.default_rng(0).normal(size=len(signal))
    noise -= known @ np.linalg.lstsq(known, noise, rcond=None)[0]
    values = np.sqrt(share) * (signal - signal.mean()) / signal.std() + np.sqrt(1 - share) * noise / noise.std()
    described = name_question(values, rooms)
    assert described.named == named
    assert described.explained == pytest.approx(share)
    if named:
        assert described.headline == "Will I be further right?"
    else:
        assert described.headline == "No name: “be further right” comes closest, and explains only 49% (r = 0.70)."


def test_a_question_about_the_way_to_go_says_so(square: Square) -> None:
    assert "It rises toward the end of the task (r = +1.00)." in caption(square, -square.distance)[1]
    learned = describe_question(square.distance, np.linspace(0.2, 0.9, len(square.groups)), square)
    assert learned.facts[-1] == "Its discount lies between 0.20 and 0.90."
