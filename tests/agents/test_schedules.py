"""`dgvf_agents.agents.schedules`: numbers that change along training."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.agents.schedules import GeometricSchedule, scheduled, value_at


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


def test_schedules_of_hyperparameters_are_linear_or_geometric() -> None:
    for name, middle in (("learning_rate", 0.2), ("ent_coef", 0.0632)):
        schedule = scheduled(name, 0.4, 0.01 if name == "ent_coef" else 0.0)
        assert value_at(schedule, 0.5) == pytest.approx(middle, rel=1e-3)
        assert scheduled(name, 0.3, None) == value_at(0.3, 0.5) == 0.3
