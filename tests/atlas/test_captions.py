"""Captions of cumulants whose meaning is known."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.atlas.captions import describe_question, explain, name_question
from dgvf_agents.atlas.rooms import Rooms
from dgvf_agents.atlas.square import Square
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
    assert "keeps its pattern over the rooms (r = +1.00)" in facts
    assert caption(rooms, -inside)[0].startswith("Will I keep out of the bottom-right room")


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        (0.25, "Its answers explain 25% of how what came varies."),
        (-0.25, "Its answers are further from what came than the mean of what came is."),
        (0.0, "Its answers are further from what came than the mean of what came is."),
        (float("nan"), "What came of it is the same throughout."),
        (None, None),
    ],
)
def test_how_true_answers_are_is_said_where_it_is_known(rooms: Rooms, truth: float | None, said: str | None) -> None:
    cumulant = 0.8 * rooms.holds_first
    facts = describe_question(cumulant, np.full(len(cumulant), 0.75), rooms, truth).facts
    plain = describe_question(cumulant, np.full(len(cumulant), 0.75), rooms).facts
    assert facts == (plain if said is None else (*plain, said))


def test_the_first_object_is_named(rooms: Rooms) -> None:
    headline, facts = caption(rooms, 0.8 * rooms.holds_first, discount=0.75)
    assert headline == "Will I have object 1?"
    assert "Taking object 1 raises it by 0.80 on average" in facts
    assert "Its discount is 0.75 everywhere: it looks ahead about 4 steps." in facts
    assert caption(rooms, 1.0 - 0.8 * rooms.holds_first)[0].startswith("Will I still lack object 1")


def test_the_end_is_named(rooms: Rooms, square: Square) -> None:
    assert caption(rooms, 3.0 * ~rooms.acting - 1.0)[0] == "Will I finish the episode?"
    assert caption(square, 3.0 * ~square.acting - 1.0)[0] == "Will I reach the goal?"


def test_a_pattern_that_turns_around_is_told(rooms: Rooms) -> None:
    sign = np.where(rooms.holds_first, 1.0, -1.0)
    facts = caption(rooms, sign * rooms.position[:, 1])[1]
    assert "reverses its pattern over the rooms (r = -1.00)" in facts


def test_two_landmarks_are_named_where_it_takes_both(rooms: Rooms) -> None:
    first, second = landmark(rooms, "be in the top-left room"), landmark(rooms, "be in the bottom-right room")
    terms = explain(2.0 * first - second, rooms.landmarks)
    assert [term.words for term in terms] == ["be in the top-left room", "keep out of the bottom-right room"]
    assert sum(term.explained for term in terms) == pytest.approx(1.0)
    headline, _ = caption(rooms, 2.0 * first - second)
    assert headline.endswith("? And will I keep out of the bottom-right room?")


def test_extremes_are_where_they_are(rooms: Rooms) -> None:
    cumulant = np.zeros(len(rooms.groups))
    before, after = rooms.layout.panels
    cumulant[after.layout[2, 4]], cumulant[before.layout[7, 6]] = 0.5, -0.25
    facts = caption(rooms, cumulant)[1]
    assert "Highest at row 2, column 4 after object 1 is taken (+0.50)" in facts
    assert "lowest at row 7, column 6 before object 1 is taken (-0.25)" in facts


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


def test_a_second_landmark_is_part_of_a_name_only_if_it_is_in_it(rooms: Rooms) -> None:
    """45% and 6% are no name: the 6% are too few to be named."""
    directions = np.linalg.qr(
        np.stack([landmark(rooms, words) for words in ("be further right", "be further down")], axis=1)
        - [landmark(rooms, words).mean() for words in ("be further right", "be further down")]
    )[0]
    landmarks = np.stack([one.values for one in rooms.landmarks], axis=1)
    known = np.concatenate([landmarks, np.ones((len(landmarks), 1))], axis=1)
    noise = np.random.default_rng(1).normal(size=len(known))
    noise -= known @ np.linalg.lstsq(known, noise, rcond=None)[0]
    signs = np.sign([np.dot(directions[:, 0], rooms.position[:, 1]), np.dot(directions[:, 1], rooms.position[:, 0])])
    values = directions @ (signs * np.sqrt([0.45, 0.06])) + np.sqrt(0.49) * noise / np.linalg.norm(noise)
    assert not name_question(values, rooms).named
    assert "45%" in name_question(values, rooms).headline


@pytest.mark.parametrize(
    ("words", "cumulant"),
    [
        ("be far from the goal", lambda s: s.distance),
        ("be close to the goal", lambda s: -s.distance),
        ("be further right", lambda s: s.position[:, 0]),
        ("be further down", lambda s: -s.position[:, 1]),
        ("be in the top-left quarter", lambda s: ((s.position[:, 0] < 0.5) & (s.position[:, 1] >= 0.5)) * 1.0),
        ("be clear of the puddles", lambda s: -np.sqrt(-s.world.reward(*s.position.T) - 1.0)),
    ],
)
def test_the_square_has_its_own_words(square: Square, words: str, cumulant: object) -> None:
    headline, facts = caption(square, cumulant(square))  # type: ignore[operator]
    assert headline.startswith(f"Will I {words}?")
    assert "object 1" not in facts


def test_a_question_about_the_way_to_go_says_so(square: Square) -> None:
    assert "It rises toward the end of the task (r = +1.00)." in caption(square, -square.distance)[1]
    learned = describe_question(square.distance, np.linspace(0.2, 0.9, len(square.groups)), square)
    assert learned.facts[-1] == "Its discount lies between 0.20 and 0.90."
