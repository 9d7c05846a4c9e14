from __future__ import annotations

from itertools import product

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from torch import Tensor

from dgvf_agents.core.returns import bootstrapped_returns, lambda_returns, per_step_discounts, window_index
from tests.core_oracles import slow_returns, slow_window
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 6)


def random_segment_end(steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
    segment_end = torch.rand(steps, num_envs, generator=generator) < 0.3
    segment_end[-1] = True
    return segment_end


def discounts_like(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """In [0, 1), zero at times as after a termination."""
    sizes = {"scalar": (), "per_question": shape[2:], "per_step": (*shape[:2], *(1 for _ in shape[2:])), "full": shape}
    values = torch.rand(sizes[kind], generator=generator)
    return values * (torch.rand(values.shape, generator=generator) > 0.1)


@given(
    seed=SEEDS,
    steps=SIZES,
    num_envs=SIZES,
    tail=st.sampled_from([(), (4,), (2, 3)]),
    kind=st.sampled_from(["scalar", "per_question", "per_step", "full"]),
)
def test_returns_equal_their_definition(seed: int, steps: int, num_envs: int, tail: tuple[int, ...], kind: str) -> None:
    generator, shape = torch.Generator().manual_seed(seed), (steps, num_envs, *tail)
    cumulants, bootstraps = (torch.randn(shape, generator=generator) for _ in range(2))
    discounts, segment_end = discounts_like(kind, shape, generator), random_segment_end(steps, num_envs, generator)
    expected = slow_returns(cumulants, discounts, bootstraps, segment_end)
    torch.testing.assert_close(bootstrapped_returns(cumulants, discounts, bootstraps, segment_end), expected)


@pytest.mark.parametrize("seed", range(5))
def test_returns_of_rewards_over_terminations_and_truncations(seed: int) -> None:
    """G_t = R_{t+1} + γ R_{t+2} + …: nothing beyond a termination, the value beyond a truncation."""
    rollout, values = random_rollout(seed, steps=6), torch.randn(6, 3)
    discounts = per_step_discounts(0.9, rollout.terminated, torch.float64)
    returns = bootstrapped_returns(rollout.rewards, discounts, values, rollout.segment_end)
    for t, b in product(range(6), range(3)):
        rewards, w = [], t
        while not rollout.segment_end[w, b]:
            rewards.append(float(rollout.rewards[w, b]))
            w += 1
        rewards.append(float(rollout.rewards[w, b]))
        end = 0.0 if rollout.terminated[w, b] else float(values[w, b])
        expected = sum(0.9**i * reward for i, reward in enumerate(rewards)) + 0.9 ** len(rewards) * end
        assert float(returns[t, b]) == pytest.approx(expected, rel=1e-12)


def test_the_return_of_ones_is_a_geometric_series() -> None:
    ones, segment_end = torch.ones(7, 2), torch.zeros(7, 2, dtype=torch.bool)
    segment_end[[3, 6]] = True
    forever = torch.full((7, 2), 1 / (1 - 0.9))
    torch.testing.assert_close(bootstrapped_returns(ones, torch.tensor(0.9), forever, segment_end), forever)


def test_bootstraps_are_read_at_segment_ends_only() -> None:
    rollout = random_rollout(0)
    cumulants, values = torch.randn(4, 3), torch.randn(4, 3)
    unknown = torch.where(rollout.segment_end, values, torch.nan)
    expected = bootstrapped_returns(cumulants, torch.tensor(0.9), values, rollout.segment_end)
    actual = bootstrapped_returns(cumulants, torch.tensor(0.9), unknown, rollout.segment_end)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_gradients_of_returns() -> None:
    generator = torch.Generator().manual_seed(0)
    segment_end = random_segment_end(4, 3, generator)
    arguments = [torch.rand(4, 3, 2, generator=generator).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *tensors: bootstrapped_returns(*tensors, segment_end), arguments)
    assert torch.autograd.gradgradcheck(lambda *tensors: bootstrapped_returns(*tensors, segment_end), arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0, torch.tensor(0.9)])
def test_discounts_are_zero_on_terminated_steps(dtype: torch.dtype, discount: Tensor | float) -> None:
    terminated = torch.tensor([[False, True], [True, False]])
    discounts = per_step_discounts(discount, terminated, dtype)
    assert discounts.dtype == torch.result_type(torch.empty(1, dtype=dtype), discount)
    expected = [[0.0 if end else float(discount) for end in row] for row in terminated.tolist()]
    torch.testing.assert_close(discounts.double(), torch.tensor(expected), rtol=1e-7, atol=0)


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, length=st.integers(1, 8))
def test_windows_equal_their_definition(seed: int, steps: int, num_envs: int, length: int) -> None:
    segment_end = random_segment_end(steps, num_envs, torch.Generator().manual_seed(seed))
    expected = [[slow_window(segment_end, t, b, length) for b in range(num_envs)] for t in range(steps)]
    assert window_index(segment_end, length).tolist() == expected


def test_windows_stay_in_their_episode() -> None:
    segment_end = torch.tensor([[False], [True], [False], [False], [True]])
    assert window_index(segment_end, 3)[:, 0].tolist() == [[0, 1, 1], [1, 1, 1], [2, 3, 4], [3, 4, 4], [4, 4, 4]]


def test_windows_stay_on_the_device_of_their_segment_ends() -> None:
    index = window_index(torch.ones(5, 2, dtype=torch.bool, device="meta"), 3)
    assert index.device.type == "meta"
    assert index.shape == (5, 2, 3)


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, gae_lambda=st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_lambda_returns_mix_the_returns_of_every_length(
    seed: int, steps: int, num_envs: int, gae_lambda: float
) -> None:
    """(1-λ) Σ_n λ^(n-1) G^(n), the rest of the weight on the longest; with λ = 1 the longest alone."""
    generator, shape = torch.Generator().manual_seed(seed), (steps, num_envs)
    rewards, values, bootstraps = (torch.randn(shape, generator=generator) for _ in range(3))
    discounts, segment_end = (
        discounts_like("per_step", shape, generator),
        random_segment_end(steps, num_envs, generator),
    )
    returns = lambda_returns(rewards, discounts, values, bootstraps, segment_end, gae_lambda)
    for t, b in product(range(steps), range(num_envs)):
        mixture, weight, gained, discount = 0.0, 1.0, 0.0, 1.0
        for w in range(t, steps):
            gained += discount * float(rewards[w, b])
            discount *= float(discounts[w, b])
            if segment_end[w, b]:
                mixture += weight * (gained + discount * float(bootstraps[w, b]))
                break
            mixture += (1 - gae_lambda) * weight * (gained + discount * float(values[w + 1, b]))
            weight *= gae_lambda
        assert float(returns[t, b]) == pytest.approx(mixture, abs=1e-12)
    if gae_lambda == 1.0:
        torch.testing.assert_close(returns, bootstrapped_returns(rewards, discounts, bootstraps, segment_end))


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
def test_lambda_returns_are_those_of_stable_baselines3(gae_lambda: float) -> None:
    steps, num_envs = 7, 3
    space = gym.spaces.Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, gamma=0.9, gae_lambda=gae_lambda, n_envs=num_envs)
    generator = torch.Generator().manual_seed(0)
    rewards, values = (
        torch.randn(steps, num_envs, generator=generator),
        torch.randn(steps + 1, num_envs, generator=generator),
    )
    terminated = torch.rand(steps, num_envs, generator=generator) < 0.3
    for t in range(steps):
        starts = np.zeros(num_envs) if t == 0 else terminated[t - 1].numpy()
        nothing = np.zeros((num_envs, 1), np.float32)
        buffer.add(nothing, nothing, rewards[t].numpy(), starts, values[t], torch.zeros(num_envs))
    buffer.compute_returns_and_advantage(values[-1], terminated[-1].numpy())
    segment_end = terminated.clone()
    segment_end[-1] = True
    discounts = per_step_discounts(0.9, terminated, torch.float64)
    returns = lambda_returns(rewards, discounts, values[:-1], values[1:], segment_end, gae_lambda)
    np.testing.assert_allclose(returns.numpy(), buffer.returns, rtol=1e-5)
    np.testing.assert_allclose((returns - values[:-1]).numpy(), buffer.advantages, rtol=1e-4, atol=1e-5)


def test_lambda_returns_are_differentiable() -> None:
    generator, shape = torch.Generator().manual_seed(0), (4, 2)
    rewards, discounts, values, bootstraps = (torch.rand(shape, generator=generator).requires_grad_() for _ in range(4))
    segment_end = random_segment_end(4, 2, generator)
    assert torch.autograd.gradcheck(
        lambda *given: lambda_returns(*given, segment_end, 0.7), (rewards, discounts, values, bootstraps)
    )
