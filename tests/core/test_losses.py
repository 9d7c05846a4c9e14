from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.core.distributions import Categorical, SquashedGaussian
from dgvf_agents.core.losses import (
    GRADIENT_FLOOR,
    ActorCriticLoss,
    actor_critic_loss,
    auxiliary_weight,
    auxiliary_weights,
    normalize,
    regression_loss,
)

pytestmark = pytest.mark.usefixtures("double_precision")

STEPS, NUM_ENVS, ACTIONS, FEATURES = 4, 3, 3, 5


class LinearAgent:
    """Policy and value linear in random features, as in the paper."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(STEPS, NUM_ENVS, FEATURES, generator=generator)
        self.policy = torch.randn(ACTIONS, FEATURES, generator=generator).requires_grad_()
        self.value = torch.randn(FEATURES, generator=generator).requires_grad_()
        self.actions = torch.randint(ACTIONS, (STEPS, NUM_ENVS), generator=generator)
        self.returns = torch.randn(STEPS, NUM_ENVS, generator=generator)
        self.advantages = self.returns - (self.x @ self.value).detach()

    def loss(self, vf_coef: float, ent_coef: float) -> ActorCriticLoss:
        outputs, values = self.x @ self.policy.T, self.x @ self.value
        return actor_critic_loss(
            Categorical(ACTIONS), outputs, values, self.actions, self.returns, self.advantages, vf_coef, ent_coef
        )

    def negative_gradients(self, vf_coef: float, ent_coef: float) -> tuple[Tensor, Tensor]:
        """In θ^π and θ^v."""
        of_policy, of_value = torch.autograd.grad(self.loss(vf_coef, ent_coef).total, (self.policy, self.value))
        return -of_policy, -of_value


def test_the_negative_gradient_is_the_value_update_of_the_paper() -> None:
    """(G^v_t - v(x_t)) ∂v(x_t)/∂θ^v, times 2 c_v and averaged: the loss is c_v times a squared error."""
    agent, value_weight = LinearAgent(), 0.6
    _, update = agent.negative_gradients(value_weight, 0.02)
    expected = torch.zeros(FEATURES)
    for t, b in product(range(STEPS), range(NUM_ENVS)):
        error = agent.returns[t, b] - (agent.value * agent.x[t, b]).sum()
        expected += 2 * value_weight * error * agent.x[t, b] / (STEPS * NUM_ENVS)
    torch.testing.assert_close(update, expected.detach())


def test_the_negative_gradient_is_the_policy_update_of_the_paper() -> None:
    """(G^v_t - v(x_t)) ∂log π(a_t|x_t)/∂θ^π, averaged, and c_H times the entropy's gradient.

    For a softmax ∂log π(a)/∂z_i = [a = i] - π_i and ∂H/∂z_i = -π_i (log π_i + H).
    """
    agent, entropy_weight = LinearAgent(), 0.02
    update, _ = agent.negative_gradients(0.6, entropy_weight)
    expected = torch.zeros(ACTIONS, FEATURES)
    for t, b in product(range(STEPS), range(NUM_ENVS)):
        scores = [math.exp(float(agent.policy[i].detach() @ agent.x[t, b])) for i in range(ACTIONS)]
        pi = [score / sum(scores) for score in scores]
        entropy = -sum(p * math.log(p) for p in pi)
        for i in range(ACTIONS):
            of_log_pi = float(agent.actions[t, b] == i) - pi[i]
            of_entropy = -pi[i] * (math.log(pi[i]) + entropy)
            factor = float(agent.advantages[t, b]) * of_log_pi + entropy_weight * of_entropy
            expected[i] += factor * agent.x[t, b] / (STEPS * NUM_ENVS)
    torch.testing.assert_close(update, expected)


def test_parts_of_the_loss() -> None:
    agent = LinearAgent()
    loss = agent.loss(0.6, 0.02)
    reference = torch.distributions.Categorical(logits=agent.x @ agent.policy.T)
    torch.testing.assert_close(loss.policy, -(agent.advantages * reference.log_prob(agent.actions)).mean())
    torch.testing.assert_close(loss.value, (agent.advantages**2).mean(), check_stride=False)
    torch.testing.assert_close(loss.entropy, reference.entropy().mean())
    torch.testing.assert_close(loss.total, loss.policy + 0.6 * loss.value - 0.02 * loss.entropy)


def test_an_entropy_without_closed_form_is_estimated_from_the_actions() -> None:
    """-log π(a|x) over actions drawn from the policy: a squashed Gaussian's."""
    generator, distribution = torch.Generator().manual_seed(0), SquashedGaussian(2)
    outputs = torch.randn(STEPS, NUM_ENVS, 4, generator=generator)
    actions = torch.rand(STEPS, NUM_ENVS, 2, generator=generator) * 1.8 - 0.9
    zeros = torch.zeros(STEPS, NUM_ENVS)
    loss = actor_critic_loss(distribution, outputs, zeros, actions, zeros, zeros, 0.0, 0.1)
    mean, log_std = outputs.chunk(2, -1)
    gaussian = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(gaussian, torch.distributions.TanhTransform())
    expected = -squashed.log_prob(actions).sum(-1).mean()
    torch.testing.assert_close(loss.entropy, expected, rtol=1e-5, atol=0)  # 1e-6 keeps the density finite at the ends
    torch.testing.assert_close(loss.total, -0.1 * loss.entropy)


@pytest.mark.parametrize("tail", [(), (5,), (2, 3)])
def test_regression_is_a_mean_over_time_and_batch_and_a_sum_over_the_rest(tail: tuple[int, ...]) -> None:
    predictions, targets = torch.randn(STEPS, NUM_ENVS, *tail), torch.randn(STEPS, NUM_ENVS, *tail)
    total = 0.0
    for t, b in product(range(STEPS), range(NUM_ENVS)):
        pairs = zip(predictions[t, b].flatten().tolist(), targets[t, b].flatten().tolist(), strict=True)
        total += sum(0.5 * (target - y) ** 2 for y, target in pairs)
    assert float(regression_loss(predictions, targets)) == pytest.approx(total / (STEPS * NUM_ENVS), rel=1e-12)


def test_targets_of_another_shape_are_refused() -> None:
    """They would be broadcast, and a loss of something else come out."""
    with pytest.raises(ValueError, match=r"targets must have the predictions' shape \(4, 3, 1\), got \(4, 3\)"):
        regression_loss(torch.zeros(4, 3, 1), torch.zeros(4, 3))


def test_normalized_advantages_have_mean_0_and_deviation_1_and_vanish_where_all_are_the_same() -> None:
    advantages = 3.0 + 2.0 * torch.randn(STEPS, NUM_ENVS, generator=torch.Generator().manual_seed(1))
    result = normalize(advantages)
    torch.testing.assert_close(result, (advantages - advantages.mean()) / (advantages.std() + 1e-8))
    same = torch.full((STEPS, NUM_ENVS), 3.0, requires_grad=True)
    assert not normalize(same).any()
    for value in (0.1, 0.7, 1.3, 1e-3, 12345.678):
        assert not normalize(torch.full((7, 11), value, dtype=torch.float32)).any()  # whose mean is rounded
    assert torch.autograd.grad(normalize(same).square().sum(), same)[0].isfinite().all()
    assert torch.autograd.gradcheck(normalize, advantages.requires_grad_())


# --- averages over learners, which are all equal ----------------------------------------------------------------------


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
