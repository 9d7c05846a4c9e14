"""`dgvf_agents.agents.schedules`: numbers that change along training."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.agents.schedules import GeometricSchedule, geometric, linear, value_at


def test_a_geometric_schedule_multiplies_by_the_same_factor_from_start_to_end() -> None:
    values = [GeometricSchedule(0.3, 0.003)(1.0 - done / 10) for done in range(11)]
    assert values[0] == pytest.approx(0.3)
    assert values[5] == pytest.approx(0.03)
    assert values[-1] == pytest.approx(0.003)
    np.testing.assert_allclose(np.divide(values[1:], values[:-1]), 0.01**0.1)


@pytest.mark.parametrize(("start", "end", "named"), [(0.0, 1.0, "start"), (1.0, 0.0, "end"), (1.0, -1.0, "end")])
def test_a_geometric_schedule_refuses_what_has_no_order_of_magnitude(start: float, end: float, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} must be > 0"):
        GeometricSchedule(start, end)


def test_a_linear_schedule_changes_by_the_same_amount() -> None:
    assert [value_at(linear(1.0, 0.0), p) for p in (1.0, 0.75, 0.0)] == pytest.approx([1.0, 0.75, 0.0])


def test_without_an_end_a_number_stays_as_it_is() -> None:
    assert geometric(0.3, None) == 0.3
    assert linear(0.3, None) == 0.3
    assert value_at(0.3, 0.5) == 0.3
