"""Covering arrays: few combinations of options in which all values of any few options occur together."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import pytest

Combination = tuple[int, ...]
"""For each option, the index of its value."""


def crossed(*options: Collection[Any], many: int = 24) -> list[Any]:
    """Every combination of values, as parameters of a test.

    Of many combinations, a covering array's are quick: any values of any three options occur together in one
    of them. The others are slow.

    Args:
        options: the values of each.
        many: the number of combinations up to which all are quick.
    """
    values, counts = [list(option) for option in options], [len(option) for option in options]
    everything = list(product(*map(range, counts)))
    quick = set(covering(counts) if prod(counts) > many else everything)
    parameters = []
    for indices in everything:
        chosen = [option[i] for option, i in zip(values, indices, strict=True)]
        marks = [] if indices in quick else [pytest.mark.slow]
        parameters.append(pytest.param(*chosen, id="-".join(map(str, chosen)), marks=marks))
    return parameters


def covering(counts: Sequence[int], strength: int = 3, attempts: int = 20) -> list[Combination]:
    """Combinations in which any values of any `strength` options occur together; the same ones at every call.

    Greedy: of several random combinations with values that have not occurred together yet, take the one that adds
    most.

    Args:
        counts: number of values of each option.
        strength: number of options.
        attempts: number of random combinations to choose from each time.
    """
    rng = random.Random(0)
    options = list(combinations(range(len(counts)), min(strength, len(counts))))
    missing = dict.fromkeys(
        (chosen, values) for chosen in options for values in product(*(range(counts[option]) for option in chosen))
    )
    found: list[Combination] = []
    while missing:
        chosen, values = next(iter(missing))
        best: tuple[int, Combination] = (0, ())
        for _ in range(attempts):
            drawn = [rng.randrange(count) for count in counts]
            for option, value in zip(chosen, values, strict=True):
                drawn[option] = value
            gain = sum(part in missing for part in _parts(drawn, options))
            best = max(best, (gain, tuple(drawn)))
        found.append(best[1])
        for part in _parts(best[1], options):
            missing.pop(part, None)
    return found


def _parts(combination: Sequence[int], options: list[Combination]) -> Iterator[tuple[Combination, Combination]]:
    """The values of every few options."""
    return ((chosen, tuple(combination[option] for option in chosen)) for chosen in options)
