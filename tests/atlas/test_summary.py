"""The lead paragraph of questions whose numbers are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgvf_agents.atlas.captions import describe_question, name_question
from dgvf_agents.atlas.metrics import effective_number, principal_questions, rank
from dgvf_agents.atlas.reliance import Reliance
from dgvf_agents.atlas.report import Questions
from dgvf_agents.atlas.rooms import Rooms
from dgvf_agents.atlas.summary import lead
from tests.atlas.runs import domain


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return domain("CollectObjectsSmall-v0")


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


def test_all_may_have_a_name(rooms: Rooms) -> None:
    held, _ = uncorrelated(rooms)
    told = lead(report(rooms, np.stack([held, 2.0 * held], axis=1), [0.1, 0.2], None))
    assert " All of them have a name: landmarks explain at least 50% of how each varies. " in told
    assert " 1 of them has a name: " in lead(report(rooms, held[:, None], [0.1], None))


def test_no_more_is_claimed_than_there_is(rooms: Rooms) -> None:
    _, noise = uncorrelated(rooms)
    told = lead(report(rooms, noise[:, None], [0.5], [0.001]))
    assert told.startswith("This agent asks 1 question of 1 kind. ")
    assert "one principal question holds 100% of the variance. None of them has a name" in told
    assert told.endswith("Erasing any one answer leaves the agent's expected return of 3.00 as it is.")
    assert lead(report(rooms, np.ones((len(noise), 2)), [0.0, 0.0], None)) == (
        "This agent asks 2 questions of 2 kinds. Their cumulants are the same everywhere: it asks nothing."
    )


def test_without_exact_returns_the_policy_is_told_of(rooms: Rooms) -> None:
    held, noise = uncorrelated(rooms)
    told = lead(report(rooms, np.stack([held, noise], axis=1), [0.02, 0.31], None))
    assert "The policy relies most on question 1: without its answer" in told
    assert "change by 0.31 nats" in told
