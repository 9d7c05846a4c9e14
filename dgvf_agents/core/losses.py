"""The pseudo-losses of the paper's equation 2: the actor-critic loss L^RL and the regression behind L^ans.

Said once, for all of the project: losses are means over time and batch and, for answers, sums over questions; the
answer loss is multiplied by the auxiliary coefficient where the two are added (`metagradient.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dgvf_agents.core.distributions import ActionDistribution


@dataclass(frozen=True)
class ActorCriticWeights:
    """What the parts of L^RL count."""

    value: float = 0.5
    """Factor on the value loss, the mean squared error (paper, table 1: 0.5 on half of it)."""
    entropy: float = 0.01
    """Factor on the entropy bonus (paper: searched in 1e-4 … 0.05)."""

    def __post_init__(self) -> None:
        for name in ("value", "entropy"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)!r}")


class ActorCriticLoss(NamedTuple):
    """L^RL and its parts, scalars."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    """The mean entropy itself, in nats; an estimate where it has no closed form."""


def actor_critic_loss(
    distribution: ActionDistribution,
    policy_outputs: Tensor,
    values: Tensor,
    actions: Tensor,
    returns: Tensor,
    advantages: Tensor,
    weights: ActorCriticWeights,
    entropy_weight: Tensor | None = None,
) -> ActorCriticLoss:
    """L^RL = -A log π(a|x) + c_v (G - v)² - c_H H(π), averaged over time and batch.

    Its negative gradient is the policy and value update of the paper's section 3.4. Nothing is held constant here: a
    caller who wants the returns or advantages held passes them so.

    Args:
        distribution: of the actions.
        policy_outputs: `[T, B, A]`.
        values: `[T, B]`: v(x_t).
        actions: `[T, B]` or `[T, B, A]`.
        returns: `[T, B]`: G^v_t.
        advantages: `[T, B]`: G^v_t - v(x_t), held.
        weights: c_v and c_H.
        entropy_weight: scalar, in place of c_H.
    """
    policy = -(advantages * distribution.log_prob(policy_outputs, actions)).mean()
    value = ((returns - values) ** 2).mean()
    entropy = distribution.entropy(policy_outputs, actions).mean()
    bonus = (weights.entropy if entropy_weight is None else entropy_weight) * entropy
    return ActorCriticLoss(policy + weights.value * value - bonus, policy, value, entropy)


def normalized(advantages: Tensor) -> Tensor:
    """Advantages less their mean, divided by their standard deviation; zeros where they are all the same.

    The ε of 1e-8 that is usually added to the root stands inside it, squared: a root has an infinite derivative at 0.
    Advantages are shifted by one of them first, which changes nothing but rounding: the mean of equal numbers may
    differ from them by a rounding error, and that divided by ε is no longer small.

    Args:
        advantages: at least two, of any shape.
    """
    advantages = advantages - advantages.detach().flatten()[0]
    return (advantages - advantages.mean()) * torch.rsqrt(advantages.var() + 1e-16)


def regression_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """½ (target - y)², averaged over time and batch and summed over what follows them.

    Args:
        predictions: `[T, B, ...]`.
        targets: of the same shape.

    Raises:
        ValueError: the shapes differ.
    """
    if predictions.shape != targets.shape:
        raise ValueError(
            f"targets must have the predictions' shape {tuple(predictions.shape)}, got {tuple(targets.shape)}"
        )
    return 0.5 * ((targets - predictions) ** 2).mean((0, 1)).sum()
