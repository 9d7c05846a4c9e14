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
        quick: of more combinations than this, a sample that has every pair of values is quick, the same one at every
            call. The others are slow.
    """
    indices = list(product(*(range(len(values)) for values in options)))
    sample, missing = indices, {pair for one in indices for pair in combinations(enumerate(one), 2)}
    if len(indices) > quick:
        generator, sample = random.Random(0), []
        while missing:
            drawn = generator.sample(indices, min(200, len(indices)))
            sample.append(max(drawn, key=lambda one: len(missing & {*combinations(enumerate(one), 2)})))
            missing -= {*combinations(enumerate(sample[-1]), 2)}
    return [
        pytest.param(*values, id="-".join(map(str, values)), marks=[] if index in sample else [pytest.mark.slow])
        for index, values in zip(indices, product(*options), strict=True)
    ]
