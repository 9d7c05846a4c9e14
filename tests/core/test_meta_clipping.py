"""Separate norms for the meta-gradients of cumulants and discounts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.core.meta_clipping import clip_meta_gradient, clip_separately
from dgvf_agents.core.networks import MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import global_norm
from dgvf_agents.core.types import Params
from dgvf_agents.execution.packing import Packing

pytestmark = pytest.mark.usefixtures("double_precision")


def gradients(scale: float, of_discounts: float, learned: bool = True) -> Params:
    """Random gradients of a question network's parameters."""
    torch.manual_seed(0)
    network = QuestionNetwork(MLPEncoder(3, (5,)), 5, 4, learned)
    return {
        name: torch.randn_like(value) * (of_discounts if name.startswith("discounts.") else scale)
        for name, value in network.params().items()
    }


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("of_discounts", [1e-6, 3.0, 1e6])
def test_each_group_is_clipped_as_pytorch_clips_it(scale: float, of_discounts: float) -> None:
    given = gradients(scale, of_discounts)
    expected = {name: torch.nn.Parameter(torch.zeros_like(value)) for name, value in given.items()}
    for name, parameter in expected.items():
        parameter.grad = given[name].clone()
    heads = [parameter for name, parameter in expected.items() if name in ("discounts.weight", "discounts.bias")]
    others = [parameter for name, parameter in expected.items() if not name.startswith("discounts")]
    assert len(heads) == 2
    assert {name.split(".")[0] for name in expected} == {"encoder", "cumulants", "discounts"}
    # PyTorch adds 1e-6 to the norm that it divides by; its own norm is exact
    for group, most in ((others, 1.0), (heads, 10.0)):
        norm = torch.nn.utils.get_total_norm([p.grad for p in group])
        for parameter in group:
            parameter.grad *= min(1.0, most / float(norm))
    clipped = clip_separately(given, 1.0, 10.0)
    assert list(clipped) == list(given)
    torch.testing.assert_close(clipped, {name: p.grad for name, p in expected.items()}, rtol=1e-12, atol=0)


def test_packed_gradients_are_clipped_as_named_ones() -> None:
    given = gradients(5.0, 50.0)
    packing = Packing(given)
    separately = clip_meta_gradient(packing.pack(given), packing, 1.0, 10.0)
    torch.testing.assert_close(packing.unpack(separately), clip_separately(given, 1.0, 10.0), rtol=0, atol=0)
    together = packing.unpack(clip_meta_gradient(packing.pack(given), packing, 1.0, None))
    assert float(global_norm(together)) == pytest.approx(1.0)
    ratio = {name: (together[name] / given[name]).mean().item() for name in given}
    assert max(ratio.values()) == pytest.approx(min(ratio.values()))


def test_without_learned_discounts_there_is_one_group() -> None:
    clipped = clip_separately(gradients(5.0, 0.0, learned=False), 2.0, 10.0)
    assert float(global_norm(clipped)) == pytest.approx(2.0)


def clipped_by_training(**norms: float | None) -> tuple[float, float]:
    """The norms of cumulants' and discounts' gradients in a model's first meta-update, from Adam's first moment."""
    torch.set_default_dtype(torch.float32)
    try:
        model = DGVFA2C(
            "MlpPolicy",
            "PuddleWorld-v0",
            n_envs=2,
            questions=3,
            question_discount=None,
            auxiliary_coefficient=100.0,  # large meta-gradients
            unroll_length=2,
            seed=0,
            compile=False,
            device="cpu",
            policy_kwargs={"features_extractor_kwargs": {"hidden": (8,)}},
            **norms,  # type: ignore[arg-type]
        )
        while not model.meta_updates:
            model.learn(10, reset_num_timesteps=False)
    finally:
        torch.set_default_dtype(torch.float64)
    moments: dict[str, Any] = model.learner.meta_optimizer_state["state"][0]
    packing = model.learner.functions.packed.eta
    packed = next(iter(packing.pack(model.learner.eta)))
    gradient = model.learner.functions.packed.eta.unpack(
        {packed: moments["exp_avg"] / (1 - 0.9)}
    )  # its first step: m = (1 - β) g
    squares = {name: float((value**2).sum()) for name, value in gradient.items()}
    of_discounts = sum(value for name, value in squares.items() if name.startswith("discounts"))
    return np.sqrt(sum(squares.values()) - of_discounts), np.sqrt(of_discounts)


def test_training_clips_each_group_by_itself() -> None:
    free = clipped_by_training(meta_max_grad_norm=1e9)
    assert all(norm > 1e-6 for norm in free)
    small, large = free[0] / 10, free[1] / 2
    assert clipped_by_training(meta_max_grad_norm=small, meta_max_discount_grad_norm=large) == pytest.approx(
        (small, large), rel=1e-4
    )
    assert clipped_by_training(meta_max_grad_norm=small, meta_max_discount_grad_norm=1e9) == pytest.approx(
        (small, free[1]), rel=1e-4
    )
    together = clipped_by_training(meta_max_grad_norm=small)
    assert np.hypot(*together) == pytest.approx(small, rel=1e-4)
    assert together[0] / together[1] == pytest.approx(free[0] / free[1], rel=1e-4)


def test_a_norm_must_be_positive() -> None:
    with pytest.raises(ValueError, match="meta_max_discount_grad_norm must be > 0, got 0"):
        DGVFA2C("MlpPolicy", "PuddleWorld-v0", n_envs=2, meta_max_discount_grad_norm=0.0)
