"""Packed functions are the core's functions on vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.metagradient import InnerState, inner_update, meta_gradient, meta_loss_gradient
from dgvf_agents.packing import KEY, Packing


def test_packing_and_unpacking_is_the_identity() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    packing = Packing(tree)
    back = packing.unpack(packing.pack(tree))
    assert torch.equal(back["a"]["x"], tree["a"]["x"])
    assert torch.equal(back["a"]["y"], tree["a"]["y"])
    assert torch.equal(back["b"]["z"], tree["b"]["z"])
    assert Packing({}).unpack(Packing({}).pack({})) == {}


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_the_packed_meta_gradient_is_the_named_one(storage: str) -> None:
    model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", questions=4, n_envs=2, seed=0, compile=False, device="cpu")
    model.learn(30)
    rollout, packed, learner = model._rollout, model._packed, model._learner
    assert rollout is not None
    eta = model.learner_state.named_eta()
    theta = packed.theta.unpack(model._theta)
    state = InnerState(theta, packed.optimizer.unpack(model.learner_state.optimizer[KEY]))
    rollouts, rate = [rollout] * 4, torch.tensor(1e-2)

    def update(*arguments):
        return inner_update(learner, *arguments)

    def score(*arguments):
        return meta_loss_gradient(learner, *arguments)

    named = meta_gradient(update, score, state, eta, rollouts, rate, storage=storage)  # type: ignore[arg-type]
    vector = meta_gradient(
        packed.update,
        packed.score,
        packed.packed(state),
        packed.eta.pack(eta),
        rollouts,
        rate,
        storage=storage,  # type: ignore[arg-type]
    )
    expected = packed.eta.pack(named)[KEY].numpy()
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(vector[KEY].numpy(), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
