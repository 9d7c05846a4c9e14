from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from dgvf_agents.core.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    distribution_for,
)

pytestmark = pytest.mark.usefixtures("double_precision")


def logits(*shape: int, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


KINDS = [Categorical(4), MultiCategorical((3, 1, 4)), Bernoulli(3), DiagonalGaussian(3), SquashedGaussian(3)]
every_kind = pytest.mark.parametrize("ours", KINDS, ids=lambda ours: type(ours).__name__)


def drawn(ours: ActionDistribution, *batch: int) -> tuple[Tensor, Tensor]:
    outputs = 0.1 * logits(*batch, ours.outputs)  # squashed actions stay where 1 - a² is far from 1e-6
    noise = torch.from_numpy(ours.draw_noise(np.random.default_rng(0), *batch)).to(outputs.dtype)
    return outputs, ours.sample(outputs, noise)


def reference(ours: ActionDistribution, outputs: Tensor) -> torch.distributions.Distribution:
    """PyTorch's."""
    if isinstance(ours, Categorical):
        return torch.distributions.Categorical(logits=outputs)
    if isinstance(ours, Bernoulli):
        return torch.distributions.Independent(torch.distributions.Bernoulli(logits=outputs), 1)
    mean, log_std = outputs.chunk(2, -1)
    normal = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    if isinstance(ours, DiagonalGaussian):
        return normal
    return torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])


@every_kind
def test_log_probabilities_and_entropy_are_those_of_torch(ours: ActionDistribution) -> None:
    outputs, actions = drawn(ours, 4, 5)
    assert actions.shape == (4, 5, *ours.action_shape)
    if isinstance(ours, MultiCategorical):
        parts = [torch.distributions.Categorical(logits=piece) for piece in outputs.split(ours.parts, -1)]
        log_prob = sum(part.log_prob(chosen) for part, chosen in zip(parts, actions.unbind(-1), strict=True))
        entropy = sum(part.entropy() for part in parts)
    else:
        expected = reference(ours, outputs)
        log_prob = expected.log_prob(actions.double())
        entropy = -log_prob if isinstance(ours, SquashedGaussian) else expected.entropy()
    rtol = 1e-4 if isinstance(ours, SquashedGaussian) else 1e-10  # 1e-6 is added to its Jacobian
    torch.testing.assert_close(ours.log_prob(outputs, actions), log_prob, rtol=rtol, atol=1e-4 * (rtol > 1e-6))
    torch.testing.assert_close(ours.entropy(outputs, actions), entropy, rtol=rtol, atol=1e-4 * (rtol > 1e-6))


@every_kind
def test_gradients(ours: ActionDistribution) -> None:
    outputs, actions = drawn(ours, 3)
    outputs.requires_grad_()
    for function in (lambda z: ours.log_prob(z, actions), lambda z: ours.entropy(z, actions)):
        assert torch.autograd.gradcheck(function, outputs)
        assert torch.autograd.gradgradcheck(function, outputs)


@every_kind
def test_samples_follow_the_distribution_and_the_mode_is_the_likeliest(ours: ActionDistribution) -> None:
    """The mean log-probability of many samples is minus the entropy; none is likelier than the mode."""
    outputs = (0.5 * logits(ours.outputs)).expand(200_000, -1)
    noise = torch.from_numpy(ours.draw_noise(np.random.default_rng(1), len(outputs))).to(outputs.dtype)
    actions = ours.sample(outputs, noise)
    log_probs = ours.log_prob(outputs, actions)
    if not isinstance(ours, SquashedGaussian):
        torch.testing.assert_close(-log_probs.mean(), ours.entropy(outputs[:1])[0], rtol=0, atol=0.02)
        assert (ours.log_prob(outputs[:1], ours.mode(outputs[:1])) >= log_probs.max() - 1e-12).all()
    else:
        mean, log_std = outputs[0].chunk(2, -1)
        means = torch.tanh(torch.distributions.Normal(mean, log_std.exp()).sample((200_000,)).double()).mean(0)
        torch.testing.assert_close(actions.mean(0), means, rtol=0, atol=0.02)
        with pytest.raises(ValueError, match="actions must be given"):
            ours.entropy(outputs)


def test_finite_with_all_but_certain_actions() -> None:
    outputs, ours = torch.tensor([[0.0, -1e9, 1e9]]).requires_grad_(), Categorical(3)
    values = [ours.log_prob(outputs, torch.tensor([1])), ours.entropy(outputs)]
    for value in values:
        assert value.isfinite().all()
        assert torch.autograd.grad(value.sum(), outputs, retain_graph=True)[0].isfinite().all()
    assert ours.entropy(outputs) == 0


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


BOX = gym.spaces.Box(-1, 1, (3, 2), np.float32)


@pytest.mark.parametrize(
    ("space", "squashed", "expected"),
    [
        (gym.spaces.Discrete(4), False, Categorical(4)),
        (gym.spaces.MultiDiscrete([2, 3]), False, MultiCategorical((2, 3))),
        (gym.spaces.MultiBinary(2), False, Bernoulli(2)),
        (BOX, False, DiagonalGaussian(6)),
        (BOX, True, SquashedGaussian(6)),
    ],
    ids=str,
)
def test_distribution_for_a_space(space: gym.Space, squashed: bool, expected: ActionDistribution) -> None:
    assert distribution_for(space, squashed) == expected


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=1),
        gym.spaces.MultiDiscrete([2, 3], start=[0, 1]),
        gym.spaces.MultiDiscrete([[2, 3]]),
        gym.spaces.MultiBinary((2, 2)),
        gym.spaces.Text(3),
    ],
    ids=str,
)
def test_unsupported_spaces_are_refused(space: gym.Space) -> None:
    with pytest.raises(ValueError, match=f"action_space must .*{type(space).__name__}"):
        distribution_for(space)


def test_squashed_actions_at_the_bounds_are_finite() -> None:
    outputs = torch.zeros(2).float().requires_grad_()
    log_prob = SquashedGaussian(1).log_prob(outputs, torch.ones(1).float())
    assert log_prob.isfinite()
    assert torch.autograd.grad(log_prob, outputs)[0].isfinite().all()
