from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgvf_envs.puddle_world.puddles import DEGRIS_2012, PUDDLE_SETS, SUTTON_1996, CapsulePuddle, GaussianPuddle, Puddle
from tests.oracles import degris_reward, gaussian_penalty, segment_distance, sutton_reward

units = st.floats(0.0, 1.0)
points = st.tuples(units, units)
widths = st.floats(0.02, 1.0)
gaussians = st.builds(GaussianPuddle, units, units, widths, widths, st.floats(0.0, 10.0))
capsules = st.builds(CapsulePuddle, points, points, widths, st.floats(0.0, 500.0))


def penalties(puddles: Sequence[Puddle], points: Sequence[tuple[float, float]]) -> np.ndarray:
    kind = type(puddles[0])
    x, y = np.array(points).T
    return kind.penalty(np, kind.constants(puddles), x, y)


@given(st.lists(gaussians, min_size=1, max_size=4), st.lists(points, min_size=1, max_size=5))
def test_gaussian_puddles_add_up_products_of_normal_densities(
    puddles: list[GaussianPuddle], points: list[tuple[float, float]]
) -> None:
    expected = [sum(p.scale * gaussian_penalty(x, y, p.x, p.y, p.std_x, p.std_y) for p in puddles) for x, y in points]
    np.testing.assert_allclose(penalties(puddles, points), expected, rtol=1e-9, atol=1e-12)


@given(st.lists(capsules, min_size=1, max_size=4), st.lists(points, min_size=1, max_size=5))
@example([CapsulePuddle((0.0, 0.0), (0.0, 3e-159), 1.0, 1.0)], [(0.0, 0.0), (0.5, 0.0)])  # its square is subnormal
def test_the_deepest_capsule_counts(puddles: list[CapsulePuddle], points: list[tuple[float, float]]) -> None:
    expected = [
        max(p.slope * max(0.0, p.radius - segment_distance(point, p.start, p.end)) for p in puddles) for point in points
    ]
    np.testing.assert_allclose(penalties(puddles, points), expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(("puddles", "reward"), [(DEGRIS_2012, degris_reward), (SUTTON_1996, sutton_reward)])
def test_named_sets_are_those_of_the_literature(puddles: Sequence[Puddle], reward: object) -> None:
    axis = np.linspace(0.0, 1.0, 41)
    points = [(x, y) for x in axis for y in axis]
    expected = [reward(x, y) for x, y in points]
    np.testing.assert_allclose(-1.0 - penalties(puddles, points), expected, rtol=1e-12, atol=1e-12)
    assert min(expected) < -30.0  # the grid meets the puddles
    assert puddles in PUDDLE_SETS.values()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: GaussianPuddle(0.5, 0.5, 0.0, 0.1), "std_x"),
        (lambda: GaussianPuddle(0.5, 0.5, 0.1, -1.0), "std_y"),
        (lambda: GaussianPuddle(0.5, 0.5, float("nan"), 0.1), "std_x"),
        (lambda: GaussianPuddle(0.5, 0.5, 0.1, 0.1, -2.0), "scale"),
        (lambda: CapsulePuddle((0.1, 0.1), (0.2, 0.2), radius=0.0), "radius"),
        (lambda: CapsulePuddle((0.1, 0.1), (0.2, 0.2), slope=-1.0), "slope"),
    ],
)
def test_bad_puddles_are_named(build: Callable[[], Puddle], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        build()
