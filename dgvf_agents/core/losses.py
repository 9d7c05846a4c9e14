"""The pseudo-losses of the paper's equation 2: the actor-critic loss L^RL, and the regression behind L^ans.

Losses are means over time and batch; L^ans is also a sum over questions. `inner_update` multiplies L^ans by its weight:
a coefficient, or `auxiliary_weight`, with which its gradient at the features is as large as a multiple of L^RL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.optimizers import root


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


GRADIENT_FLOOR = 1e-8
"""δ of `auxiliary_weight`: gradients of L^ans far below it are noise, so they are not scaled up."""

Gradients = tuple[Tensor, Tensor]
"""∂L^RL/∂x and ∂L^ans/∂x."""


def auxiliary_weight(
    coefficient: float | Float[Tensor, ""], main: Float[Tensor, "*shape"], auxiliary: Float[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """W = c · ‖∂L^RL/∂x‖ / √(‖∂L^ans/∂x‖² + δ²), so that the weighted gradient of L^ans has c times the norm of L^RL's.

    The ratio of norms does not depend on the scale of rewards and cumulants or on the number of questions, so c has the
    same meaning on every task. w is differentiable in both gradients, also at zero.

    Args:
        coefficient: c ≥ 0.
        main: ∂L^RL/∂x, of any shape.
        auxiliary: ∂L^ans/∂x, of the same shape.
    """
    return _weight(coefficient, (main * main).sum(), (auxiliary * auxiliary).sum())


def auxiliary_weights(
    coefficient: float | Float[Tensor, ""], gradients: Sequence[Gradients], averaging: Averaging | None
) -> list[Float[Tensor, ""]]:
    """The `auxiliary_weight` of each pair of gradients.

    Args:
        coefficient: c ≥ 0.
        gradients: ∂L^RL/∂x and ∂L^ans/∂x, for several x.
        averaging: if given, losses are means over the batches of all learners, and so norms are over these batches.
    """
    if averaging is None:
        return [auxiliary_weight(coefficient, *pair) for pair in gradients]
    squares = torch.stack([(gradient * gradient).sum() for pair in gradients for gradient in pair])
    # The gradient of the mean over P batches is 1/P of a batch's own.
    whole = averaging.mean(squares) / averaging.learners
    return [_weight(coefficient, main, auxiliary) for main, auxiliary in whole.reshape(-1, 2).unbind()]


def _weight(
    coefficient: float | Float[Tensor, ""], main: Float[Tensor, ""], auxiliary: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """The weight for the squares of both norms."""
    return coefficient * root(main) * torch.rsqrt(auxiliary + GRADIENT_FLOOR**2)
