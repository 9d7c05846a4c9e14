"""Captions of cumulants whose meaning is known."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.atlas.captions import describe_question, name_question
from dgvf_agents.atlas.domains import Rooms, Square
from tests.atlas.runs import domain


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return domain("CollectObjectsSmall-v0")


@pytest.fixture(scope="module")
def square() -> Square:
    return domain("PuddleWorld-v0")


def landmark(states: Rooms | Square, words: str) -> np.ndarray:
    (values,) = (one.values for one in states.landmarks if one.more == words)
    return values


def caption(states: Rooms | Square, cumulant: np.ndarray, discount: float = 0.9) -> tuple[str, str]:
    described = describe_question(cumulant, np.full(len(cumulant), discount), states)
    return described.headline, " ".join(described.facts)


def test_a_place_is_named(rooms: Rooms) -> None:
    inside = np.array([(row > 4) and (column > 4) for row, column in rooms.position]).astype(float)
    headline, facts = caption(rooms, -1.0 + 0.3 * inside)
    assert headline == "Will I be in the bottom-right room?"
    assert "explains 100% of how it varies" in facts
    assert caption(rooms, -inside)[0].startswith("Will I keep out of the bottom-right room")


def test_what_nothing_explains_is_said_to_be_so(rooms: Rooms) -> None:
    noise = np.random.default_rng(0).normal(size=len(rooms.groups))
    headline, facts = caption(rooms, noise)
    assert headline.startswith("No name: “")
    assert " how it varies" in facts
    assert caption(rooms, np.full(len(noise), 0.3))[0].startswith("Nothing")


@pytest.mark.parametrize(("share", "named"), [(0.49, False), (0.51, True)])
def test_a_name_explains_most_of_a_question(rooms: Rooms, share: float, named: bool) -> None:
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
