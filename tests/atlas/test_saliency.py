"""Where questions look: gradients in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgvf_agents.atlas.saliency import saliency
from dgvf_agents.core.networks import AtariCNNEncoder, QuestionNetwork


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
        place = tuple(int(generator.integers(size)) for size in observations.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = observations.clone()
            moved[place] += step
            ends.append(ask(moved)[place[0], 1])
        assert abs(ends[0] - ends[1]) / 2e-6 == pytest.approx(found[place].item(), rel=1e-5, abs=1e-9)
    assert found.count_nonzero() > 0.5 * found.numel()
