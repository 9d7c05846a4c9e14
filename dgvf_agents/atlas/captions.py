"""What a question asks, in plain words computed from its values."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.landmarks import Landmark
from dgvf_agents.atlas.ranking import correlations
from dgvf_agents.atlas.states import WorldStates

CLEAR = 0.5
"""Share of a cumulant's variance from which on landmarks may stand for it in a headline."""
ALSO = 0.08
"""Share of the variance from which on a second landmark is named there too."""


@final
class Term(NamedTuple):
    """A landmark in the description of a cumulant."""

    landmark: Landmark
    sign: float
    """+1 where the cumulant rises with it, -1 where it falls."""
    explained: float
    """Share of the cumulant's variance that it explains beyond the terms before it."""

    @property
    def words(self) -> str:
        """What raises the cumulant."""
        return self.landmark.more if self.sign > 0 else self.landmark.less


@final
class Caption(NamedTuple):
    """A description of one question."""

    headline: str
    """The question, as one would ask it."""
    facts: tuple[str, ...]
    """What else can be said of it."""


def describe_question(cumulant: np.ndarray, discount: np.ndarray, states: WorldStates) -> Caption:
    """Describe a question by the landmarks that explain it, its extremes, and what the first object changes.

    Args:
        cumulant: `[S]`.
        discount: `[S]`.
        states: the states.
    """
    if np.ptp(cumulant) < 1e-3:
        return Caption("Nothing: the cumulant is the same everywhere.", (f"Its value is {cumulant.mean():+.2f}.",))
    terms = explain(cumulant, states.landmarks)
    facts = [explanation(terms), _extremes(cumulant, states), *_phases(cumulant, states)]
    towards_end = float(correlations(cumulant[:, None], states.distance[:, None])[0, 0])
    if abs(towards_end) >= 0.5:
        verb = "rises" if towards_end < 0 else "falls"
        facts.append(f"It {verb} toward the end of the task (r = {-towards_end:+.2f}).")
    facts.append(horizon(discount))
    return Caption(headline(terms), tuple(facts))


def explain(values: np.ndarray, landmarks: tuple[Landmark, ...], most: int = 2) -> list[Term]:
    """The landmarks that explain values best, one after the other, by least squares.

    Args:
        values: `[S]`, not all the same.
        landmarks: to choose from.
        most: how many ≥ 1; a term after the first that explains less than 2% is left out.
    """
    deviation = values - values.mean()
    total = np.square(deviation).sum()
    basis = np.zeros((len(values), 0))
    terms: list[Term] = []
    residual = deviation
    for _ in range(most):
        directions = np.stack([landmark.values - landmark.values.mean() for landmark in landmarks], axis=1)
        directions = directions - basis @ (basis.T @ directions)
        norms = np.linalg.norm(directions, axis=0)
        directions = directions / np.where(norms < 1e-6, np.inf, norms)
        along = directions.T @ residual
        best = int(np.abs(along).argmax())
        explained = float(along[best] ** 2 / total)
        if terms and explained < 0.02:
            break
        terms.append(Term(landmarks[best], float(np.sign(along[best])), explained))
        basis = np.concatenate([basis, directions[:, best : best + 1]], axis=1)
        residual = residual - directions[:, best] * along[best]
    return terms


def headline(terms: list[Term], unnamed: str = "No one place or object names it") -> str:
    """The question that the landmarks make of a cumulant; `unnamed` introduces one that they explain too little of."""
    first, *others = terms
    second = f" And will I {others[0].words}?" if others and others[0].explained >= ALSO else ""
    if first.explained + sum(term.explained for term in others) < CLEAR:
        return f"{unnamed}; nearest: will I {first.words}?{second}"
    return f"Will I {first.words}?{second}"


def explanation(terms: list[Term]) -> str:
    """How much of the cumulant's variance each landmark explains."""
    first, *others = terms
    words = f"“{_capital(first.words)}” explains {first.explained:.0%} of how it varies"
    for term in others:
        words += f"; “{term.words}” {term.explained:.0%} more"
    return words + "."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _extremes(cumulant: np.ndarray, states: WorldStates) -> str:
    ends = []
    for name, state in (("Highest", int(cumulant.argmax())), ("lowest", int(cumulant.argmin()))):
        when = ""
        if len(states.panels) > 1:
            when = " " + next(panel.name for panel in states.panels if (panel.layout == state).any())
        ends.append(f"{name} at {states.words(state)}{when} ({cumulant[state]:+.2f})")
    return ", ".join(ends) + "."


def _phases(cumulant: np.ndarray, states: WorldStates) -> list[str]:
    """What taking the first object does to a cumulant."""
    if states.holds_first is None or len(states.panels) != 2:
        return []
    before, after = (panel.spread(cumulant) for panel in states.panels)
    change = float(np.nanmean(after) - np.nanmean(before))
    verb = "raises" if change > 0 else "lowers"
    words = f"Taking object 1 {verb} it by {abs(change):.2f} on average"
    both = ~np.isnan(before) & ~np.isnan(after)
    r = float(correlations(before[both][:, None], after[both][:, None])[0, 0])
    if r >= 0.5:
        words += f", and keeps its pattern over the rooms (r = {r:+.2f})"
    elif r <= -0.5:
        words += f", and reverses its pattern over the rooms (r = {r:+.2f})"
    else:
        words += f", and gives it another pattern over the rooms (r = {r:+.2f})"
    return [words + "."]


def horizon(discount: np.ndarray) -> str:
    """The discounts that a question has, and how far it looks ahead where there is one."""
    low, high = float(discount.min()), float(discount.max())
    if high - low < 5e-3:
        ahead = f"{1.0 / (1.0 - high):.0f} steps" if high < 0.999 else "without end"
        return f"Its discount is {low:.2f} everywhere: it looks ahead about {ahead}."
    return f"Its discount lies between {low:.2f} and {high:.2f}."
