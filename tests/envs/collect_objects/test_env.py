from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgvf_envs.collect_objects import CollectObjects, CollectObjectsState
from tests.helpers import COLLECT_IDS, TINY_MAP, registered_world, rooms_in, rooms_of
from tests.oracles import Room

WRONG_ORDERS = ("ignore", "remove", "terminate")


def state_of(world: CollectObjects, rooms: list[Room]) -> CollectObjectsState:
    agents = [world.map.index[cell] for cell, _, _ in rooms]
    return CollectObjectsState(np.array(agents), *np.array([room[1:] for room in rooms], dtype=bool).T)


def assert_follows_the_rules(world: CollectObjects) -> None:
    """Every action in every state, also in those that play does not reach."""
    rules = rooms_of(world)
    states = list(rules.states())
    for action in range(4):
        after = world.step(state_of(world, states), np.full(len(states), action), np.empty((len(states), 0)))
        expected = [rules.step(state, action) for state in states]
        assert rooms_in(world, after.state) == [state for state, *_ in expected]
        assert after.reward.tolist() == [reward for _, reward, _, _ in expected]
        assert after.terminated.tolist() == [terminated for *_, terminated, _ in expected]
        assert after.success.tolist() == [success for *_, success in expected]


@pytest.mark.parametrize("wrong_order", WRONG_ORDERS)
@pytest.mark.parametrize("env_id", COLLECT_IDS)
def test_step_is_the_literal_transcription(env_id: str, wrong_order: str) -> None:
    world = registered_world(env_id)
    assert_follows_the_rules(CollectObjects(world.layout, world.objects, wrong_order=wrong_order))


@given(st.data())
def test_step_is_the_literal_transcription_on_any_map(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 5))
    lines = [["."] * columns for _ in range(rows)]
    border = [(r, c) for r in range(rows) for c in range(columns) if r in (0, rows - 1) or c in (0, columns - 1)]
    for row in range(1, rows - 1):  # walls inside only: the border keeps objects and start connected
        for column in range(1, columns - 1):
            lines[row][column] = data.draw(st.sampled_from("#."))
    start, *objects = data.draw(st.lists(st.sampled_from(border), min_size=3, max_size=3, unique=True))
    lines[start[0]][start[1]] = "S"
    wrong_order = data.draw(st.sampled_from(WRONG_ORDERS))
    assert_follows_the_rules(CollectObjects(["".join(line) for line in lines], objects, wrong_order=wrong_order))


WORLDS = {"classic": {}, "tiny": {"layout": TINY_MAP}, "small": {"layout": "four-rooms-9", "objects": ((2, 6), (6, 2))}}


def drawn_planes(lines: Any, first: Any, second: Any, state: Room) -> np.ndarray:
    planes = np.zeros((3, len(lines), len(lines[0])))
    planes[0][state[0]] = 1
    planes[1][first] = state[1]
    planes[2][second] = state[2]
    return planes


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("observation", ["planes", "rgb", "state"])
def test_observations_show_the_state(options: dict[str, Any], observation: str) -> None:
    world = CollectObjects(**options, observation=observation)
    rules = rooms_of(world)
    states = list(rules.states())
    scenes: dict[Any, set[bytes]] = defaultdict(set)
    for state, seen in zip(states, world.observe(state_of(world, states)), strict=True):
        assert world.observation_space.contains(seen)
        cell, first, second = state
        if observation == "planes":
            np.testing.assert_array_equal(seen, drawn_planes(rules.lines, rules.first, rules.second, state))
        elif observation == "state":
            assert seen.tolist() == [*cell, first, second]
        else:  # the agent hides an object in its cell
            scenes[cell, first and cell != rules.first, second and cell != rules.second].add(seen.tobytes())
            assert (seen[cell] != seen[rules.cells()[0 if cell != rules.cells()[0] else 1]]).any()
    pictures = [picture for seen in scenes.values() for picture in seen]
    assert len(pictures) == len(scenes) == len(set(pictures))


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
def test_starts_are_uniform_over_the_allowed_cells(options: dict[str, Any]) -> None:
    world = CollectObjects(**options)
    starts = rooms_of(world).starts()
    uniforms = (np.arange(7 * len(starts)) + 0.5) / (7 * len(starts))
    drawn = Counter(rooms_in(world, world.reset(uniforms[:, None])))
    assert drawn == dict.fromkeys(starts, 7)


@given(st.integers(1, 70))
def test_the_largest_draw_is_the_last_start(free: int) -> None:
    world = CollectObjects(["12" + "." * free], ((0, 0), (0, 1)))
    ends = world.reset(np.array([[0.0], [math.nextafter(1.0, 0.0)]]))
    assert rooms_in(world, ends) == [((0, 2), True, True), ((0, free + 1), True, True)]


def test_objects_on_the_map_give_way_to_the_argument() -> None:
    assert rooms_of(CollectObjects(TINY_MAP)).first == (1, 2)
    world = CollectObjects(TINY_MAP, objects=[[3, 1], [1, 1]])
    assert (tuple(world.map.cells[world.first_cell]), tuple(world.map.cells[world.second_cell])) == ((3, 1), (1, 1))
    assert rooms_in(world, world.reset(np.array([[0.5]]))) == [((3, 3), True, True)]  # the other S is taken


@pytest.mark.parametrize("namespace", [np, torch], ids=["numpy", "torch"])
def test_states_are_numbered_one_by_one(namespace: Any) -> None:
    world = CollectObjects(TINY_MAP).on(namespace)
    index = world.state_index(world.states())
    assert index.tolist() == list(range(4 * len(world.map.cells)))
    numbered = zip(*(field.tolist() for field in world.states()), strict=True)
    assert len(set(numbered)) == len(index)


def test_states_live_where_the_constants_live() -> None:
    world = CollectObjects(TINY_MAP).on(torch, device="meta")
    assert {field.device.type for field in world.states()} == {"meta"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"objects": ((2.7, 10), (9, 10))}, "objects"),
        ({"objects": ((0, 0), (9, 10))}, "objects"),
        ({"objects": ((2, 10), (20, 1))}, "objects"),
        ({"objects": ((2, 10), (2, 10))}, "objects"),
        ({"objects": ((2, 10),)}, "objects"),
        ({"objects": "12"}, "objects"),
        ({"layout": ["1 #2"]}, "objects"),
        ({"layout": ["12"]}, "layout"),
        ({"layout": ["12#S"], "objects": ((0, 0), (0, 3))}, "layout"),
        ({"layout": ["1 2 1"]}, "layout"),
        ({"observation": "pixels"}, "observation"),
        ({"wrong_order": "punish"}, "wrong_order"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        CollectObjects(**options)
