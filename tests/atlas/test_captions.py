"""Captions of cumulants whose meaning is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgvf_agents.atlas.captions import describe_question, explain, name_question
from dgvf_agents.atlas.domains import Rooms, Square
from dgvf_agents.atlas.metrics import effective_number, principal_questions, rank
from dgvf_agents.atlas.probe import Reliance
from dgvf_agents.atlas.report import Questions, lead
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


def test_two_landmarks_are_named_where_it_takes_both(rooms: Rooms) -> None:
    first, second = landmark(rooms, "be in the top-left room"), landmark(rooms, "be in the bottom-right room")
    terms = explain(2.0 * first - second, rooms.landmarks)
    assert [term.words for term in terms] == ["be in the top-left room", "keep out of the bottom-right room"]
    assert sum(term.explained for term in terms) == pytest.approx(1.0)
    headline, _ = caption(rooms, 2.0 * first - second)
    assert headline.endswith("? And will I keep out of the bottom-right room?")


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


def report(rooms: Rooms, cumulants: np.ndarray, policy: list[float], lost: list[float] | None) -> Any:
    """What a lead reads of a report."""
    discounts = np.full(len(cumulants), 0.9)
    relied_on = Reliance(np.array(policy), np.zeros(len(policy)), None if lost is None else np.array(lost))
    found = principal_questions(cumulants)
    questions = Questions(
        values=SimpleNamespace(cumulants=cumulants),  # type: ignore[arg-type]
        reliance=relied_on,
        ranking=rank(cumulants, relied_on.policy),
        truth=None,
        captions=tuple(describe_question(one, discounts, rooms) for one in cumulants.T),
        principal=found,
        principal_names=tuple(name_question(one, rooms) for one in found.values.T),
    )
    history = (SimpleNamespace(numbers={"effective_questions": effective_number(cumulants)}),)
    exact = None if lost is None else 3.0
    return SimpleNamespace(asked=lambda: questions, domain=rooms, history=history, exact_return=exact)


def uncorrelated(rooms: Rooms) -> tuple[np.ndarray, np.ndarray]:
    """Whether object 1 is taken, and noise; mean 0, standard deviation 1."""
    noise = np.random.default_rng(0).normal(size=len(rooms.groups))
    parts = np.linalg.qr(np.stack([np.ones(len(noise)), rooms.holds_first * 1.0, noise], axis=1))[0][:, 1:]
    held, noise = (np.sqrt(len(noise)) * parts).T
    return held * np.sign(held @ rooms.holds_first), noise


def test_the_numbers_are_told_in_words(rooms: Rooms) -> None:
    held, noise = uncorrelated(rooms)
    told = lead(report(rooms, np.stack([3.0 * held, noise, -held], axis=1), [0.3, 0.1, 0.2], [0.25, 1.5, 0.0]))
    shares = np.array([10.0, 1.0]) / 11.0
    effective = np.exp(-(shares * np.log(shares)).sum())
    assert told == (
        f"This agent asks 3 questions of 2 kinds. They vary as {effective:.1f} independent ones would: one principal "
        "question holds 91% of the variance, and the first 2 hold 100%. 2 of them have a name: landmarks explain at "
        "least 50% of how each varies. The first of these is question 0, “Will I have object 1?” The task relies most "
        "on question 1: without its answer the agent's expected return falls from 3.00 to 1.50."
    )
