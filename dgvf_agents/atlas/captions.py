"""What a question asks, in plain words computed from its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark
from dgvf_agents.atlas.metrics import correlations

CLEAR = 0.5
"""Share of a cumulant's variance from which on landmarks may stand for it in a headline."""
ALSO = 0.08
"""Share of the variance from which on a second landmark is named there too."""


@final
class Term(NamedTuple):
    """A landmark in the description of a cumulant."""

    words: str
    """What raises the cumulant."""
    explained: float
    """Share of the cumulant's variance that it explains beyond the terms before it."""


@final
class Caption(NamedTuple):
    """A description of one question."""

    headline: str
    """The question, as one would ask it."""
    facts: tuple[str, ...]
    """What else can be said of it."""


def describe_question(
    cumulant: np.ndarray, discount: np.ndarray, domain: Domain, truth: float | None = None
) -> Caption:
    """Describe a question by the landmarks that explain it, its extremes, its horizon and its answers.

    Args:
        cumulant: `[N]`.
        discount: `[N]`.
        domain: the points.
        truth: share of the outcomes' variance that its answers explain, NaN if it is zero; `None` without outcomes.
    """
    counted, wording = domain.counted, domain.wording
    values = cumulant[counted]
    if np.ptp(values) < 1e-3:
        fact = f"Its value is {format(values.mean(), wording.number)}."
        return Caption(f"Nothing: the cumulant is the same {wording.everywhere}.", (fact, _horizon(discount[counted])))
    facts = [_extremes(cumulant, domain), *domain.facts(cumulant)]
    if domain.distance is not None:
        facts += _trend(values, domain.distance[counted])
    facts.append(_horizon(discount[counted]))
    if truth is not None:
        facts.append(_truth(truth))
    landmarks = [landmark._replace(values=landmark.values[counted]) for landmark in domain.landmarks]
    if not landmarks:
        return Caption(f"{wording.unnamed}.", tuple(facts))
    terms = explain(values, landmarks)
    return Caption(_headline(terms, wording.unnamed), (_explanation(terms), *facts))


def explain(values: np.ndarray, landmarks: Sequence[Landmark]) -> list[Term]:
    """The landmark that explains values `[N]` best by least squares, and a second one if it explains 2% more."""
    directions = np.stack([landmark.values for landmark in landmarks], axis=1)
    directions = directions - directions.mean(axis=0)
    residual = values - values.mean()
    total = np.square(residual).sum()
    terms: list[Term] = []
    for _ in range(2):
        norms = np.linalg.norm(directions, axis=0)
        units = directions / np.where(norms < 1e-6, np.inf, norms)
        along = units.T @ residual
        best = int(np.abs(along).argmax())
        explained = float(along[best] ** 2 / total)
        if terms and explained < 0.02:
            break
        terms.append(Term(landmarks[best].more if along[best] > 0 else landmarks[best].less, explained))
        directions = directions - np.outer(units[:, best], units[:, best] @ directions)
        residual = residual - units[:, best] * along[best]
    return terms


def _headline(terms: list[Term], unnamed: str) -> str:
    first, *others = terms
    second = f" And will I {others[0].words}?" if others and others[0].explained >= ALSO else ""
    if sum(term.explained for term in terms) < CLEAR:
        return f"{unnamed}; nearest: will I {first.words}?{second}"
    return f"Will I {first.words}?{second}"


def _explanation(terms: list[Term]) -> str:
    first, *others = terms
    words = f"“{first.words[:1].upper()}{first.words[1:]}” explains {first.explained:.0%} of how it varies"
    return words + "".join(f"; “{term.words}” {term.explained:.0%} more" for term in others) + "."


def _extremes(cumulant: np.ndarray, domain: Domain) -> str:
    highest, lowest = (
        f"at {domain.name(point)} ({format(cumulant[point], domain.wording.number)})"
        for point in domain.extremes(cumulant)
    )
    return f"Highest {highest}, lowest {lowest}."


def _trend(cumulant: np.ndarray, distance: np.ndarray) -> list[str]:
    r = -float(correlations(cumulant[:, None], distance[:, None])[0, 0])
    return [f"It {'rises' if r > 0 else 'falls'} toward the end of the task (r = {r:+.2f})."] if abs(r) >= 0.5 else []


def _horizon(discount: np.ndarray) -> str:
    low, high = float(discount.min()), float(discount.max())
    if high - low < 5e-3:
        ahead = f"{1.0 / (1.0 - high):.0f} steps" if high < 0.999 else "without end"
        return f"Its discount is {low:.2f} everywhere: it looks ahead about {ahead}."
    return f"Its discount lies between {low:.2f} and {high:.2f}."


def _truth(truth: float) -> str:
    if np.isnan(truth):
        return "What came of it is the same throughout."
    if truth <= 0:
        return "Its answers are further from what came than the mean of what came is."
    return f"Its answers explain {truth:.0%} of how what came varies."
