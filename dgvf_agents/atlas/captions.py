"""Captions: a question in plain words, computed from its values."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark
from dgvf_agents.atlas.metrics import correlations

NAMED = 0.5
"""A question has a name if at most two landmarks explain at least this share of its cumulant's variance."""
ALSO = 0.08
"""Share of the variance from which on a second landmark is part of the name."""


@final
class Caption(NamedTuple):
    """A description of one question."""

    headline: str
    """The question, as one would ask it; or that it has no name, and what it correlates with."""
    facts: tuple[str, ...]
    """Further facts."""
    explained: float = 0.0
    """Share of the cumulant's variance that the landmarks of a name explain together."""

    @property
    def named(self) -> bool:
        """Whether the headline is a name."""
        return self.explained >= NAMED


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
    wording, values, horizon = domain.wording, cumulant[domain.counted], _horizon(discount[domain.counted])
    if np.ptp(values) < 1e-3:
        fact = f"Its value is {format(values.mean(), wording.number)}."
        return Caption(f"Nothing: the cumulant is the same {wording.everywhere}.", (fact, horizon))
    facts = [_extremes(cumulant, domain)]
    if domain.distance is not None:
        facts += _trend(values, domain.distance[domain.counted])
    facts.append(horizon)
    if truth is not None:
        facts.append(_truth(truth))
    named = name_question(values, domain)
    return named._replace(facts=(*named.facts, *facts))


def name_question(values: np.ndarray, domain: Domain) -> Caption:
    """The name of a question, if landmarks explain most of its values at the points that count, and how much they do.

    Args:
        values: of the cumulant, at the M points that count.
        domain: the points.
    """
    if not domain.landmarks:
        return Caption("No name.", ())
    landmarks = [one._replace(values=one.values[domain.counted]) for one in domain.landmarks]
    (words, explained), *others = explain(values, landmarks)
    fact = f"“{words[:1].upper()}{words[1:]}” explains {explained:.0%} of how it varies"
    fact += "".join(f"; “{other}” {share:.0%} more" for other, share in others) + "."
    headline, closest = f"Will I {words}?", f"explains only {explained:.0%} (r = {sqrt(explained):.2f})"
    for other, share in others:
        if share >= ALSO:
            headline, explained = f"{headline} And will I {other}?", explained + share
    if explained < NAMED:
        headline = f"No name: “{words}” comes closest, and {closest}."
    return Caption(headline, (fact,), explained)


def explain(values: np.ndarray, landmarks: Sequence[Landmark]) -> list[tuple[str, float]]:
    """The landmark that explains values `[N]` best by least squares, and a second one if it explains 2% more.

    Returns:
        each in words, as it raises the values, and the share of their variance that it explains beyond the one before.
    """
    directions = np.stack([landmark.values for landmark in landmarks], axis=1)
    directions = directions - directions.mean(axis=0)
    residual = values - values.mean()
    total = np.square(residual).sum()
    terms: list[tuple[str, float]] = []
    for _ in range(2):
        norms = np.linalg.norm(directions, axis=0)
        units = directions / np.where(norms < 1e-6, np.inf, norms)
        along = units.T @ residual
        best = int(np.abs(along).argmax())
        explained = float(along[best] ** 2 / total)
        if terms and explained < 0.02:
            break
        terms.append((landmarks[best].more if along[best] > 0 else landmarks[best].less, explained))
        directions = directions - np.outer(units[:, best], units[:, best] @ directions)
        residual = residual - units[:, best] * along[best]
    return terms


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
        return "Its observed returns are the same throughout."
    if truth <= 0:
        return "Its answers are further from the observed returns than their mean is."
    return f"Its answers explain {truth:.0%} of the variance of the observed returns."
