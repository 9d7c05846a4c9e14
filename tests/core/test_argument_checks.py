from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dgvf_agents.core import argument_checks as checks

OTHERS: list[Any] = [math.nan, -math.inf, "1", None, True, [0.5], 1j, np.array(0.5)]
"""Values that are not finite numbers."""

CASES: list[tuple[Callable[..., None], list[Any], list[Any]]] = [
    (checks.check_counts, [1, 2, np.int64(4), np.uint8(1)], [0, -1, 1.5, 4.0, np.float64(4.0), math.inf]),
    (checks.check_fractions, [0.0, 0.5, 1.0, 1, np.float32(0.5), np.int64(1)], [-0.1, 1.1, math.inf]),
    (checks.check_fractions_below_one, [0.0, 0.5, np.float32(0.5), np.int64(0)], [-0.1, 1.0, 1, math.inf]),
    (checks.check_positive, [1e-9, 1, np.float32(0.1), np.int64(1)], [0.0, -1, math.inf, 1e39]),
    (checks.check_positive_or_infinite, [1e-9, math.inf], [0.0, -1]),
    (checks.check_not_negative, [0.0, 1, np.float32(0.0)], [-1e-9, math.inf]),
]


@pytest.mark.parametrize(("check", "right", "wrong"), CASES, ids=[check.__name__ for check, *_ in CASES])
def test_checks_name_the_argument_and_its_value(check: Callable[..., None], right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        check(number=value)
    for value in (*wrong, *OTHERS):
        with pytest.raises(ValueError, match=r"^second must ") as refusal:
            check(first=right[0], second=value)
        assert str(refusal.value).endswith(f"got {value!r}")
