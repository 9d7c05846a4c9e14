"""What a question asks of a recorded game, in plain words computed from its values."""

from __future__ import annotations

import numpy as np

from dgvf_agents.atlas.captions import Caption, explain, explanation, headline, horizon
from dgvf_agents.atlas.landmarks import Landmark

_STILL = 1e-3
"""Range of a cumulant below which it counts as the same throughout."""


def describe_in_game(
    cumulant: np.ndarray, discount: np.ndarray, truth: float, landmarks: tuple[Landmark, ...], first: int = 1
) -> Caption:
    """Describe a question by what goes along with its cumulant in one game, its extremes, horizon and answer.

    Args:
        cumulant: `[N]`: for arriving at moments `first` … T.
        discount: `[N]`.
        truth: how well its answers tell the outcomes, 1 - Σ error² / Σ deviation²; NaN where outcomes do not vary.
        landmarks: over the same moments.
        first: the first of them.
    """
    if np.ptp(cumulant) < _STILL:
        facts = (f"Its value is {cumulant.mean():+.3f}.", horizon(discount))
        return Caption("Nothing: the cumulant is the same throughout the game.", facts)
    facts_found = [_extremes(cumulant, first), horizon(discount), _truth(truth)]
    if not landmarks:
        return Caption("Nothing else varies in this game.", tuple(facts_found))
    terms = explain(cumulant, landmarks)
    return Caption(headline(terms, "No event names it"), (explanation(terms), *facts_found))


def _extremes(cumulant: np.ndarray, first: int) -> str:
    ends = []
    for name, moment in (("Highest", int(cumulant.argmax())), ("lowest", int(cumulant.argmin()))):
        ends.append(f"{name} at step {first + moment} ({cumulant[moment]:+.3g})")
    return ", ".join(ends) + "."


def _truth(truth: float) -> str:
    if np.isnan(truth):
        return "What came of it is the same throughout."
    if truth <= 0:
        return "Its answers are further from what came than the mean of what came is."
    return f"Its answers explain {truth:.0%} of how what came varies."
