"""Multi-step returns: one recursion for the main task, for questions, and for pixel control."""

from __future__ import annotations

import torch
from torch import Tensor


def bootstrapped_returns(cumulants: Tensor, discounts: Tensor, bootstraps: Tensor, segment_end: Tensor) -> Tensor:
    """Discounted sums of cumulants up to the next segment_end, and the bootstrap from there on.

    For t = T-1, …, 0, with c_{t+1} = `cumulants[t]`, γ_{t+1} = `discounts[t]`, v_{t+1} = `bootstraps[t]`:

    G_t = c_{t+1} + γ_{t+1} · (v_{t+1} if end_t else G_{t+1})

    This is G^v_t of Veeriah et al. (2019, section 3.4) with rewards as cumulants and W = T - 1 - t steps to go, and
    G^{y_i}_t with the questions' own cumulants and discounts.

    Args:
        cumulants: `[T, B, ...]`.
        discounts: `[T, B, ...]` or what broadcasts to it; 0 where an episode terminated.
        bootstraps: `[T, B, ...]`: the estimate at o_{t+1}; read only where `segment_end`.
        segment_end: `[T, B]` boolean, true on the last step.

    Returns:
        `[T, B, ...]`: G_t, differentiable in cumulants, discounts and bootstraps.
    """
    discounts = discounts.expand_as(cumulants)
    segment_end = segment_end.reshape(segment_end.shape + (1,) * (cumulants.dim() - segment_end.dim()))
    future, returns = bootstraps[-1], []
    for t in reversed(range(len(cumulants))):
        future = cumulants[t] + discounts[t] * torch.where(segment_end[t], bootstraps[t], future)
        returns.append(future)
    return torch.stack(returns[::-1])


def lambda_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, bootstraps: Tensor, segment_end: Tensor, gae_lambda: float
) -> Tensor:
    """λ-returns, the targets of TD(λ); G_t - v_t is the generalized advantage (Schulman et al. 2016, equation 16).

    For t = T-1, …, 0:

    G_t = r_{t+1} + γ_{t+1} · (v_{t+1} if end_t else (1 - λ) v_{t+1} + λ G_{t+1})

    with v_{t+1} = `bootstraps[t]` at a segment's end and `values[t+1]` elsewhere. λ = 1: `bootstrapped_returns`.

    Args:
        rewards: `[T, B]`: r_{t+1}.
        discounts: `[T, B]`: γ_{t+1}; 0 where an episode terminated.
        values: `[T, B]`: v_t, the estimate at o_t.
        bootstraps: `[T, B]`: the estimate at o_{t+1}; read only where `segment_end`.
        segment_end: `[T, B]` boolean, true on the last step.
        gae_lambda: λ in [0, 1].

    Returns:
        `[T, B]`: G_t, differentiable in rewards, discounts, values and bootstraps.
    """
    future, returns = bootstraps[-1], []
    for t in reversed(range(len(rewards))):
        future = rewards[t] + discounts[t] * torch.where(segment_end[t], bootstraps[t], future)
        returns.append(future)
        future = (1.0 - gae_lambda) * values[t] + gae_lambda * future
    return torch.stack(returns[::-1])


def per_step_discounts(discount: Tensor | float, terminated: Tensor, dtype: torch.dtype) -> Tensor:
    """γ_{t+1}: `discount`, and 0 on terminated steps; `[T, B]`, or what both arguments broadcast to.

    Args:
        discount: the factor γ in [0, 1], or one per question `[T, B, D]`.
        terminated: `[T, B]` boolean; `[T, B, 1]` for questions.
        dtype: floating-point type of the result.
    """
    return discount * (~terminated).to(dtype)


def window_index(segment_end: Tensor, length: int) -> Tensor:
    """Where the observations o_{t+1:t+j} of each step lie, windows never leaving the episode or the rollout.

    Args:
        segment_end: `[T, B]` boolean, true on the last step of an episode or of the rollout.
        length: j ≥ 1.

    Returns:
        `[T, B, j]` integer: entry i is t + i, or the window's last step where that comes first, whose observation is
        then repeated.
    """
    steps = torch.arange(len(segment_end), device=segment_end.device)
    last, ends = steps[-1], []
    for t in reversed(range(len(segment_end))):
        last = torch.where(segment_end[t], steps[t], last)
        ends.append(last)
    end = torch.stack(ends[::-1])
    return torch.minimum(steps[:, None, None] + torch.arange(length, device=segment_end.device), end[..., None])
