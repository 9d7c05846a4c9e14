"""Averages over learners, with learners that are all equal."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.core.losses import GRADIENT_FLOOR, auxiliary_weight, auxiliary_weights

pytestmark = pytest.mark.usefixtures("double_precision")


class Equal(Averaging):
    """The mean of four equal vectors."""

    learners = 4

    def __init__(self) -> None:
        self.calls = 0

    def mean(self, vector: Tensor) -> Tensor:
        self.calls += 1
        return 1.0 * vector


def test_several_tensors_travel_as_one_vector() -> None:
    averaging, tensors = Equal(), [torch.randn(2, 3), torch.randn(()), torch.randn(4)[::2]]
    for mean, tensor in zip(averaging.means(tensors), tensors, strict=True):
        assert torch.equal(mean, tensor)
    assert averaging.calls == 1


@pytest.mark.parametrize("size", [1.0, GRADIENT_FLOOR])
def test_weights_are_those_of_one_batch(size: float) -> None:
    """Four batches with these gradients of their own losses, and the gradient of the mean over all four."""
    pairs = [(torch.randn(3, 2, 5), size * torch.randn(3, 2, 5)) for _ in range(2)]
    averaging = Equal()
    weights = auxiliary_weights(0.3, pairs, averaging)
    for weight, pair in zip(weights, pairs, strict=True):
        together = (torch.cat([gradient] * 4, 1) / 4 for gradient in pair)
        torch.testing.assert_close(weight, auxiliary_weight(0.3, *together), rtol=1e-12, atol=0.0)
    assert averaging.calls == 1
