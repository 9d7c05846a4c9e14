"""Packed functions are the core's functions on vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.core.inner_update import InnerState, inner_update, meta_loss_gradient
from dgvf_agents.core.unroll import Unroll, meta_gradient
from dgvf_agents.execution.packing import KEY, Packing
from dgvf_agents.options import Storage


def test_unpacking_gives_what_was_packed_in_any_order_of_names() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    permuted = {"b": tree["b"], "a": dict(reversed(tree["a"].items()))}
    packing = Packing(tree)
    torch.testing.assert_close(packing.unpack(packing.pack(permuted)), tree, rtol=0, atol=0)
    assert Packing({}).unpack(Packing({}).pack({})) == {}
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
def test_the_packed_meta_gradient_is_the_named_one(storage: Storage) -> None:
    model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", questions=4, n_envs=2, seed=0, compile=False, device="cpu")
    learner, rollout, rate = model.learn(30).learner, model._rollout, torch.tensor(1e-2)
    assert rollout is not None
    functions = learner.functions
    named = meta_gradient(
        *(partial(function, functions.rule) for function in (inner_update, meta_loss_gradient)),
        InnerState(learner.theta, learner.statistics),
        learner.eta,
        [rollout] * 4,
        rate,
        storage=storage,
    )
    update, meta_loss, both = functions.at(0)
    options: Any = {"update_with_meta_loss": both, "storage": storage}
    unroll = Unroll(update, meta_loss, learner.packed_state, learner.packed_eta, **options)
    for _ in range(3):
        unroll.update_with_meta_loss(rollout, rate)
    unroll.add_meta_loss(rollout)
    found, expected = unroll.gradient()[KEY], functions.packed.eta.pack(named)[KEY]
    largest = float(expected.abs().max())
    assert largest > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6 * largest)
