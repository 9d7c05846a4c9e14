"""Order and kinds of questions, ranks of features and linear decoding, against cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.atlas.metrics import (
    correlations,
    decoded,
    effective_number,
    effective_rank,
    kinds_of,
    principal_questions,
    rank,
    srank,
)


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


def test_principal_questions_are_those_of_the_covariance() -> None:
    maps = np.random.default_rng(0).normal(size=(30, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    found = principal_questions(maps, count=6, least=0.0)
    variances, directions = np.linalg.eigh(np.cov(maps.T))
    np.testing.assert_allclose(found.shares, variances[::-1] / variances.sum())
    assert found.shares.sum() == pytest.approx(1.0)
    projected = (maps - maps.mean(axis=0)) @ directions[:, ::-1]
    np.testing.assert_allclose(np.abs(found.values), np.abs(projected / projected.std(axis=0)), atol=1e-9)
    np.testing.assert_allclose(found.values.std(axis=0), 1.0)
    best = correlations(maps, found.values)
    np.testing.assert_array_equal(found.nearest, np.abs(best).argmax(axis=0))
    np.testing.assert_allclose(found.correlations, best.max(axis=0), atol=1e-12)  # positive by choice of sign


def with_singular_values(values: list[float], rows: int = 12, columns: int = 9) -> np.ndarray:
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (rows, columns))
    middle = np.zeros((rows, columns))
    np.fill_diagonal(middle, values + [0.0] * (columns - len(values)))
    return left @ middle @ right


@pytest.mark.parametrize("rank", [1, 3, 9])
def test_equal_singular_values_count_each(rank: int) -> None:
    features = with_singular_values([2.5] * rank)
    assert effective_rank(features) == pytest.approx(rank)
    assert srank(features) == rank


def test_the_effective_number_counts_variances_and_no_means() -> None:
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    cumulants = signs * np.sqrt([3.0, 1.0])
    expected = np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    for mean in (0.0, 5.0, np.array([-2.0, 40.0])):
        assert effective_number(cumulants + mean) == pytest.approx(expected)
        assert effective_number(np.tile(cumulants + mean, 3)) == pytest.approx(expected)


def test_the_effective_rank_is_the_exponential_of_the_entropy() -> None:
    features = with_singular_values([3.0, 1.0])
    assert effective_rank(features) == pytest.approx(np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)))
    assert effective_rank(7.0 * features) == pytest.approx(effective_rank(features))


@pytest.mark.parametrize(
    ("values", "expected", "of_85_percent"),
    [([98.9, 0.6, 0.5], 2, 1), ([99.0, 0.5, 0.5], 1, 1), ([60.0, 30.0, 10.0], 3, 2)],
)
def test_srank_is_what_holds_99_percent(values: list[float], expected: int, of_85_percent: int) -> None:
    assert srank(with_singular_values(values)) == expected
    assert srank(with_singular_values(values), delta=0.15) == of_85_percent


def test_what_is_linear_in_the_features_is_decoded() -> None:
    rng = np.random.default_rng(0)
    targets, groups = rng.normal(size=(80, 2)), np.arange(80)
    features = targets @ rng.normal(size=(2, 30)) + 5.0
    assert decoded(features, targets, groups) > 0.9999
    assert decoded(features, targets[:, 0] > 0, groups) > 0.95


def test_places_are_left_out_whole() -> None:
    """A code for each group knows everything about groups that were seen, and nothing about others."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 3)
    targets = rng.normal(size=(40, 1))[groups]
    features = np.eye(40)[groups]
    assert decoded(features, targets, groups) < 0.1
    assert decoded(features, targets, np.arange(120)) > 0.9
