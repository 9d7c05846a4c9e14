from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dgvf_agents.argument_checks import (
    check_counts,
    check_fractions,
    check_not_negative,
    check_positive,
    check_positive_if_given,
)

CASES: list[tuple[Callable[..., None], str, list[Any], list[Any]]] = [
    (
        check_counts,
        "must be >= 1",
        [1, 2, 3.0, np.int64(4)],
        [0, -1, 1.5, True, math.inf, math.nan, "two", None, [1]],
    ),
    (check_fractions, r"must lie in \[0, 1\]", [0.0, 0.5, 1.0, 1], [-0.1, 1.1, math.nan]),
    (check_positive, "must be > 0", [1e-9, 1, math.inf], [0.0, -1, math.nan]),
    (check_positive_if_given, "must be > 0", [None, 1e-9], [0.0, -1, math.nan]),
    (check_not_negative, "must be >= 0", [0.0, 1], [-1e-9, math.inf, math.nan]),
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
