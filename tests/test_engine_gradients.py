"""The meta-gradients of the engine's examples against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from dgvf_agents.core.inner_loop import InnerLoop
from examples.engine import intrinsic_reward, meta_discount, rooms

pytestmark = pytest.mark.usefixtures("double_precision")


def by_differences(outer: Callable[[Any], Tensor], eta: Any, entries: int = 12) -> list[tuple[float, int, int]]:
    """Derivatives of a function of η, each with the index of its tensor and of an entry spread over that."""
    leaves, spec = tree_flatten(eta)
    found = []
    for i, leaf in enumerate(leaves):
        for entry in sorted({int(e) for e in np.linspace(0, leaf.numel() - 1, entries)}):
            sides = []
            for sign in (1.0, -1.0):
                moved = [value.clone() for value in leaves]
                moved[i].view(-1)[entry] += sign * 1e-5
                sides.append(float(outer(tree_unflatten(moved, spec))))
            found.append(((sides[0] - sides[1]) / 2e-5, i, entry))
    return found


def assert_is_the_derivative(gradient: Any, outer: Callable[[Any], Tensor], eta: Any) -> None:
    leaves, _ = tree_flatten(gradient)
    differences = by_differences(outer, eta)
    scale = max(abs(value) for value, _, _ in differences)
    assert scale > 0
    for expected, i, entry in differences:
        assert float(leaves[i].reshape(-1)[entry]) == pytest.approx(expected, rel=1e-4, abs=1e-6 * scale)


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
