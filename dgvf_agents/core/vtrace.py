"""V-trace: off-policy value targets and policy-gradient advantages (Espeholt et al. 2018, IMPALA)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dgvf_agents.core.returns import bootstrapped_returns

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
