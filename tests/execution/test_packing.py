"""Packed functions are the core's functions on vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.core.inner_update import InnerState, inner_update, meta_loss_gradient
from dgvf_agents.core.unroll import Unroll, meta_gradient
from dgvf_agents.execution.packing import KEY, Packing


def test_packing_and_unpacking_is_the_identity() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    packing = Packing(tree)
    back = packing.unpack(packing.pack(tree))
    assert torch.equal(back["a"]["x"], tree["a"]["x"])
    assert torch.equal(back["a"]["y"], tree["a"]["y"])
    assert torch.equal(back["b"]["z"], tree["b"]["z"])
    assert Packing({}).unpack(Packing({}).pack({})) == {}


def test_the_order_of_names_does_not_matter() -> None:
    tree = {"a": {"x": torch.randn(2), "y": torch.randn(3)}, "b": {"z": torch.randn(4)}}
    permuted = {"b": tree["b"], "a": dict(reversed(tree["a"].items()))}
    packing = Packing(tree)
    assert torch.equal(packing.pack(permuted)[KEY], packing.pack(tree)[KEY])
    with pytest.raises(KeyError, match="z"):
        packing.pack({"a": tree["a"], "b": {}})


@pytest.mark.parametrize("kwargs", [{}, {"use_rms_prop": False}], ids=["rmsprop", "adam"])
def test_packed_updates_are_the_named_ones_with_continuous_actions(kwargs: dict[str, bool]) -> None:
    """θ then begins with `log_std`, and gradients with the encoder's."""
    model = DGVFA2C("MlpPolicy", "Pendulum-v1", questions=4, n_envs=2, seed=0, compile=False, device="cpu", **kwargs)
    learner, rollout, rate = model.learn(20).learner, model._rollout, torch.tensor(1e-3)
    assert rollout is not None
    named = InnerState(learner.theta, learner.statistics)
    packed = learner.functions.packed
    for _ in range(2):
        named, _ = inner_update(learner.functions.rule, named, learner.eta, rollout, rate)
    state = learner.packed_state
    for _ in range(2):
        state, _ = learner.functions.update(state, learner.packed_eta, rollout, rate)
    torch.testing.assert_close(packed.theta.unpack(state.theta), dict(named.theta))
    statistics = packed.optimizer.unpack(state.optimizer[KEY])
    for name, values in statistics.items():
        torch.testing.assert_close({k: named.optimizer[name][k] for k in values}, values)


def test_views_are_what_unpacking_gives_and_lie_in_the_vector() -> None:
    packing = Packing({"a": torch.zeros(2, 3), "b": torch.tensor(0.0), "c": torch.zeros(4)})
    row = torch.arange(22.0).reshape(2, 11)[1]  # a view into a larger tensor, as in the state buffer
    views = packing.views({KEY: row})
    for view, tensor in zip(views, packing.unpack({KEY: row}).values(), strict=True):
        assert torch.equal(view, tensor)
    views[2].zero_()
    assert row.tolist() == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 0.0, 0.0, 0.0, 0.0]
    assert Packing({}).views({}) == []


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_the_packed_meta_gradient_is_the_named_one(storage: str) -> None:
    model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", questions=4, n_envs=2, seed=0, compile=False, device="cpu")
    model.learn(30)
    rollout, packed, learner = model._rollout, model.learner.functions.packed, model.learner.functions.rule
    assert rollout is not None
    eta = model.learner.eta
    theta = packed.theta.unpack(model.learner.packed_state.theta)
    state = InnerState(theta, packed.optimizer.unpack(model.learner.packed_state.optimizer[KEY]))
    rollouts, rate = [rollout] * 4, torch.tensor(1e-2)

    def update(*arguments):
        return inner_update(learner, *arguments)

    def meta_loss(*arguments):
        return meta_loss_gradient(learner, *arguments)

    named = meta_gradient(update, meta_loss, state, eta, rollouts, rate, storage=storage)  # type: ignore[arg-type]
    vector = meta_gradient(
        model.learner.functions.update,
        model.learner.functions.meta_loss,
        packed.packed(state),
        packed.eta.pack(eta),
        rollouts,
        rate,
        storage=storage,  # type: ignore[arg-type]
    )
    expected = packed.eta.pack(named)[KEY].numpy()
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(vector[KEY].numpy(), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_scoring_and_updating_at_once_is_the_same(storage: str) -> None:
    model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", questions=4, n_envs=2, seed=0, compile=False, device="cpu")
    model.learn(30)
    rollout, functions, rate = model._rollout, model.learner.functions, torch.tensor(1e-2)
    assert rollout is not None
    state = model.learner.packed_state
    gradients, thetas = [], []
    for at_once in (False, True):
        unroll = Unroll(
            functions.update,
            functions.meta_loss,
            state,
            model.learner.packed_eta,
            update_with_meta_loss=functions.update_with_meta_loss,
            storage=storage,  # type: ignore[arg-type]
        )
        for k in range(4):
            if at_once:
                unroll.update_with_meta_loss(rollout, rate)
            else:
                if k:
                    unroll.add_meta_loss(rollout)
                unroll.update(rollout, rate)
        unroll.add_meta_loss(rollout)
        thetas.append(unroll.state.theta[KEY])
        gradients.append(unroll.gradient()[KEY])
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(thetas[0], thetas[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6 * float(gradients[0].abs().max()))
