"""The moments of a game at which to look closely at a question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def key_moments(steps: int, even: int, besides: Sequence[int]) -> list[int]:
    """Moments at even distances, the last one among them, and some others, in order.

    The moment 0 is not among those at even distances: no step arrives there.

    Args:
        steps: T ≥ 1.
        even: how many at even distances ≥ 1; all of them where there are no more.
        besides: other moments in 1 … T.
    """
    if even < 1:
        raise ValueError(f"even must be >= 1, got {even!r}")
    places = np.linspace(steps, 1, min(even, steps)).round().astype(int).tolist()
    return sorted({*places, *besides})
