"""The meta-update: Adam's first step by hand, clipping, and what is skipped."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.flat import map_tensors
from dgvf_agents.engine import MetaOptimizer

pytestmark = pytest.mark.usefixtures("double_precision")

RATE, EPSILON = 0.1, 0.01


def eta() -> dict[str, Any]:
    return {"a": torch.tensor([1.0, 2.0]), "b": [torch.tensor(3.0)]}


def gradient(scale: float = 1.0) -> dict[str, Any]:
    """Of norm 13 times the scale."""
    return {"a": scale * torch.tensor([3.0, -4.0]), "b": [scale * torch.tensor(12.0)]}


def after_first_step(clipped: Tensor) -> Tensor:
    """Adam's first step is α g / (|g| + ε)."""
    return torch.tensor([1.0, 2.0, 3.0]) - RATE * clipped / (clipped.abs() + EPSILON)


def flat(tree: dict[str, Any]) -> Tensor:
    return torch.cat([tree["a"], tree["b"][0][None]])


@pytest.mark.parametrize(
    ("limits", "factor"),
    [({}, 1.0), ({"max_norm": 13.1}, 1.0), ({"max_norm": 0.13}, 0.01), ({"max_norm": 0.13, "skip_norm": 13.1}, 0.01)],
)
def test_the_first_step_is_that_of_adam_along_the_clipped_gradient(limits: dict[str, float], factor: float) -> None:
    optimizer = MetaOptimizer(eta(), epsilon=EPSILON)
    before = optimizer.eta
    assert optimizer.step(gradient(), RATE, **limits)
    torch.testing.assert_close(flat(optimizer.eta), after_first_step(factor * flat(gradient())))
    assert float(optimizer.norm) == pytest.approx(13.0)
    assert isinstance(optimizer.eta["b"], list)
    torch.testing.assert_close(before, eta(), rtol=0, atol=0)
    assert not any(value.requires_grad for value in flat(optimizer.eta))


def test_many_steps_are_those_of_adam() -> None:
    """Kingma and Ba, algorithm 1, with other gradients and another learning rate in every step."""
    optimizer, expected = MetaOptimizer(eta(), epsilon=EPSILON), flat(eta())
    first = second = torch.zeros(3)
    for t in range(1, 9):
        rate, g = RATE / t, flat(gradient(math.cos(t)))
        assert optimizer.step(gradient(math.cos(t)), rate)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        corrected = first / (1 - 0.9**t), second / (1 - 0.999**t)
        expected = expected - rate * corrected[0] / (corrected[1].sqrt() + EPSILON)
        torch.testing.assert_close(flat(optimizer.eta), expected)


def test_a_clipping_function_takes_the_place_of_the_maximum_norm() -> None:
    optimizer = MetaOptimizer(eta(), epsilon=EPSILON)
    optimizer.step(gradient(), RATE, max_norm=1e-9, clip=lambda tree: {"a": 2.0 * tree["a"], "b": tree["b"]})
    expected = flat(gradient()) * torch.tensor([2.0, 2.0, 1.0])
    torch.testing.assert_close(flat(optimizer.eta), after_first_step(expected))


@pytest.mark.parametrize(("scale", "limit"), [(1.0, 12.9), (math.nan, math.inf), (math.inf, math.inf), (1e200, 1e3)])
def test_exploded_meta_gradients_are_skipped(scale: float, limit: float) -> None:
    optimizer, other = MetaOptimizer(eta()), MetaOptimizer(eta())
    assert not optimizer.step(gradient(scale), RATE, skip_norm=limit)
    torch.testing.assert_close(optimizer.eta, eta(), rtol=0, atol=0)
    for one in (optimizer, other):  # Adam's moments did not change
        assert one.step(gradient(), RATE)
    torch.testing.assert_close(optimizer.eta, other.eta, rtol=0, atol=0)


def test_training_continues_from_a_state() -> None:
    one, other = MetaOptimizer(eta()), MetaOptimizer(eta())
    one.step(gradient(), RATE)
    other.set_eta(one.eta)
    other.load_state_dict(one.state_dict())
    for optimizer in (one, other):
        optimizer.step(gradient(0.1), RATE)
    torch.testing.assert_close(other.eta, one.eta, rtol=0, atol=0)
    fresh = MetaOptimizer(one.eta)
    fresh.step(gradient(0.1), RATE)
    assert not torch.equal(fresh.eta["a"], one.eta["a"])


def test_without_meta_parameters() -> None:
    optimizer = MetaOptimizer[dict[str, Tensor]]({})
    assert (optimizer.step({}, RATE), optimizer.eta, optimizer.state_dict()) == (False, {}, {})
    with pytest.raises(ValueError, match="must be empty"):
        optimizer.load_state_dict({"state": {}})


def test_invalid_arguments() -> None:
    with pytest.raises(TypeError, match="got a float"):
        MetaOptimizer({"rate": 0.1})
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        MetaOptimizer({"count": torch.tensor(1)})
    optimizer = MetaOptimizer(eta())
    for name in ("max_norm", "skip_norm"):
        with pytest.raises(ValueError, match=f"{name} must be > 0, got 0.0"):
            optimizer.step(gradient(), RATE, **{name: 0.0})
    for rate in (math.nan, -0.1):
        with pytest.raises(ValueError, match="learning_rate must be"):
            optimizer.step(gradient(), rate)
    before = optimizer.eta
    assert not optimizer.step(gradient(), RATE, clip=lambda given: map_tensors(lambda part: part * math.nan, given))
    torch.testing.assert_close(optimizer.eta, before, rtol=0, atol=0)
    for other in ({"z": before["a"], "b": before["b"]}, {**before, "a": before["a"][:1]}):
        with pytest.raises(ValueError, match="eta must be like the one before"):
            optimizer.set_eta(other)
    with pytest.raises(ValueError, match="gradient must be like eta"):
        optimizer.step({"b": gradient()["b"], "a": gradient()["a"]}, RATE)
