"""Covering arrays, from which several tests take their quick cases."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.covering import covering


@pytest.mark.parametrize(("counts", "strength"), [((2, 3, 2, 4, 2), 2), ((2, 3, 2, 4, 2), 3), ((3, 2), 3), ((4,), 2)])
def test_any_values_of_a_few_options_occur_together(counts: tuple[int, ...], strength: int) -> None:
    found = covering(counts, strength)
    assert found == covering(counts, strength)
    for options in combinations(range(len(counts)), min(strength, len(counts))):
        together = {tuple(combination[option] for option in options) for combination in found}
        assert together == set(product(*(range(counts[option]) for option in options)))


def test_there_are_far_fewer_than_all_combinations() -> None:
    assert len(covering((2, 2, 2, 4, 3, 2, 2, 2, 2))) < 1536 / 30
