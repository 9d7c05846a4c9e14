"""The atlas as one HTML page with everything in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple, final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from dgvf_agents.atlas.agent_atlas import AgentAtlas, Questions
from dgvf_agents.atlas.captions import Caption
from dgvf_agents.atlas.curves import COLORS
from dgvf_agents.atlas.pictures import Picture
from dgvf_agents.atlas.ranking import SAME_KIND


@final
class Strip(NamedTuple):
    """A question's cumulant at several moments of training, on a color scale as wide as the last one's."""

    steps: tuple[int, ...]
    pictures: tuple[Picture, ...]


@final
@dataclass(frozen=True)
class AtlasPictures:
    """All pictures of the page; numbers are those of questions."""

    world: Picture
    policy: Picture
    cumulants: tuple[Picture, ...]
    """`[D]`."""
    answers: tuple[Picture, ...]
    """`[D]`."""
    discounts: tuple[Picture | None, ...]
    """`[D]`; `None` where a discount is the same everywhere."""
    strips: dict[int, Strip]
    """By question: those that lead a kind."""
    beside: tuple[tuple[tuple[int, Picture], ...], ...]
    """For every agent beside: some of its questions with their cumulants."""
    curves: bytes
    """PNG."""


class QuestionEntry(NamedTuple):
    """What the page says of one question."""

    number: int
    rank: int
    kind: int
    caption: Caption
    variation: float
    policy: float
    value: float
    return_lost: float | None
    cumulant: Picture
    answer: Picture | None
    """None for questions of agents beside."""
    discount: Picture | None
    """None where it is the same everywhere, too."""


class KindEntry(NamedTuple):
    """What the page says of one kind of question."""

    number: int
    leader: QuestionEntry
    others: tuple[int, ...]
    mirrored: int
    """How many of the others ask the opposite."""
    strip: Strip


class AgentRow(NamedTuple):
    """One agent in the table of representations."""

    label: str
    color: str
    untrained: bool
    effective_rank: float
    srank: int
    position: float
    distance: float
    holds_first: float | None
    exact_return: float | None


class Beside(NamedTuple):
    """Questions of another agent."""

    label: str
    asked: int
    kinds: int
    distinct: float
    questions: tuple[QuestionEntry, ...]


def render_page(agent: AgentAtlas, beside: Sequence[AgentAtlas], pictures: AtlasPictures, kinds: int) -> str:
    """The page.

    Args:
        agent: the agent whose questions are shown; has some.
        beside: agents to compare its representation with.
        pictures: of these agents, in this order.
        kinds: how many kinds of questions are shown large.
    """
    questions = agent.questions
    assert questions is not None
    entries = _entries(questions, pictures)
    by_number = {entry.number: entry for entry in entries}
    return (
        environment()
        .get_template("atlas.html")
        .render(
            agent=agent,
            entries=entries,
            kinds=[
                KindEntry(
                    number + 1,
                    by_number[kind.leader],
                    kind.members[1:],
                    sum(r < 0 for r in kind.correlations),
                    pictures.strips[kind.leader],
                )
                for number, kind in enumerate(questions.ranking.kinds[:kinds])
            ],
            kind_count=len(questions.ranking.kinds),
            rows=_rows([agent, *beside]),
            beside=_beside(beside, pictures),
            pictures=pictures,
            first_share=_first_share(questions),
            distinct=agent.moments[-1].distinct,
            finite=agent.states.table is not None,
            has_objects=agent.states.holds_first is not None,
            state_count=len(agent.states.place),
            same_kind=SAME_KIND,
        )
    )


def environment() -> Environment:
    """Templates of the pages, and what they may call."""
    templates = Environment(
        loader=PackageLoader("dgvf_agents.atlas"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["data_uri"] = data_uri
    templates.globals["zip"] = zip
    return templates


def data_uri(png: bytes) -> str:
    """A PNG as the address of itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _entries(questions: Questions, pictures: AtlasPictures) -> list[QuestionEntry]:
    """All questions, one of each kind first."""
    kind_of = {member: i + 1 for i, kind in enumerate(questions.ranking.kinds) for member in kind.members}
    rank_of = {int(question): rank + 1 for rank, question in enumerate(questions.ranking.order)}
    return [
        _entry(
            questions,
            number,
            rank_of[number],
            kind_of[number],
            pictures.cumulants[number],
            pictures.answers[number],
            pictures.discounts[number],
        )
        for number in questions.ranking.kinds_first
    ]


def _entry(
    questions: Questions,
    number: int,
    rank: int,
    kind: int,
    cumulant: Picture,
    answer: Picture | None = None,
    discount: Picture | None = None,
) -> QuestionEntry:
    reliance = questions.reliance
    return QuestionEntry(
        number,
        rank,
        kind,
        questions.captions[number],
        float(questions.ranking.variation[number]),
        float(reliance.policy[number]),
        float(reliance.value[number]),
        None if reliance.return_lost is None else float(reliance.return_lost[number]),
        cumulant,
        answer,
        discount,
    )


def _first_share(questions: Questions) -> float:
    """The largest share of the cumulants' variance over states that lies along one map."""
    cumulants = questions.maps.cumulants
    squares = np.square(np.linalg.svd(cumulants - cumulants.mean(axis=0), compute_uv=False))
    return float(squares[0] / squares.sum()) if squares.sum() > 0 else 0.0


def _rows(agents: Sequence[AgentAtlas]) -> list[AgentRow]:
    """The agents, and the first one before its training."""
    rows = [
        AgentRow(agent.label, color, False, *_numbers(agent, -1), agent.exact_return)
        for agent, color in zip(agents, cycle(COLORS))
    ]
    first = agents[0]
    return [*rows, AgentRow(f"{first.label}, untrained", "#888c94", True, *_numbers(first, 0), None)]


def _numbers(agent: AgentAtlas, moment: int) -> tuple[float, int, float, float, float | None]:
    shown = agent.moments[moment].representation
    return shown.effective_rank, shown.srank, shown.position, shown.distance, shown.holds_first


def _beside(agents: Sequence[AgentAtlas], pictures: AtlasPictures) -> list[Beside]:
    found = []
    for agent, shown in zip(agents, pictures.beside, strict=True):
        if agent.questions is not None:
            entries = tuple(_entry(agent.questions, n, i + 1, i + 1, picture) for i, (n, picture) in enumerate(shown))
            kinds = len(agent.questions.ranking.kinds)
            count = agent.questions.maps.cumulants.shape[1]
            found.append(Beside(agent.label, count, kinds, agent.moments[-1].distinct, entries))
    return found
