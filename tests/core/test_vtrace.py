"""V-trace against a literal transcription of Espeholt et al. (2018)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dgvf_agents.core.inner_update import meta_loss_gradient
from dgvf_agents.core.returns import VTrace, bootstrapped_returns, lambda_returns, vtrace
from tests.core.metagradient_problem import Case, problem_of, rule_of
from tests.core_oracles import slow_vtrace

pytestmark = pytest.mark.usefixtures("double_precision")

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 6)
BARS = st.sampled_from([(1.0, 1.0), (2.0, 0.7), (float("inf"), 1.0), (0.5, 0.5)])


class Batch:
    """Random experience `[T, B]`, values that are not zero anywhere, and its trajectories."""

    def __init__(self, seed: int, steps: int, num_envs: int, ends: float = 0.4) -> None:
        generator, shape = torch.Generator().manual_seed(seed), (steps, num_envs)

        def normal() -> Tensor:
            return torch.randn(shape, generator=generator)

        luck = torch.rand(shape, generator=generator)
        self.terminated, self.truncated = luck < ends / 2, luck > 1.0 - ends / 2
        self.segment_end = self.terminated | self.truncated
        self.segment_end[-1] = True
        self.log_ratios, self.rewards, self.values, self.bootstraps = normal(), normal(), normal() + 3.0, normal() + 5.0
        self.discounts = (0.5 + 0.5 * torch.rand(shape, generator=generator)) * ~self.terminated

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        return (self.log_ratios, self.rewards, self.discounts, self.values, self.bootstraps, self.segment_end)

    def slowly(self, **options: float) -> VTrace:
        """The transcription."""
        return VTrace(*slow_vtrace(self.log_ratios.exp(), *self.arguments[1:], **options))


def assert_equal(actual: VTrace, expected: VTrace) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, bars=BARS, lambda_=st.sampled_from([0.0, 0.6, 1.0]))
def test_equals_the_published_formula(
    seed: int, steps: int, num_envs: int, bars: tuple[float, float], lambda_: float
) -> None:
    batch = Batch(seed, steps, num_envs)
    options = {"rho_bar": bars[0], "c_bar": bars[1], "lambda_": lambda_}
    assert_equal(vtrace(*batch.arguments, **options), batch.slowly(**options))


def test_the_bounds_are_one_by_default() -> None:
    batch = Batch(0, 6, 4)
    assert batch.log_ratios.max() > 0.5
    assert_equal(vtrace(*batch.arguments), batch.slowly(rho_bar=1.0, c_bar=1.0, lambda_=1.0))


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, lambda_=st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_on_policy_targets_are_the_returns(seed: int, steps: int, num_envs: int, lambda_: float) -> None:
    batch = Batch(seed, steps, num_envs)
    ones = torch.zeros_like(batch.log_ratios)
    targets, advantages = vtrace(ones, *batch.arguments[1:], lambda_=lambda_)
    given = (batch.rewards, batch.discounts, batch.values, batch.bootstraps, batch.segment_end)
    torch.testing.assert_close(targets, lambda_returns(*given, lambda_), rtol=1e-11, atol=1e-11)
    if lambda_ == 1.0:
        n_step = bootstrapped_returns(batch.rewards, batch.discounts, batch.bootstraps, batch.segment_end)
        torch.testing.assert_close(targets, n_step, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(advantages, n_step - batch.values, rtol=1e-11, atol=1e-11)


def test_of_actions_that_the_target_policy_never_takes_only_the_value_is_left() -> None:
    batch = Batch(1, 5, 3)
    targets, advantages = vtrace(torch.full((5, 3), -torch.inf), *batch.arguments[1:])
    torch.testing.assert_close(targets, batch.values, rtol=0, atol=0)
    torch.testing.assert_close(advantages, torch.zeros(5, 3), rtol=0, atol=0)


@pytest.mark.parametrize("rounding", [0.0, 1e-7, -1e-7])
def test_on_policy_data_has_the_derivative_of_the_returns(rounding: float) -> None:
    """Whatever the sign of rounding errors, ratios of 1 are at their bound, where the minimum has a kink."""
    batch = Batch(8, 5, 3)
    log_ratios = torch.full((5, 3), rounding).requires_grad_()
    values = batch.values.clone().requires_grad_()
    result = vtrace(log_ratios, batch.rewards, batch.discounts, values, batch.bootstraps, batch.segment_end)
    weights = torch.randn(2, 5, 3)
    total = (weights[0] * result.targets).sum() + (weights[1] * result.advantages).sum()
    of_ratios, of_values = torch.autograd.grad(total, (log_ratios, values))
    assert not of_ratios.any()
    torch.testing.assert_close(of_values, -weights[1], rtol=1e-5, atol=1e-6)


def test_huge_ratios_have_finite_derivatives() -> None:
    batch = Batch(9, 3, 2)
    log_ratios = torch.full((3, 2), 1000.0).requires_grad_()
    result = vtrace(log_ratios, *batch.arguments[1:])
    (gradient,) = torch.autograd.grad(result.targets.sum(), log_ratios)
    assert not gradient.any()
    assert torch.isfinite(result.advantages).all()


# --- the loss ---------------------------------------------------------------------------------------------------------


def test_a_rollout_must_tell_the_behavior_policy() -> None:
    case = Case(bounds=(1.0, 1.0))
    rollout = problem_of(case).rollouts[0]._replace(behavior_log_probs=None)
    with pytest.raises(ValueError, match=r"rollout.behavior_log_probs must be given for off-policy targets, got None"):
        meta_loss_gradient(rule_of(case), problem_of(case).theta, rollout)
