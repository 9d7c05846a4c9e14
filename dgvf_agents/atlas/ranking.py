"""Which questions to look at first: how much they vary, how much the main task relies on them, which are alike."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

SAME_KIND = 0.9
"""Magnitude of the correlation of two cumulant maps from which on they count as one kind of question."""


@final
class Kind(NamedTuple):
    """Questions whose cumulants are alike, up to sign, scale and shift."""

    leader: int
    """The one that ranks first."""
    members: tuple[int, ...]
    """All of them by rank, the leader first."""
    correlations: tuple[float, ...]
    """Of each member's cumulant with the leader's."""


@final
class Ranking(NamedTuple):
    """D questions in order."""

    variation: np.ndarray
    """`[D]`: standard deviation of each cumulant over the states."""
    score: np.ndarray
    """`[D]`: mean of the ranks by variation and by reliance, as a share of D; 1 is first by both."""
    order: np.ndarray
    """`[D]` integer: question numbers by score, best first."""
    kinds: tuple[Kind, ...]
    """The kinds, by the score of their leaders."""

    @property
    def kinds_first(self) -> list[int]:
        """All questions: one of each kind, then the others, both by score."""
        leaders = [kind.leader for kind in self.kinds]
        return leaders + [int(question) for question in self.order if question not in set(leaders)]


def rank(cumulants: np.ndarray, relied_on: np.ndarray) -> Ranking:
    """Order questions by how much they vary over states and by how much the main task relies on them.

    Args:
        cumulants: `[S, D]`.
        relied_on: `[D]`.
    """
    variation = cumulants.std(axis=0)
    count = len(relied_on)
    score = (_places(variation) + _places(relied_on)) / (2 * max(count - 1, 1))
    order = np.argsort(-score, kind="stable")
    return Ranking(variation, score, order, tuple(kinds_of(cumulants, order)))


def _places(values: np.ndarray) -> np.ndarray:
    """`[D]`: how many are smaller; ties share the mean of their places."""
    return ((values[:, None] > values).sum(axis=1) + (values[:, None] >= values).sum(axis=1) - 1) / 2


def kinds_of(cumulants: np.ndarray, order: np.ndarray) -> list[Kind]:
    """Group questions: in order, each joins the first leader it correlates with, or leads a new kind.

    Args:
        cumulants: `[S, D]`.
        order: `[D]` integer.
    """
    correlation = correlations(cumulants)
    members: dict[int, list[int]] = {}
    for question in order.tolist():
        leader = next((known for known in members if abs(correlation[question, known]) >= SAME_KIND), question)
        members.setdefault(leader, []).append(question)
    return [Kind(leader, tuple(m), tuple(float(correlation[leader, i]) for i in m)) for leader, m in members.items()]


def correlations(maps: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """Pearson correlations `[D, E]` over the states of maps `[S, D]` with others `[S, E]`; 0 where one is constant."""
    others = maps if others is None else others
    return _standardized(maps).T @ _standardized(others)


def _standardized(maps: np.ndarray) -> np.ndarray:
    centered = maps - maps.mean(axis=0)
    norms = np.linalg.norm(centered, axis=0)
    return centered / np.where(norms < 1e-9, np.inf, norms)
