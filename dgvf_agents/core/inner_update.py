"""Algorithm 1: inner updates of the agent, and the gradient of the meta-loss through all of them.

    θ_k ← θ_{k-1} - α′ ∇_θ [ L^RL(θ_{k-1}) + w · L^ans(θ_{k-1}, η) ]          k = 1 … L, batch k
    meta-gradient = ∇_η Σ_k L^RL(θ_k)                                          θ_k on batch k + 1

The weight w is the auxiliary coefficient c, or `auxiliary_weight`.

These are pure functions of parameters. `dgvf_agents.core.unroll` strings them together while experience comes in.

**What "through the update" means.** An inner gradient holds some quantities constant: bootstraps, advantages, and in
auxiliary-only mode the features under the main task's heads. Every loss here is therefore a function of heads and
features, in which it is differentiated, and of `StopGradientInputs`. Under the `"exact"` convention the
held values are those of θ itself, so what was constant for the inner gradient still depends on earlier parameters, and
on η: the meta-gradient is that of the update *procedure*. Under the `"surrogate"` convention they are detached, as
stop-gradients in the pseudo-losses would have it, to every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.losses import ActorCriticLoss, ActorCriticWeights, actor_critic_loss, normalized
from dgvf_agents.core.networks import FunctionalAgent
from dgvf_agents.core.optimizers import Optimizer, OptimizerState, clip_by_global_norm, global_norm
from dgvf_agents.core.returns import bootstrapped_returns, lambda_returns, per_step_discounts
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.types import Params, Rollout, detach, map_observations

Convention = Literal["exact", "surrogate"]
EncoderMode = Literal["auxiliary", "joint"]
AuxiliaryWeighting = Literal["fixed", "gradient-norm"]

GRADIENT_FLOOR = 1e-8
"""δ of `auxiliary_weight`: gradients of L^ans far below it are noise and are not scaled up."""


@final
@dataclass(frozen=True)
class UpdateRule:
    """Everything that defines an inner update and the meta-loss, apart from numbers that change while learning."""

    network: FunctionalAgent
    """The agent's architecture."""
    distribution: ActionDistribution
    """Of the actions."""
    task: AuxiliaryTask
    """What the answers are about."""
    optimizer: Optimizer
    """α′ of the inner update."""
    weights: ActorCriticWeights = field(default_factory=ActorCriticWeights)
    """c_v and c_H of L^RL."""
    discount: float = 0.99
    """γ of the main task in [0, 1]."""
    gae_lambda: float = 1.0
    """λ in [0, 1] of the main task's returns; 1 for the paper's multi-step returns."""
    normalize_advantages: bool = False
    """Whether a batch's advantages are given mean 0 and standard deviation 1."""
    auxiliary_coefficient: float = 1.0
    """c ≥ 0: the factor on L^ans, or the norm of its gradient relative to that of L^RL; see `auxiliary_weighting`."""
    auxiliary_weighting: AuxiliaryWeighting = "fixed"
    """`"fixed"`: the weight of L^ans is c (paper); `"gradient-norm"`: it is `auxiliary_weight`."""
    encoder_mode: EncoderMode = "auxiliary"
    """`"auxiliary"`: only L^ans trains the encoder; `"joint"`: L^RL does too (paper, section 3.4)."""
    convention: Convention = "exact"
    """What the meta-gradient passes through; see this module's docstring."""
    max_gradient_norm: float | None = None
    """The inner gradient is scaled down to this Euclidean norm > 0; `None` for never."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount must lie in [0, 1], got {self.discount!r}")
        if not 0.0 <= self.gae_lambda <= 1.0:
            raise ValueError(f"gae_lambda must lie in [0, 1], got {self.gae_lambda!r}")
        if not self.auxiliary_coefficient >= 0.0:
            raise ValueError(f"auxiliary_coefficient must be >= 0, got {self.auxiliary_coefficient!r}")
        if self.max_gradient_norm is not None and not self.max_gradient_norm > 0.0:
            raise ValueError(f"max_gradient_norm must be > 0 or None, got {self.max_gradient_norm!r}")
        check_choice("auxiliary_weighting", self.auxiliary_weighting, AuxiliaryWeighting)
        check_choice("encoder_mode", self.encoder_mode, EncoderMode)
        check_choice("convention", self.convention, Convention)


class InnerState(NamedTuple):
    """What an inner update changes."""

    theta: Params
    """θ."""
    optimizer: OptimizerState
    """The statistics of α′."""


class InnerMetrics(NamedTuple):
    """What an inner update reports, detached scalars."""

    loss: Tensor
    """L^RL + w · L^ans."""
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    answer_loss: Tensor
    gradient_norm: Tensor
    """Euclidean norm of the inner gradient before clipping."""
    explained_variance: Tensor
    """1 - Var(G - v) / Var(G)."""
    main_gradient: Tensor
    """‖∂L^RL/∂x‖ at the features x, whether or not it trains the encoder."""
    auxiliary_gradient: Tensor
    """‖∂L^ans/∂x‖ at the features, weighted as in the inner gradient."""


class StopGradientInputs(NamedTuple):
    """What a gradient of a pseudo-loss holds constant."""

    heads: Params
    """Parameters of the heads."""
    features: Tensor
    """`[T, B, F]`: x of o_t."""
    bootstraps: Tensor
    """`[K, F]`: x of the observations that returns are bootstrapped from."""


def answer_loss(
    rule: UpdateRule, heads: Params, features: Tensor, stopped: StopGradientInputs, eta: Params, rollout: Rollout
) -> Tensor:
    """L^ans of heads on features, bootstraps held constant."""
    answers = rule.network.answer(heads, features)
    bootstraps = rule.network.answer(stopped.heads, stopped.bootstraps)[rollout.bootstrap_slot]
    return rule.task.loss(answers, bootstraps, eta, rollout)


def auxiliary_weight(coefficient: float, main: Tensor, auxiliary: Tensor) -> Tensor:
    """The weight w = c · ‖∂L^RL/∂x‖ / √(‖∂L^ans/∂x‖² + δ²): the weighted gradient of L^ans has c times L^RL's norm.

    It is free of the scale of rewards, cumulants and the number of questions, so that c means the same on every task.
    Differentiable in both gradients, at zero too.

    Args:
        coefficient: c ≥ 0.
        main: ∂L^RL/∂x, of any shape.
        auxiliary: ∂L^ans/∂x, of any shape.
    """
    return coefficient * global_norm({"": main}) * torch.rsqrt((auxiliary * auxiliary).sum() + GRADIENT_FLOOR**2)


def main_loss(
    rule: UpdateRule, heads: Params, features: Tensor, stopped: StopGradientInputs, rollout: Rollout
) -> tuple[ActorCriticLoss, Tensor]:
    """L^RL of heads on features, returns and advantages held constant; and 1 - Var(G - v) / Var(G)."""
    network = rule.network
    bootstraps = network.values(stopped.heads, stopped.bootstraps)[rollout.bootstrap_slot]
    discounts = per_step_discounts(rule.discount, rollout.terminated, rollout.rewards.dtype)
    baselines = network.values(stopped.heads, stopped.features)
    if rule.gae_lambda == 1.0:
        returns = bootstrapped_returns(rollout.rewards, discounts, bootstraps, rollout.segment_end)
    else:
        returns = lambda_returns(
            rollout.rewards, discounts, baselines, bootstraps, rollout.segment_end, rule.gae_lambda
        )
    advantages = returns - baselines
    outputs = network.policy_outputs(heads, features, (stopped.heads, stopped.features))
    loss = actor_critic_loss(
        rule.distribution,
        outputs,
        network.values(heads, features),
        rollout.actions,
        returns,
        normalized(advantages) if rule.normalize_advantages else advantages,
        rule.weights,
        rollout.entropy_weight,
    )
    explained_variance = 1.0 - advantages.var(correction=0) / returns.var(correction=0).clamp(min=1e-8)
    return loss, explained_variance


def inner_update(
    rule: UpdateRule, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor
) -> tuple[InnerState, InnerMetrics]:
    """θ_{k-1} → θ_k; differentiable in θ_{k-1}, the optimizer's statistics and η."""
    encoded = _encode(rule, state.theta, rollout)
    return _update(rule, encoded, state, eta, rollout, learning_rate)


def meta_loss_gradient(rule: UpdateRule, theta: Params, rollout: Rollout) -> tuple[Params, Tensor]:
    """∂L^RL(θ_k)/∂θ_k by name, on a batch that θ_k generated; and the loss.

    Unlike the inner loss it reaches the encoder, which is η's only path. It is a pseudo-loss too: with returns and
    advantages held constant it gives the policy and value gradient at θ_k. The answer head has no part in it.
    """
    theta = detach(theta)
    return _score(rule, _encode(rule, theta, rollout), theta, rollout)


def scored_update(
    rule: UpdateRule, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor
) -> tuple[InnerState, InnerMetrics, Params, Tensor]:
    """`inner_update` and `meta_loss_gradient` of the same θ on the same batch, which is encoded once."""
    encoded = _encode(rule, state.theta, rollout)
    gradients, loss = _score(rule, encoded, state.theta, rollout)
    return *_update(rule, encoded, state, eta, rollout, learning_rate), gradients, loss


class _Encoded(NamedTuple):
    """A batch as θ's encoder sees it.

    The pullback is kept apart from the gradients of the heads, so that features are computed once and serve both as
    what a loss is differentiated in and as what it holds.
    """

    features: Tensor
    """`[T, B, F]`: x of o_t."""
    bootstraps: Tensor
    """`[K, F]`: x of the observations that returns are bootstrapped from."""
    pull_back: Callable[[Tensor], tuple[Params]]
    """From a gradient in the features to one in the encoder's parameters."""


def _encode(rule: UpdateRule, theta: Params, rollout: Rollout) -> _Encoded:
    encoder, _ = rule.network.split(theta)
    following = map_observations(lambda o: o.flatten(0, 1)[rollout.bootstrap_index], rollout.next_observations)
    bootstraps = rule.network.encode({**theta, **rollout.statistics}, following, batch_dims=1)

    def encode(params: Params) -> Tensor:
        return rule.network.encode({**params, **rollout.statistics}, rollout.observations, training=True)

    if not encoder:  # an encoder without parameters, which nothing trains
        return _Encoded(encode(encoder), bootstraps, lambda gradient: ({},))
    features, pull_back, *_ = torch.func.vjp(encode, encoder)
    return _Encoded(features, bootstraps, pull_back)


def _stop_gradient_inputs(encoded: _Encoded, heads: Params, convention: Convention) -> StopGradientInputs:
    """What a gradient at θ holds constant."""
    if convention == "exact":
        return StopGradientInputs(heads, encoded.features, encoded.bootstraps)
    return StopGradientInputs(detach(heads), encoded.features.detach(), encoded.bootstraps.detach())


def _update(
    rule: UpdateRule, encoded: _Encoded, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor
) -> tuple[InnerState, InnerMetrics]:
    _, heads = rule.network.split(state.theta)
    stopped = _stop_gradient_inputs(encoded, heads, rule.convention)

    def main(heads: Params, features: Tensor) -> tuple[Tensor, tuple[ActorCriticLoss, Tensor]]:
        loss, explained_variance = main_loss(rule, heads, features, stopped, rollout)
        return loss.total, (loss, explained_variance)

    def auxiliary(heads: Params, features: Tensor) -> tuple[Tensor, Tensor]:
        loss = answer_loss(rule, heads, features, stopped, eta, rollout)
        return loss, loss

    joint = rule.encoder_mode == "joint"
    seen = encoded.features if joint else stopped.features
    of_main, (rl, explained) = torch.func.grad(main, argnums=(0, 1), has_aux=True)(heads, seen)
    of_answers, answer = torch.func.grad(auxiliary, argnums=(0, 1), has_aux=True)(heads, encoded.features)
    weight, weighted = _weighted(rule, of_main[1], of_answers[1])
    of_heads = {name: gradient + weight * of_answers[0][name] for name, gradient in of_main[0].items()}
    of_features = weighted + of_main[1] if joint else weighted
    gradients = {**encoded.pull_back(of_features)[0], **of_heads}
    norm, main_norm, auxiliary_norm = (
        global_norm(detach(part)) for part in (gradients, {"": of_main[1]}, {"": weighted})
    )
    if rule.max_gradient_norm is not None:
        gradients = clip_by_global_norm(gradients, rule.max_gradient_norm)
    theta, optimizer = rule.optimizer.step(state.theta, gradients, state.optimizer, learning_rate)
    parts = (rl.total + weight * answer, rl.policy, rl.value, rl.entropy, answer)
    metrics = InnerMetrics(*(m.detach() for m in (*parts, norm, explained, main_norm, auxiliary_norm)))
    return InnerState(theta, optimizer), metrics


def _weighted(rule: UpdateRule, main: Tensor, auxiliary: Tensor) -> tuple[Tensor | float, Tensor]:
    """The weight of L^ans in the answer head's gradient, and ∂L^ans/∂x `[T, B, F]` weighted, each encoder by itself."""
    coefficient = rule.auxiliary_coefficient
    if rule.auxiliary_weighting == "fixed":
        return coefficient, coefficient * auxiliary
    if rule.convention == "surrogate":  # weights are constants of the pseudo-losses
        main, measured = main.detach(), auxiliary.detach()
    else:
        measured = auxiliary
    widths = rule.network.encoder_widths
    weights = [
        auxiliary_weight(coefficient, *parts)
        for parts in zip(main.split(widths, -1), measured.split(widths, -1), strict=True)
    ]
    weighted = [w * part for w, part in zip(weights, auxiliary.split(widths, -1), strict=True)]
    return auxiliary_weight(coefficient, main, measured), torch.cat(weighted, -1)


def _score(rule: UpdateRule, encoded: _Encoded, theta: Params, rollout: Rollout) -> tuple[Params, Tensor]:
    _, heads = rule.network.split(theta)
    heads = {name: value.detach() for name, value in heads.items() if not name.startswith("answers.")}
    stopped = _stop_gradient_inputs(encoded, heads, "surrogate")

    def loss(heads: Params, features: Tensor) -> tuple[Tensor, Tensor]:
        total = main_loss(rule, heads, features, stopped, rollout)[0].total
        return total, total

    gradient = torch.func.grad(loss, argnums=(0, 1), has_aux=True)
    (of_heads, of_features), total = gradient(heads, encoded.features.detach())
    return detach({**encoded.pull_back(of_features)[0], **of_heads}), total.detach()
