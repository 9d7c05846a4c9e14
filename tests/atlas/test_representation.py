"""Ranks and linear readings, against cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from dgvf_agents.atlas.representation import decoded_accuracy, decoded_r2, describe, effective_rank, srank
from tests.atlas.runs import states_of


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


def test_zeros_have_no_rank() -> None:
    assert effective_rank(np.zeros((5, 3))) == srank(np.zeros((5, 3))) == 0


def test_what_is_linear_in_the_features_is_read_off() -> None:
    rng = np.random.default_rng(0)
    targets, places = rng.normal(size=(80, 2)), np.arange(80)
    features = targets @ rng.normal(size=(2, 30)) + 5.0
    assert decoded_r2(features, targets, places) > 0.9999
    assert decoded_accuracy(features, targets[:, 0] > 0, places) > 0.95


def test_what_is_not_in_the_features_is_not() -> None:
    rng = np.random.default_rng(0)
    places = np.arange(400)
    features, targets = rng.normal(size=(400, 20)), rng.normal(size=(400, 2))
    assert decoded_r2(features, targets, places) < 0.05
    assert 0.4 < decoded_accuracy(features, targets[:, 0] > 0, places) < 0.6
    assert decoded_r2(np.ones((400, 3)), targets, places) < 0.05
    assert decoded_accuracy(np.ones((400, 3)), np.arange(400) % 4 == 0, places) == 0.5


def test_half_of_a_target_counts_half() -> None:
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(300, 2))
    assert decoded_r2(targets[:, :1], targets, np.arange(300)) == pytest.approx(0.5, abs=0.05)


def test_places_are_left_out_whole() -> None:
    """A code for each place knows everything about places that were seen, and nothing about others."""
    rng = np.random.default_rng(0)
    places = np.repeat(np.arange(40), 3)
    targets = rng.normal(size=(40, 1))[places]
    features = np.eye(40)[places]
    assert decoded_r2(features, targets, places) < 0.1
    assert decoded_r2(features, targets, np.arange(120)) > 0.9


def test_a_state_s_own_description_is_read_off() -> None:
    states = states_of("CollectObjectsSmall-v0")
    assert states.holds_first is not None
    known = np.concatenate([states.position, states.distance[:, None], states.holds_first[:, None]], axis=1)
    good = describe(known, states)
    assert min(good.position, good.distance) > 0.999
    assert good.holds_first == 1.0
    poor = describe(np.random.default_rng(0).normal(size=(len(known), 4)), states)
    assert max(poor.position, poor.distance) < 0.2
    assert poor.holds_first is not None
    assert poor.holds_first < 0.75
    assert describe(np.ones((1681, 2)), states_of("PuddleWorld-v0")).holds_first is None
