"""Lines, heat and gradients along an episode, against cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgvf_agents.atlas.charts import HEIGHT, chart
from dgvf_agents.atlas.frames import HEAT_COLORS, heated, overview
from dgvf_agents.atlas.maps import png_of
from dgvf_agents.atlas.saliency import cells, heat_levels, key_moments, peak_of, saliency
from dgvf_agents.core.networks import AtariCNNEncoder, QuestionNetwork
from dgvf_envs.rendering import DIVERGING
from tests.atlas.pages import decoded


def test_saliency_is_what_finite_differences_say(double_precision: None) -> None:
    torch.manual_seed(0)
    network = QuestionNetwork(AtariCNNEncoder(2, 36, 8), 8, 3, learned_discounts=True)
    eta = network.params()

    def ask(seen: torch.Tensor) -> torch.Tensor:
        return network.ask(eta, seen[None])[0][0]

    observations = torch.rand(2, 2, 36, 36)
    found = saliency(ask, observations, 1)
    assert found.shape == observations.shape
    generator = np.random.default_rng(0)
    for _ in range(12):
        index = tuple(int(generator.integers(size)) for size in observations.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = observations.clone()
            moved[index] += step
            ends.append(ask(moved)[index[0], 1])
        assert abs(ends[0] - ends[1]) / 2e-6 == pytest.approx(found[index].item(), rel=1e-5, abs=1e-9)
    assert found.count_nonzero() > 0.5 * found.numel()


class TestMoments:
    def test_lie_at_even_distances_and_at_others(self) -> None:
        assert key_moments(100, 4, (7, 34)) == [1, 7, 34, 67, 100]
        assert key_moments(3, 240, (2,)) == [1, 2, 3]
        assert key_moments(5, 1, (2,)) == [2, 5]


class TestPictures:
    def test_heat_is_in_proportion(self) -> None:
        levels = heat_levels(np.array([[0.0, 0.5, 1.0, 7.0]]), 1.0)
        assert levels.tolist() == [[0, 8, 15, 15]]
        np.testing.assert_array_equal(decoded(png_of(levels, HEAT_COLORS)), HEAT_COLORS[levels])
        assert HEAT_COLORS[0].tolist() == [0, 0, 0]
        assert (np.diff(HEAT_COLORS.astype(int).sum(axis=1)) > 0).all()

    def test_heat_lies_over_its_part_of_the_frame(self) -> None:
        frame = np.full((4, 6, 3), 100, np.uint8)
        drawn = heated(frame, np.array([[0, 0], [0, 15]], np.uint8), scale=2)
        assert drawn.shape == (8, 12, 3)
        grey = drawn[0, 0]
        assert (grey == grey[0]).all()
        assert grey[0] < 100
        assert (drawn[4:, 6:] > 200).all()
        assert (drawn[:4] == grey).all()
        assert (drawn[:, :6] == grey).all()

    def test_cells_are_means_where_pictures_are_large(self) -> None:
        large = np.random.default_rng(0).random((2, 84, 64))
        assert cells(large).shape == (2, 42, 32)
        assert cells(large)[1, 3, 5] == pytest.approx(large[1, 6:8, 10:12].mean())
        for kept in (large[:, :40], large[:, :83]):
            assert cells(kept) is kept

    def test_a_single_pixel_is_no_peak(self) -> None:
        saliency = np.ones((10, 20, 20))
        saliency[0, 0, 0] = 1000.0
        assert peak_of(saliency) == pytest.approx(1.0)

    def test_overview_goes_from_blue_to_red(self) -> None:
        drawn = overview(np.array([[50.0, 1.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), first=1)
        assert drawn.shape == (2, 4, 3)
        assert drawn[0].tolist() == [list(DIVERGING[i]) for i in (4, 2, 3, 4)]  # white is zero
        assert (drawn[1] == DIVERGING[4]).all()
        assert (overview(np.zeros((3, 1))) == DIVERGING[2]).all()
        assert (overview(-np.ones((3, 1))) == DIVERGING[0]).all()


class TestCharts:
    def test_lines_share_a_scale_and_have_gaps(self) -> None:
        drawn = chart(np.array([9.0, 0.0, np.nan, 1.0]), np.array([np.nan, 2.0, 2.0, 0.5]), first=1)
        assert (drawn.low, drawn.high) == (0.0, 2.0)
        assert drawn.paths == (f"M0 -350L1 {HEIGHT}M3 50", "M1 0L2 0L3 75")
