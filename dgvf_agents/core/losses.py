"""The pseudo-losses of the paper's equation 2: the actor-critic loss L^RL, and the regression behind L^ans.

Losses are means over time and batch; L^ans is also a sum over questions. `inner_update` multiplies L^ans by its weight.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from dgvf_agents.core.distributions import ActionDistribution


class ActorCriticLoss(NamedTuple):
    """L^RL and its terms."""

    total: Float[Tensor, ""]
    policy: Float[Tensor, ""]
    value: Float[Tensor, ""]
    entropy: Float[Tensor, ""]
    """The mean entropy in nats; an estimate if it has no closed form."""


def actor_critic_loss(
    distribution: ActionDistribution,
    policy_outputs: Float[Tensor, "T B A"],
    values: Float[Tensor, "T B"],
    actions: Shaped[Tensor, "T B *action"],
    returns: Float[Tensor, "T B"],
    advantages: Float[Tensor, "T B"],
    vf_coef: float | Float[Tensor, ""],
    ent_coef: float | Float[Tensor, ""],
) -> ActorCriticLoss:
    """L^RL = -A log π(a|x) + c_v (G - v)² - c_H H(π), averaged over time and batch.

    Its negative gradient is the policy and value update of the paper's section 3.4 if returns and advantages are
    constant. This function has no stop-gradients: callers pass constants.

    Args:
        distribution: of the actions.
        policy_outputs: `[T, B, A]`: parameters of the distribution.
        values: `[T, B]`: v(x_t).
        actions: `[T, B]`, or `[T, B, ...]` for actions of several parts.
        returns: `[T, B]`: G^v_t.
        advantages: `[T, B]`: A_t = G^v_t - v(x_t).
        vf_coef: c_v ≥ 0, coefficient of the mean squared value error.
        ent_coef: c_H ≥ 0, coefficient of the entropy bonus.
    """
    policy = -(advantages * distribution.log_prob(policy_outputs, actions)).mean()
    value = ((returns - values) ** 2).mean()
    entropy = distribution.entropy(policy_outputs, actions).mean()
    return ActorCriticLoss(policy + vf_coef * value - ent_coef * entropy, policy, value, entropy)


def normalize(advantages: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Advantages with mean 0 and standard deviation 1; zeros if they are all equal.

    Args:
        advantages: at least two, of any shape.
    """
    # The mean of equal numbers can be off by a rounding error, which ε would not keep small; subtracting one of the
    # numbers first makes it exact.
    advantages = advantages - advantages.detach().flatten()[0]
    # ε = 1e-8 is inside the root, squared: a root has an infinite derivative at 0.
    return (advantages - advantages.mean()) * torch.rsqrt(advantages.var() + 1e-16)


def regression_loss(predictions: Float[Tensor, "T B *tail"], targets: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """½ (target - y)², averaged over time and batch and summed over all other axes.

    Args:
        predictions: `[T, B, ...]`: y.
        targets: of the same shape.

    Raises:
        ValueError: the shapes differ.
    """
    if predictions.shape != targets.shape:  # they would broadcast to a different loss
        raise ValueError(
            f"targets must have the predictions' shape {tuple(predictions.shape)}, got {tuple(targets.shape)}"
        )
    return 0.5 * ((targets - predictions) ** 2).mean((0, 1)).sum()
