"""The meta-gradients of the engine's examples against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.types import Params
from examples.engine import intrinsic_reward, meta_discount, rooms
from tests.core_oracles import central_difference

pytestmark = pytest.mark.usefixtures("double_precision")


def assert_is_the_derivative(gradient: Params, outer: Callable[[Params], Tensor], eta: Params) -> None:
    """Of a function of η, in entries spread over each of its tensors."""
    found, expected = [], []
    for name, value in eta.items():
        for entry in {*np.linspace(0, value.numel() - 1, 12).astype(int).tolist()}:
            found.append(float(gradient[name].reshape(-1)[entry]))
            expected.append(central_difference(outer, eta, name, entry, 1e-5))
    scale = max(map(abs, expected))
    assert scale > 0
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6 * scale)


@pytest.mark.parametrize("module", [meta_discount, intrinsic_reward])
def test_meta_gradients_in_the_rooms(module: Any) -> None:
    settings = module.Settings(num_envs=64, num_steps=12)
    torch.manual_seed(0)
    theta = {name: 0.3 * torch.randn_like(value) for name, value in module.initial_theta().items()}
    eta = module.initial_eta(settings) if module is meta_discount else module.initial_eta()
    collector = rooms.Rooms(64, seed=0)
    batches = [collector.collect(theta["policy"], 12) for _ in range(4)]
    assert sum(float(batch.rewards.sum()) for batch in batches) > 5

    def outer(eta: Any) -> Tensor:
        """The sum of the losses as a function of η. Their advantages do not depend on η."""
        state, total = theta, torch.zeros(())
        for batch, scored in pairwise(batches):
            state = module.step(state, eta, batch, settings)
            total = total + module.outer_loss(state, eta, scored, settings)
        return total

    loop = InnerLoop(theta, eta)
    for batch, scored in pairwise(batches):
        loop.step(module.step, batch, settings)
        loop.add_loss(module.outer_loss, scored, settings)
    assert_is_the_derivative(loop.gradient(), outer, eta)
