"""Tests of many combinations of options, of which a sample is quick."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import product
from typing import Any

import pytest


def crossed(*options: Collection[Any], quick: int = 20) -> list[Any]:
    """Every combination of values, as parameters of a test.

    Args:
        options: the values of each.
        quick: of more combinations than this, a random sample of this size is quick, the same one at every call. The
            others are slow.
    """
    combinations = list(product(*options))
    sample = set(random.Random(0).sample(range(len(combinations)), min(quick, len(combinations))))
    return [
        pytest.param(*values, id="-".join(map(str, values)), marks=[] if index in sample else [pytest.mark.slow])
        for index, values in enumerate(combinations)
    ]
