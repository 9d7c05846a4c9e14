"""Multi-step returns of the main task, of questions and of pixel control; V-trace (Espeholt et al. 2018, IMPALA)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def bootstrapped_returns(
    cumulants: Float[Tensor, "T B *tail"],
    discounts: Float[Tensor, "..."],
    bootstraps: Float[Tensor, "T B *tail"],
    segment_end: Bool[Tensor, "T B"],
) -> Float[Tensor, "T B *tail"]:
    """Discounted sums of cumulants up to the end of the segment, plus the discounted bootstrap there.

    For t = T-1, …, 0, with c_{t+1} = `cumulants[t]`, γ_{t+1} = `discounts[t]`, v_{t+1} = `bootstraps[t]`:

    G_t = c_{t+1} + γ_{t+1} · (v_{t+1} if segment_end_t else G_{t+1})

    With rewards as cumulants this is G^v_t of Veeriah et al. (2019, section 3.4), where W + 1 is the number of steps
    to the end of the segment. With a question's cumulants and discounts it is G^{y_i}_t.

    Args:
        cumulants: `[T, B, ...]`: c_{t+1}.
        discounts: `[T, B, ...]`, or any shape that broadcasts to it: γ_{t+1}; 0 where an episode terminated.
        bootstraps: `[T, B, ...]`: v_{t+1}, the estimate at o_{t+1}; read only where `segment_end`.
        segment_end: `[T, B]` boolean; true on the last step.

    Returns:
        `[T, B, ...]`: G_t, differentiable in cumulants, discounts and bootstraps.
    """
    discounts = discounts.expand_as(cumulants)
    ends = segment_end.reshape(segment_end.shape + (1,) * (cumulants.dim() - segment_end.dim()))
    g_t, returns = bootstraps[-1], []
    for t in reversed(range(len(cumulants))):
        g_t = cumulants[t] + discounts[t] * torch.where(ends[t], bootstraps[t], g_t)
        returns.append(g_t)
    return torch.stack(returns[::-1])


def lambda_returns(
    rewards: Float[Tensor, "T B"],
    discounts: Float[Tensor, "T B"],
    values: Float[Tensor, "T B"],
    bootstraps: Float[Tensor, "T B"],
    segment_end: Bool[Tensor, "T B"],
    gae_lambda: float | Float[Tensor, ""],
) -> Float[Tensor, "T B"]:
    """λ-returns; G_t - v_t is the generalized advantage estimate (Schulman et al. 2016, equation 16).

    For t = T-1, …, 0:

    G_t = r_{t+1} + γ_{t+1} · (v_{t+1} if segment_end_t else (1 - λ) v_{t+1} + λ G_{t+1})

    Here v_{t+1} is `bootstraps[t]` at the end of a segment and `values[t+1]` elsewhere. With λ = 1 this is
    `bootstrapped_returns`.

    Args:
        rewards: `[T, B]`: r_{t+1}.
        discounts: `[T, B]`: γ_{t+1}; 0 where an episode terminated.
        values: `[T, B]`: v_t, the estimate at o_t.
        bootstraps: `[T, B]`: the estimate at o_{t+1}; read only where `segment_end`.
        segment_end: `[T, B]` boolean; true on the last step.
        gae_lambda: λ in [0, 1], a number or a scalar tensor.

    Returns:
        `[T, B]`: G_t, differentiable in rewards, discounts, values, bootstraps and λ.
    """
    target_t, returns = bootstraps[-1], []
    for t in reversed(range(len(rewards))):
        g_t = rewards[t] + discounts[t] * torch.where(segment_end[t], bootstraps[t], target_t)
        returns.append(g_t)
        target_t = (1.0 - gae_lambda) * values[t] + gae_lambda * g_t
    return torch.stack(returns[::-1])


def per_step_discounts(
    discount: Float[Tensor, "..."] | float, terminated: Bool[Tensor, "..."], dtype: torch.dtype
) -> Float[Tensor, "..."]:
    """γ_{t+1}: `discount`, or 0 where the episode terminated.

    Args:
        discount: γ in [0, 1]; one number, or `[T, B, D]` for questions.
        terminated: `[T, B]` boolean; `[T, B, 1]` for questions.
        dtype: floating-point type of the result.

    Returns:
        The shape that both arguments broadcast to.
    """
    return discount * (~terminated).to(dtype)


def window_index(segment_end: Bool[Tensor, "T B"], length: int) -> Int[Tensor, "T B {length}"]:
    """The time indices of the observations o_{t+1:t+j}. A window ends with its episode or with the rollout.

    Args:
        segment_end: `[T, B]` boolean; true on the last step of an episode or of the rollout.
        length: j ≥ 1.

    Returns:
        `[T, B, j]` integer: entry i is t + i, or the last step of the segment if that comes first. The last
        observation of a segment is then repeated.
    """
    steps = torch.arange(len(segment_end), device=segment_end.device)
    end_t, ends = steps[-1], []
    for t in reversed(range(len(segment_end))):
        end_t = torch.where(segment_end[t], steps[t], end_t)
        ends.append(end_t)
    offsets = torch.arange(length, device=segment_end.device)
    return torch.minimum(steps[:, None, None] + offsets, torch.stack(ends[::-1])[..., None])


ROUNDING = 1e-4
"""Logarithms of ratios closer than this to their bound count as bounded where they are differentiated."""


class VTrace(NamedTuple):
    """Targets and advantages of V-trace."""

    targets: Float[Tensor, "T B"]
    """`[T, B]`: v_t, which the value of o_t is regressed on."""
    advantages: Float[Tensor, "T B"]
    """`[T, B]`: ρ_t · (r_{t+1} + γ_{t+1} v_{t+1} - V_t), which weighs ∇ log π(a_t|x_t)."""


def vtrace(
    log_ratios: Float[Tensor, "T B"],
    rewards: Float[Tensor, "T B"],
    discounts: Float[Tensor, "T B"],
    values: Float[Tensor, "T B"],
    bootstraps: Float[Tensor, "T B"],
    segment_end: Bool[Tensor, "T B"],
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """V-trace targets (equation 1 of Espeholt et al. 2018) and policy-gradient advantages (section 4.2).

    With ρ_t = min(ρ̄, π(a_t|x_t) / μ(a_t|x_t)), c_t = λ min(c̄, π(a_t|x_t) / μ(a_t|x_t)) and
    δ_t = ρ_t · (r_{t+1} + γ_{t+1} V_{t+1} - V_t), for t = T-1, …, 0:

    v_t = V_t + δ_t + γ_{t+1} c_t · (0 if segment_end_t else v_{t+1} - V_{t+1})

    At the end of a segment both V_{t+1} and v_{t+1} are `bootstraps[t]`, the value of the final observation, never that
    of the next episode's first one. Elsewhere V_{t+1} is `values[t+1]`.

    If π = μ and ρ̄, c̄ ≥ 1, targets are the `lambda_returns`, and with λ = 1 the `bootstrapped_returns`. Ratios at their
    bound are constants: on on-policy data, whose ratios are 1 up to rounding, targets have the returns' derivative.

    Args:
        log_ratios: `[T, B]`: log π(a_t|x_t) - log μ(a_t|x_t), of the target policy π and the behavior policy μ.
        rewards: `[T, B]`: r_{t+1}.
        discounts: `[T, B]`: γ_{t+1}; 0 where an episode terminated.
        values: `[T, B]`: V_t, the estimate at o_t.
        bootstraps: `[T, B]`: the estimate at o_{t+1}; read only where `segment_end`.
        segment_end: `[T, B]` boolean; true on the last step of an episode or of the batch.
        rho_bar: ρ̄ > 0, which bounds the ratios of the temporal differences and of the policy gradient. It determines
            the fixed point; infinite: the value of π.
        c_bar: c̄ > 0, which bounds the ratios of the traces and determines the speed of convergence; c̄ ≤ ρ̄.
        lambda_: λ in [0, 1].

    Returns:
        targets and advantages, differentiable in all floating-point arguments.
    """
    rhos, traces = _bounded_ratios(log_ratios, rho_bar), lambda_ * _bounded_ratios(log_ratios, c_bar)
    differences = rhos * (rewards + discounts * _following(values, bootstraps, segment_end) - values)
    corrections = bootstrapped_returns(differences, discounts * traces, torch.zeros_like(values), segment_end)
    targets = values + corrections
    advantages = rhos * (rewards + discounts * _following(targets, bootstraps, segment_end) - values)
    return VTrace(targets, advantages)


def _bounded_ratios(log_ratios: Float[Tensor, "T B"], bound: float) -> Float[Tensor, "T B"]:
    """min(bound, ratio), whose derivative is 0 at the bound and above."""
    limit = math.log(bound)  # of the logarithm: the exponential of a large one overflows, and its derivative is NaN
    varying = log_ratios < limit - ROUNDING
    return torch.exp(torch.where(varying, log_ratios, log_ratios.detach().clamp(max=limit)))


def _following(
    estimates: Float[Tensor, "T B"], bootstraps: Float[Tensor, "T B"], segment_end: Bool[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """v(o_{t+1}): the next step's value, or the bootstrap value at segment ends."""
    return torch.where(segment_end, bootstraps, torch.cat([estimates[1:], bootstraps[-1:]]))
