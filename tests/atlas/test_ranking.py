from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.atlas.ranking import correlations, kinds_of, rank


def waves(count: int = 64) -> np.ndarray:
    """Orthogonal maps `[64, count]` of standard deviation 1 and mean 0."""
    t = 2 * np.pi * np.arange(64) / 64
    return np.stack([np.sqrt(2) * np.cos((i + 1) * t) for i in range(count)], axis=1)[:, :count]


def test_correlations_are_pearson_s_and_0_where_nothing_varies() -> None:
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(20, 4))
    np.testing.assert_allclose(correlations(maps), np.corrcoef(maps.T), atol=1e-12)
    maps[:, 2] = 7.0
    assert not correlations(maps)[2].any()


def test_kinds_are_alike_up_to_sign_scale_and_shift() -> None:
    a, b, c = waves(3).T
    maps = np.stack([a, b, 3.0 - 0.1 * a, c, 0.5 * b + 0.1 * a, np.full(64, 2.0)], axis=1)
    kinds = kinds_of(maps, np.array([2, 4, 0, 1, 3, 5]))
    assert [kind.members for kind in kinds] == [(2, 0), (4, 1), (3,), (5,)]
    assert kinds[0].correlations == pytest.approx((1.0, -1.0))
    assert kinds[1].correlations[1] == pytest.approx(0.5 / np.hypot(0.5, 0.1))


def test_first_is_what_varies_most_and_is_relied_on_most() -> None:
    maps = waves(4) * np.array([1.0, 4.0, 3.0, 2.0])
    ranking = rank(maps, np.array([0.0, 3.0, 2.0, 1.0]))
    np.testing.assert_allclose(ranking.variation, [1, 4, 3, 2])
    assert ranking.order.tolist() == [1, 2, 3, 0]
    np.testing.assert_allclose(ranking.score, [0.0, 1.0, 2 / 3, 1 / 3])
    both = rank(maps, np.array([3.0, 0.0, 2.5, 1.0]))  # ranks by reliance: 3, 0, 2, 1
    np.testing.assert_allclose(both.score, [3 / 6, 3 / 6, 4 / 6, 2 / 6])
    assert both.order.tolist() == [2, 0, 1, 3]


def test_one_of_each_kind_comes_before_the_others() -> None:
    a, b = waves(2).T
    ranking = rank(np.stack([a, 0.9 * a, 0.8 * b, 0.5 * b], axis=1), np.zeros(4))
    assert ranking.order.tolist() == [0, 1, 2, 3]
    assert [kind.leader for kind in ranking.kinds] == [0, 2]
    assert ranking.kinds_first == [0, 2, 1, 3]
