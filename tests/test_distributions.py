from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from dgvf_agents.distributions import Categorical, distribution_for

pytestmark = pytest.mark.usefixtures("double_precision")


def logits(*shape: int, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(4,), (7, 4), (3, 2, 4)])
@pytest.mark.parametrize("scale", [0.0, 2.0, 500.0])
def test_log_probabilities_and_entropy_are_those_of_torch(shape: tuple[int, ...], scale: float) -> None:
    outputs, ours = logits(*shape, scale=scale), Categorical(4)
    reference = torch.distributions.Categorical(logits=outputs)
    for action in range(4):
        actions = torch.full(shape[:-1], action)
        torch.testing.assert_close(ours.log_prob(outputs, actions), reference.log_prob(actions))
    torch.testing.assert_close(ours.entropy(outputs), reference.entropy())
    assert ours.entropy(outputs).shape == shape[:-1]


def test_gradients() -> None:
    outputs, actions, ours = logits(6, 4).requires_grad_(), torch.arange(6) % 4, Categorical(4)
    for function in (lambda z: ours.log_prob(z, actions), ours.entropy):
        assert torch.autograd.gradcheck(function, outputs)
        assert torch.autograd.gradgradcheck(function, outputs)


def test_finite_with_all_but_certain_actions() -> None:
    outputs, ours = torch.tensor([[0.0, -1e9, 1e9]]).requires_grad_(), Categorical(3)
    values = [ours.log_prob(outputs, torch.tensor([1])), ours.entropy(outputs)]
    for value in values:
        assert value.isfinite().all()
        assert torch.autograd.grad(value.sum(), outputs, retain_graph=True)[0].isfinite().all()
    assert ours.entropy(outputs) == 0


def test_samples_invert_the_distribution_function() -> None:
    """Evenly spread uniforms give every action as often as its probability says, to within one."""
    outputs, count = logits(4), 10_000
    uniforms = (torch.arange(count) + 0.5) / count
    sampled = Categorical(4).sample(outputs.expand(count, 4), uniforms)
    frequencies = torch.bincount(sampled, minlength=4) / count
    torch.testing.assert_close(frequencies, torch.softmax(outputs, -1), rtol=0, atol=1.01 / count)
    assert (sampled.diff() >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_at_the_ends_of_the_unit_interval(dtype: torch.dtype) -> None:
    below_one = torch.nextafter(torch.tensor(1.0, dtype=dtype), torch.tensor(0.0, dtype=dtype))
    ours, outputs = Categorical(5), logits(1000, 5).to(dtype)
    assert (ours.sample(outputs, torch.zeros(1000, dtype=dtype)) == 0).all()
    assert (ours.sample(outputs, below_one.expand(1000)) == 4).all()


def test_samples_leave_out_actions_of_probability_zero() -> None:
    never = -1e9
    outputs = torch.tensor([[never, 0.0, never, 0.0, never]]).float().expand(1001, 5)
    sampled = Categorical(5).sample(outputs, torch.linspace(0, 1 - 2**-24, 1001, dtype=torch.float32))
    assert set(sampled.tolist()) == {1, 3}


def test_a_single_action() -> None:
    ours, outputs = Categorical(1), logits(6, 1)
    assert not ours.sample(outputs, torch.rand(6)).any()
    assert not ours.log_prob(outputs, torch.zeros(6, dtype=torch.long)).any()
    assert not ours.entropy(outputs).any()


def test_mode() -> None:
    outputs = logits(3, 2, 4)
    expected = [[max(range(4), key=row.__getitem__) for row in rows] for rows in outputs.tolist()]
    assert Categorical(4).mode(outputs).tolist() == expected


def test_distribution_for_a_space() -> None:
    distribution = distribution_for(gym.spaces.Discrete(4))
    assert distribution == Categorical(4)
    assert distribution.outputs == 4


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=1),
        gym.spaces.Box(-1, 1, (2,), np.float32),
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.MultiBinary(2),
    ],
    ids=str,
)
def test_unsupported_spaces_are_refused(space: gym.Space) -> None:
    with pytest.raises(ValueError, match="action_space must be a Discrete space that starts at 0, got") as error:
        distribution_for(space)
    assert str(space) in str(error.value)
