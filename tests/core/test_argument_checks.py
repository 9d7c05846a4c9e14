from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dgvf_agents.core.argument_checks import (
    check_counts,
    check_fractions,
    check_fractions_below_one,
    check_not_negative,
    check_positive,
    check_positive_or_infinite,
)

OTHERS: list[Any] = [math.nan, -math.inf, "1", None, True, [0.5], 1j, np.array(0.5)]
"""Values that are not finite numbers."""

CASES: list[tuple[Callable[..., None], str, list[Any], list[Any]]] = [
    (
        check_counts,
        "must be (an integer )?>= 1",
        [1, 2, np.int64(4), np.uint8(1)],
        [0, -1, 1.5, 4.0, np.float64(4.0), math.inf, *OTHERS],
    ),
    (
        check_fractions,
        r"must lie in \[0, 1\]",
        [0.0, 0.5, 1.0, 1, np.float32(0.5), np.int64(1)],
        [-0.1, 1.1, math.inf, *OTHERS],
    ),
    (
        check_fractions_below_one,
        r"must lie in \[0, 1\)",
        [0.0, 0.5, np.float32(0.5), np.int64(0)],
        [-0.1, 1.0, 1, math.inf, *OTHERS],
    ),
    (
        check_positive,
        "must be (a finite number )?> 0",
        [1e-9, 1, np.float32(0.1), np.int64(1)],
        [0.0, -1, math.inf, *OTHERS],
    ),
    (check_positive_or_infinite, "must be (a finite number )?> 0", [1e-9, math.inf], [0.0, -1, *OTHERS]),
    (
        check_not_negative,
        "must be (a finite number )?>= 0",
        [0.0, 1, np.float32(0.0)],
        [-1e-9, math.inf, *OTHERS],
    ),
]


@pytest.mark.parametrize(("check", "message", "right", "wrong"), CASES, ids=[check.__name__ for check, *_ in CASES])
def test_checks_name_the_argument_and_its_value(
    check: Callable[..., None], message: str, right: list[Any], wrong: list[Any]
) -> None:
    for value in right:
        check(number=value)
    for value in wrong:
        with pytest.raises(ValueError, match=f"^second {message}, got ") as refusal:
            check(first=right[0], second=value)
        assert str(refusal.value).endswith(f"got {value!r}")
