"""V-trace against a literal transcription of Espeholt et al. (2018)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dgvf_agents.core.inner_update import StopGradientInputs, main_loss, meta_loss_gradient
from dgvf_agents.core.returns import bootstrapped_returns, lambda_returns
from dgvf_agents.core.targets import VTraceTargets
from dgvf_agents.core.vtrace import VTrace, vtrace
from tests.core.metagradient_problem import Case, problem_of, rule_of

pytestmark = pytest.mark.usefixtures("double_precision")

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 6)
BARS = st.sampled_from([(1.0, 1.0), (2.0, 0.7), (float("inf"), 1.0), (0.5, 0.5)])


def slow_vtrace(
    ratios: list[float],
    rewards: list[float],
    discounts: list[float],
    values: list[float],
    last_value: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lambda_: float = 1.0,
) -> tuple[list[float], list[float]]:
    """Targets and advantages of one trajectory of n steps within an episode, as published:

    v_s = V(x_s) + Σ_{t=s}^{s+n-1} γ^{t-s} (Π_{i=s}^{t-1} c_i) δ_t V,   δ_t V = ρ_t (r_t + γ V(x_{t+1}) - V(x_t)),
    and the advantage ρ_s (r_s + γ v_{s+1} - V(x_s)).

    Args:
        ratios: π(a_t|x_t) / μ(a_t|x_t).
        rewards: r_t.
        discounts: γ of each step, 0 where the episode terminates.
        values: V(x_t).
        last_value: V(x_n), of the last observation.
        rho_bar: ρ̄.
        c_bar: c̄.
        lambda_: λ.
    """
    n = len(rewards)
    v = [*values, last_value]
    rho = [min(rho_bar, ratio) for ratio in ratios]
    c = [lambda_ * min(c_bar, ratio) for ratio in ratios]
    targets = []
    for s in range(n):
        target = v[s]
        for t in range(s, n):
            weight = 1.0
            for i in range(s, t):
                weight *= discounts[i] * c[i]
            target += weight * rho[t] * (rewards[t] + discounts[t] * v[t + 1] - v[t])
        targets.append(target)
    following = [*targets[1:], last_value]
    advantages = [rho[s] * (rewards[s] + discounts[s] * following[s] - v[s]) for s in range(n)]
    return targets, advantages


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
        """The transcription, trajectory by trajectory."""
        targets, advantages = torch.empty_like(self.rewards), torch.empty_like(self.rewards)
        for b in range(self.rewards.shape[1]):
            start = 0
            for t in range(len(self.rewards)):
                if self.segment_end[t, b]:
                    own = slice(start, t + 1), b
                    lists = [part[own].tolist() for part in (self.rewards, self.discounts, self.values)]
                    found = slow_vtrace(
                        self.log_ratios.exp()[own].tolist(), *lists, float(self.bootstraps[t, b]), **options
                    )
                    targets[own], advantages[own] = map(torch.tensor, found)
                    start = t + 1
        return VTrace(targets, advantages)


def assert_equal(actual: VTrace, expected: VTrace) -> None:
    for own, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-11, atol=1e-11)


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


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES)
def test_a_batch_equals_its_environments_one_by_one(seed: int, steps: int, num_envs: int) -> None:
    batch = Batch(seed, steps, num_envs)
    together = vtrace(*batch.arguments)
    for b in range(num_envs):
        alone = vtrace(*(part[:, b : b + 1] for part in batch.arguments))
        assert_equal(alone, VTrace(*(part[:, b : b + 1] for part in together)))


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


def test_is_differentiable_in_all_that_the_meta_gradient_passes_through() -> None:
    batch = Batch(2, 4, 3)
    leaves = [part.clone().requires_grad_() for part in batch.arguments[:-1]]

    def outputs(*parts: Tensor) -> Any:
        return tuple(vtrace(*parts, batch.segment_end, rho_bar=1.3, c_bar=0.8, lambda_=0.9))

    assert torch.autograd.gradcheck(outputs, leaves)
    assert torch.autograd.gradgradcheck(outputs, leaves)


def test_gradients_reach_bootstraps_at_segment_ends_only() -> None:
    batch = Batch(3, 5, 3)
    bootstraps = batch.bootstraps.clone().requires_grad_()
    given = (*batch.arguments[:4], bootstraps, batch.segment_end)
    (gradient,) = torch.autograd.grad(sum(part.sum() for part in vtrace(*given)), bootstraps)
    assert torch.equal(gradient != 0, batch.segment_end & ~batch.terminated)


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


@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_of_the_loss_equals_finite_differences(normalize: bool) -> None:
    case = Case(bounds=(1.6, 0.7))
    rule, given = replace(rule_of(case), normalize_advantages=normalize), problem_of(case)
    rollout = given.rollouts[0]
    heads = {name: value for name, value in given.theta.items() if not name.startswith("encoder.")}
    features = given.network.encode(given.theta, rollout.observations)
    last = rollout.next_observations.flatten(0, 1)[rollout.bootstrap_index]
    stopped = StopGradientInputs(heads, features, given.network.encode(given.theta, last, batch_dims=1))
    leaves = [value.clone().requires_grad_() for value in (*heads.values(), features)]

    def loss(*parts: Tensor) -> Tensor:
        moved = dict(zip(heads, parts, strict=False))
        return main_loss(rule, moved, parts[-1], stopped, rollout)[0].total

    assert torch.autograd.gradcheck(loss, leaves)
    gradients = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True, materialize_grads=True)
    moved = {name for name, gradient in zip((*heads, "features"), gradients, strict=True) if gradient.any()}
    assert moved == {"policy.weight", "policy.bias", "value.weight", "value.bias", "features"}


def test_a_rollout_must_tell_the_behavior_policy() -> None:
    case = Case(bounds=(1.0, 1.0))
    rollout = problem_of(case).rollouts[0]._replace(behavior_log_probs=None)
    with pytest.raises(ValueError, match=r"rollout.behavior_log_probs must be given for off-policy targets, got None"):
        meta_loss_gradient(rule_of(case), problem_of(case).theta, rollout)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0.0, 1.0), "rho_bar must be > 0, got 0.0"),
        ((1.0, -1.0), "c_bar must be > 0, got -1.0"),
        ((1.0, 2.0), "c_bar must be <= rho_bar = 1.0, got 2.0"),
        ((float("nan"), 1.0), "rho_bar must be a finite number > 0, got nan"),
    ],
)
def test_bounds_are_checked(bounds: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VTraceTargets(*bounds)


# --- mistakes that published implementations have made ----------------------------------------------------------------


def truncated_at_step(step: int, steps: int = 5) -> Batch:
    """One environment, truncated after `step`; every step counts: no discount is zero."""
    batch = Batch(4, steps, 1, ends=0.0)
    batch.segment_end[step] = True
    return batch


def test_the_advantage_at_a_truncation_uses_the_final_observation() -> None:
    """Not the value of the next episode's first observation, which stands in the next row."""
    batch = truncated_at_step(2)
    expected = batch.slowly()
    for other in (batch.values[3], batch.values[3] + 100.0):
        batch.values[3] = other
        targets, advantages = vtrace(*batch.arguments)
        torch.testing.assert_close(targets[:3], expected.targets[:3])
        torch.testing.assert_close(advantages[:3], expected.advantages[:3])
    ratio = batch.log_ratios[2].exp().clamp(max=1.0)
    by_hand = ratio * (batch.rewards[2] + batch.discounts[2] * batch.bootstraps[2] - batch.values[2])
    torch.testing.assert_close(advantages[2], by_hand)


@pytest.mark.parametrize("last", [0.0, 7.0])
def test_the_bootstrap_counts_once(last: float) -> None:
    """A value of zero at the end would hide that it counts twice, or not at all."""
    batch = Batch(5, 3, 1, ends=0.0)
    batch.bootstraps[-1] = last
    targets, advantages = vtrace(torch.zeros(3, 1), *batch.arguments[1:])
    gained, factor = 0.0, 1.0
    for t in range(3):
        gained, factor = gained + factor * float(batch.rewards[t, 0]), factor * float(batch.discounts[t, 0])
    assert float(targets[0, 0]) == pytest.approx(gained + factor * last, rel=1e-12)
    assert float(advantages[0, 0]) == pytest.approx(gained + factor * last - float(batch.values[0, 0]), rel=1e-12)


def test_the_last_step_counts() -> None:
    batch = Batch(6, 4, 2, ends=0.0)
    targets, advantages = vtrace(*batch.arguments)
    assert targets.shape == advantages.shape == (4, 2)
    batch.rewards[-1] += 1.0
    others = vtrace(*batch.arguments)
    ratio = batch.log_ratios[-1].exp().clamp(max=1.0)
    torch.testing.assert_close(others.targets[-1] - targets[-1], ratio)
    torch.testing.assert_close(others.advantages[-1] - advantages[-1], ratio)
    assert (others.targets != targets).all()  # it reaches every step before


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_steps_of_the_next_episode_count_for_none_before_it(kind: str) -> None:
    batch = truncated_at_step(2)
    batch.discounts[2] *= float(kind == "truncated")
    before = vtrace(*batch.arguments)
    for part, t in product((batch.rewards, batch.values, batch.log_ratios, batch.bootstraps), (3, 4)):
        part[t] += 1.0
    after = vtrace(*batch.arguments)
    for own, other in zip(before, after, strict=True):
        torch.testing.assert_close(own[:3], other[:3], rtol=0, atol=0)
        assert (own[3:] != other[3:]).all()


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 3.0), (3.0, 1.0)])
def test_both_bounds_have_a_place_of_their_own(rho_bar: float, c_bar: float) -> None:
    batch = Batch(7, 5, 3)
    batch.log_ratios = batch.log_ratios.abs() + 1.2  # above 3
    assert_equal(vtrace(*batch.arguments, rho_bar, c_bar), batch.slowly(rho_bar=rho_bar, c_bar=c_bar))
