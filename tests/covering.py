"""Tests of many combinations of options, of which a sample is quick."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def crossed(*options: Collection[Any], quick: int = 24) -> list[Any]:
    """Every combination of values, as parameters of a test.

    Args:
        options: the values of each.
        quick: of more combinations than this, a sample of this size is quick, the same one at every call: of thirty
            random samples the one with the most pairs of values. The others are slow.
    """
    indices = list(product(*(range(len(values)) for values in options)))
    samples = (random.Random(seed).sample(indices, min(quick, len(indices))) for seed in range(30))
    sample = max(samples, key=lambda sample: len({pair for one in sample for pair in combinations(enumerate(one), 2)}))
    return [
        pytest.param(*values, id="-".join(map(str, values)), marks=[] if index in sample else [pytest.mark.slow])
        for index, values in zip(indices, product(*options), strict=True)
    ]
