"""The inner update of Algorithm 1, and the gradient of the meta-loss in θ, as pure functions of parameters.

    θ_k ← θ_{k-1} - α′ ∇_θ [ L^RL(θ_{k-1}) + w · L^ans(θ_{k-1}, η) ]          k = 1 … L, on batch k
    meta-gradient = ∇_η Σ_k L^RL(θ_k)                                          θ_k on batch k + 1

The weight w is the auxiliary coefficient c, or `dgvf_agents.core.losses.auxiliary_weight`. The updates are the steps of
an `InnerLoop`, and the meta-losses its losses.

**Conventions.** An inner gradient treats some of its inputs as constants: bootstraps, advantages, the importance ratios
of off-policy targets and, in auxiliary mode, the features under the policy and value heads. Losses here take them as a
separate argument, `StopGradientInputs`, and are differentiated only in heads and features. The conventions differ in
what the meta-gradient does with them:

- `"exact"`: they are functions of θ_{k-1}, and so of η. The meta-gradient differentiates the update *procedure*.
- `"surrogate"`: they are detached. The meta-gradient differentiates pseudo-losses with stop-gradients, to every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.averaging import Averaging, over_learners
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.flat import flatten, map_tensors
from dgvf_agents.core.inner_loop import LossGradient
from dgvf_agents.core.losses import ActorCriticLoss, actor_critic_loss, auxiliary_weights, normalize
from dgvf_agents.core.metrics import InnerMetrics, relative_step
from dgvf_agents.core.networks import FunctionalAgent
from dgvf_agents.core.optimizers import Adam, Optimizer, OptimizerState, RMSProp, clip_by_global_norm, global_norm
from dgvf_agents.core.returns import per_step_discounts
from dgvf_agents.core.targets import OnPolicyTargets, TargetInputs, TargetRule
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.types import Params, Rollout, detach, map_observations
from dgvf_agents.options import AuxiliaryWeighting, Convention, EncoderMode

Number = float | Float[Tensor, ""]


class Numbers(NamedTuple):
    """The numbers of an update, named like their hyperparameters.

    Compiled functions take them as scalar tensors, so that one compilation serves all values, and the functions of a
    population as tensors `[P]`.
    """

    gamma: Number = 0.99
    """γ of the main task in [0, 1]."""
    vf_coef: Number = 0.5
    """c_v ≥ 0, coefficient of the value loss."""
    ent_coef: Number = 0.01
    """c_H ≥ 0, entropy coefficient of batches that have none of their own."""
    auxiliary_coefficient: Number = 1.0
    """c ≥ 0, weight of the auxiliary task for batches that have none of their own; see `auxiliary_weighting`."""
    max_grad_norm: Number | None = None
    """Maximum Euclidean norm > 0 of the inner gradient; `None`: no clipping."""
    epsilon: Number | None = None
    """ε of the inner optimizer; `None`: its own."""

    def given(self) -> dict[str, Any]:
        """The numbers by name, without those that are `None`."""
        return {name: value for name, value in self._asdict().items() if value is not None}


@final
@dataclass(frozen=True)
class UpdateRule:
    """Definition of the inner update and the meta-loss: their structure, and their numbers.

    Ranges are the hyperparameters' (`dgvf_agents.hyperparameters`), and are checked there.
    """

    network: FunctionalAgent
    """The agent's architecture."""
    distribution: ActionDistribution
    """Distribution of the actions."""
    task: AuxiliaryTask
    """Defines L^ans."""
    optimizer: Optimizer
    """The inner optimizer."""
    numbers: Numbers = field(default_factory=Numbers)
    """Numbers that an update takes as arguments."""
    targets: TargetRule = field(default_factory=OnPolicyTargets)
    """Returns and advantages of L^RL, in the inner update and in the meta-loss: A2C's or V-trace's."""
    gae_lambda: float = 1.0
    """λ in [0, 1] of the main task's returns; 1: the paper's multi-step returns."""
    normalize_advantage: bool = False
    """Whether advantages are normalized to mean 0 and standard deviation 1 in each batch."""
    auxiliary_weighting: AuxiliaryWeighting = "fixed"
    """`"fixed"`: the weight of L^ans is c (paper); `"gradient-norm"`: as in
    `dgvf_agents.core.losses.auxiliary_weight`."""
    encoder_mode: EncoderMode = "auxiliary"
    """`"auxiliary"`: only L^ans trains the encoder; `"joint"`: both losses do (paper, section 3.4)."""
    convention: Convention = "exact"
    """What the meta-gradient passes through; see this module's docstring."""
    head_rate: float = 1.0
    """Learning rate ≥ 0 of the policy and value heads, relative to α′."""
    averaging: Averaging | None = None
    """Averages over learners that train together; `None`: one learner."""

    @property
    def structure(self) -> UpdateRule:
        """The rule with other numbers, equal for rules that differ in nothing else."""
        optimizer = self.optimizer
        if isinstance(optimizer, RMSProp | Adam) and self.numbers.epsilon is not None:
            optimizer = replace(optimizer, epsilon=1.0)
        return replace(self, numbers=Numbers(), optimizer=optimizer)


class InnerState(NamedTuple):
    """The state of the inner loop."""

    theta: Params
    """θ."""
    optimizer: OptimizerState
    """The inner optimizer's statistics."""


class StopGradientInputs(NamedTuple):
    """Inputs of a pseudo-loss that its gradient treats as constants."""

    heads: Params
    """Parameters of the heads."""
    features: Float[Tensor, "T B F"]
    """`[T, B, F]`: x of o_t."""
    bootstraps: Float[Tensor, "K F"]
    """`[K, F]`: x of the observations that returns bootstrap from."""


def answer_loss(
    rule: UpdateRule,
    heads: Params,
    features: Float[Tensor, "T B F"],
    stopped: StopGradientInputs,
    eta: Params,
    rollout: Rollout,
) -> Float[Tensor, ""]:
    """L^ans of the answer head on the features; bootstraps and the features of o_{t+1} are stop-gradient inputs."""
    answers = rule.network.answer(heads, features)
    bootstraps = rule.network.answer(stopped.heads, stopped.bootstraps)[rollout.bootstrap_slot]
    if rule.task.reads_features:
        following = next_features(stopped.features, stopped.bootstraps, rollout)
        rollout = rollout._replace(next_observations=following)
    return rule.task.checked_loss(answers, bootstraps, eta, rollout)


def next_features(
    features: Float[Tensor, "T B *tail"], bootstraps: Float[Tensor, " K *tail"], rollout: Rollout
) -> Float[Tensor, "T B *tail"]:
    """X of o_{t+1}, or what is computed from it: the next step's, or the final observation's at segment ends.

    Args:
        features: `[T, B, ...]`: x of o_t.
        bootstraps: `[K, ...]`: x of the next observations that `rollout.bootstrap_index` names, which must include the
            final observations of terminated episodes.
        rollout: the rollout.
    """
    of_ends = bootstraps[rollout.bootstrap_slot]
    following = torch.cat([features[1:], of_ends[-1:]])
    ends = rollout.segment_end[(..., *[None] * (features.dim() - 2))]
    return torch.where(ends, of_ends, following)


def main_loss(
    rule: UpdateRule, heads: Params, features: Float[Tensor, "T B F"], stopped: StopGradientInputs, rollout: Rollout
) -> tuple[ActorCriticLoss, Float[Tensor, ""]]:
    """L^RL of the policy and value heads on the features, and the explained variance 1 - Var(G - v) / Var(G).

    Returns, advantages and importance ratios come from the stop-gradient inputs.
    """
    network = rule.network
    bootstraps = network.values(stopped.heads, stopped.bootstraps)[rollout.bootstrap_slot]
    discounts = per_step_discounts(rule.numbers.gamma, rollout.terminated, rollout.rewards.dtype)
    baselines = network.values(stopped.heads, stopped.features)
    log_ratios = _log_ratios(rule, stopped, rollout) if rule.targets.off_policy else None
    inputs = TargetInputs(rollout.rewards, discounts, baselines, bootstraps, rollout.segment_end, log_ratios)
    returns, advantages = rule.targets.targets(inputs, rule.gae_lambda)
    outputs = network.policy_outputs(heads, features, (stopped.heads, stopped.features))
    loss = actor_critic_loss(
        rule.distribution,
        outputs,
        network.values(heads, features),
        rollout.actions,
        returns,
        normalize(advantages) if rule.normalize_advantage else advantages,
        rule.numbers.vf_coef,
        rule.numbers.ent_coef if rollout.entropy_weight is None else rollout.entropy_weight,
    )
    errors = returns - baselines
    explained_variance = 1.0 - errors.var(correction=0) / returns.var(correction=0).clamp(min=1e-8)
    return loss, explained_variance


def _log_ratios(rule: UpdateRule, stopped: StopGradientInputs, rollout: Rollout) -> Float[Tensor, "T B"]:
    """Log π(a|x) - log μ(a|x), with the policy π of the stop-gradient inputs.

    Raises:
        ValueError: the rollout does not tell μ.
    """
    if rollout.behavior_log_probs is None:
        raise ValueError("rollout.behavior_log_probs must be given for off-policy targets, got None")
    outputs = rule.network.policy_outputs(stopped.heads, stopped.features)
    return rule.distribution.log_prob(outputs, rollout.actions) - rollout.behavior_log_probs


def inner_update(
    rule: UpdateRule,
    state: InnerState,
    eta: Params,
    rollout: Rollout,
    learning_rate: Float[Tensor, ""],
    scored: bool = False,
) -> tuple[Any, InnerMetrics]:
    """θ_{k-1} → θ_k, differentiable in θ_{k-1}, the optimizer's statistics and η.

    Args:
        rule: the update rule.
        state: θ_{k-1} and the optimizer's statistics.
        eta: η.
        rollout: batch k.
        learning_rate: α′.
        scored: whether to compute the meta-loss L^RL(θ_{k-1}) too, on the same batch, which is encoded only once. Its
            derivative is `meta_loss_gradient`'s. Both go backward through the encoder as one gradient in its features.

    Returns:
        θ_k and the statistics, an `InnerState`, and metrics. Where `scored`, a pair of that state and L^RL(θ_{k-1})
        stands in place of the state.
    """
    numbers, encoded = rule.numbers, _encode(rule, state.theta, rollout)
    losses = [_meta_loss(rule, main_heads(rule, state.theta), encoded, rollout)] if scored else []
    clipped, metrics = _inner_gradient(rule, encoded, state.theta, eta, rollout)
    if rule.averaging is not None:
        clipped, metrics, losses = over_learners(rule.averaging, clipped, metrics, losses)
    if numbers.max_grad_norm is not None:
        clipped = clip_by_global_norm(clipped, numbers.max_grad_norm)
    own = {} if numbers.epsilon is None else {"epsilon": numbers.epsilon}
    theta, optimizer = rule.optimizer.step(state.theta, clipped, state.optimizer, learning_rate, **own)
    theta = with_own_rates(rule, state.theta, theta)
    encoder, _ = rule.network.split(state.theta)
    after = InnerState(theta, optimizer)
    return (after, *losses) if scored else after, metrics._replace(encoder_step=relative_step(encoder, theta))


def meta_loss_gradient(rule: UpdateRule, theta: Params, rollout: Rollout) -> tuple[Params, Float[Tensor, ""]]:
    """∂L^RL(θ_k)/∂θ_k by name, on a batch generated by θ_k; and the loss.

    In both encoder modes the gradient reaches the encoder, through which η acts on the meta-loss. L^RL is a pseudo-loss
    here too: returns and advantages are constants, so this is the policy and value gradient at θ_k. The gradient has no
    entries for the answer head, which L^RL does not depend on. Of several learners, the loss is their mean; the
    gradient is of the learner's own loss.
    """
    theta = detach(theta)
    encoded = _encode(rule, theta, rollout)

    def own_loss(heads: Params, features: Tensor) -> tuple[Tensor, Tensor]:
        total = _meta_loss(rule, heads, encoded._replace(features=features), rollout)
        return total, total

    gradient = torch.func.grad(own_loss, argnums=(0, 1), has_aux=True)
    (of_heads, of_features), total = gradient(main_heads(rule, theta), encoded.features.detach())
    loss = total.detach() if rule.averaging is None else rule.averaging.means([total.detach()])[0]
    return detach({**encoded.pull_back(of_features)[0], **of_heads}), loss


class _Encoded(NamedTuple):
    """A batch encoded by θ's encoder.

    Features are computed once. Losses use them both as an input to differentiate in and as a stop-gradient input;
    `pull_back` then continues the backward pass into the encoder.
    """

    features: Float[Tensor, "T B F"]
    """`[T, B, F]`: x of o_t."""
    bootstraps: Float[Tensor, "K F"]
    """`[K, F]`: x of the observations that returns bootstrap from."""
    pull_back: Callable[[Tensor], tuple[Params]]
    """The encoder's vector-Jacobian product: maps a gradient in the features to one in the encoder's parameters."""


def _encode(rule: UpdateRule, theta: Params, rollout: Rollout) -> _Encoded:
    encoder, _ = rule.network.split(theta)
    last = map_observations(lambda o: o.flatten(0, 1)[rollout.bootstrap_index], rollout.next_observations)
    bootstraps = rule.network.encode({**theta, **rollout.statistics}, last, batch_dims=1)

    def encode(params: Params) -> Tensor:
        return rule.network.encode({**params, **rollout.statistics}, rollout.observations, training=True)

    if not encoder:  # an encoder without parameters
        return _Encoded(encode(encoder), bootstraps, lambda gradient: ({},))
    features, pull_back, *_ = torch.func.vjp(encode, encoder)
    return _Encoded(features, bootstraps, pull_back)


def _stop_gradient_inputs(encoded: _Encoded, heads: Params, convention: Convention) -> StopGradientInputs:
    """The stop-gradient inputs of pseudo-losses at θ; detached under the surrogate convention."""
    if convention == "exact":
        return StopGradientInputs(heads, encoded.features, encoded.bootstraps)
    return StopGradientInputs(detach(heads), encoded.features.detach(), encoded.bootstraps.detach())


def with_own_rates(rule: UpdateRule, before: Params, after: Params) -> Params:
    """The parameters after a step, with the heads' steps times `head_rate`, and without those of what is frozen."""
    own = {name: before[name] for name in rule.network.frozen}
    if rule.head_rate == 1.0:
        return after | own
    heads = main_heads(rule, before)
    return after | {name: old + rule.head_rate * (after[name] - old) for name, old in heads.items()} | own


def _inner_gradient(
    rule: UpdateRule, encoded: _Encoded, theta: Params, eta: Params, rollout: Rollout
) -> tuple[Params, InnerMetrics]:
    """∇_θ [L^RL + w · L^ans] before clipping, and metrics of it."""
    _, heads = rule.network.split(theta)
    stopped = _stop_gradient_inputs(encoded, heads, rule.convention)

    def main(heads: Params, features: Tensor) -> tuple[Tensor, tuple[ActorCriticLoss, Tensor]]:
        loss, explained_variance = main_loss(rule, heads, features, stopped, rollout)
        return loss.total, (loss, explained_variance)

    def auxiliary(heads: Params, features: Tensor) -> tuple[Tensor, Tensor]:
        loss = answer_loss(rule, heads, features, stopped, eta, rollout)
        return loss, loss

    joint = rule.encoder_mode == "joint"
    main_features = encoded.features if joint else stopped.features
    main_gradients, (loss, explained) = torch.func.grad(main, argnums=(0, 1), has_aux=True)(heads, main_features)
    answer_gradients, answer = torch.func.grad(auxiliary, argnums=(0, 1), has_aux=True)(heads, encoded.features)
    weight, weighted = weighted_answers(rule, main_gradients[1], answer_gradients[1], rollout.auxiliary_coefficient)
    of_heads = {name: gradient + weight * answer_gradients[0][name] for name, gradient in main_gradients[0].items()}
    of_features = weighted + main_gradients[1] if joint else weighted
    total = {**encoded.pull_back(of_features)[0], **of_heads}
    total |= {name: torch.zeros_like(total[name]) for name in rule.network.frozen}
    metrics = InnerMetrics(
        loss=loss.total + weight * answer,
        policy_loss=loss.policy,
        value_loss=loss.value,
        entropy=loss.entropy,
        answer_loss=answer,
        gradient_norm=global_norm(detach(total)),
        explained_variance=explained,
        main_gradient=global_norm({"": main_gradients[1].detach()}),
        auxiliary_gradient=global_norm({"": weighted.detach()}),
    )
    return total, map_tensors(Tensor.detach, metrics)


def weighted_answers(
    rule: UpdateRule,
    main: Float[Tensor, "T B F"],
    auxiliary: Float[Tensor, "T B F"],
    annealed: Float[Tensor, ""] | None,
) -> tuple[Float[Tensor, ""] | float, Float[Tensor, "T B F"]]:
    """The weight of L^ans in the answer head's gradient, and w · ∂L^ans/∂x with a weight for each encoder.

    Args:
        rule: the update rule.
        main: ∂L^RL/∂x.
        auxiliary: ∂L^ans/∂x.
        annealed: c of the batch; `None`: the rule's.
    """
    coefficient = rule.numbers.auxiliary_coefficient if annealed is None else annealed
    if rule.auxiliary_weighting == "fixed":
        return coefficient, coefficient * auxiliary
    surrogate = rule.convention == "surrogate"  # the weights are stop-gradient inputs then
    norms_of = (main.detach(), auxiliary.detach()) if surrogate else (main, auxiliary)
    widths = rule.network.encoder_widths
    by_encoder = zip(*(gradient.split(widths, -1) for gradient in norms_of), strict=True)
    *weights, of_head = auxiliary_weights(coefficient, [*by_encoder, norms_of], rule.averaging)
    weighted = [w * part for w, part in zip(weights, auxiliary.split(widths, -1), strict=True)]
    return of_head, torch.cat(weighted, -1)


def main_heads(rule: UpdateRule, theta: Params) -> Params:
    """The policy and value heads, which L^RL depends on."""
    _, heads = rule.network.split(theta)
    return {name: value for name, value in heads.items() if not name.startswith("answers.")}


def _meta_loss(rule: UpdateRule, heads: Params, encoded: _Encoded, rollout: Rollout) -> Float[Tensor, ""]:
    """L^RL as a pseudo-loss of heads and features, whatever the convention of the updates."""
    stopped = _stop_gradient_inputs(encoded, heads, "surrogate")
    return main_loss(rule, heads, encoded.features, stopped, rollout)[0].total


UpdateFunction = Callable[[InnerState, Params, Any, Any], tuple[Any, Any]]
"""`inner_update` of a rule."""
MetaLossFunction = Callable[[Params, Any], tuple[Params, Tensor]]
"""`meta_loss_gradient` of a rule."""


@final
class MetaLoss:
    """L^RL as a loss of an `InnerLoop`'s state. It brings its own gradient, which is that in θ alone."""

    def __init__(self, function: MetaLossFunction) -> None:
        self._function = function

    def __call__(self, state: InnerState, eta: Params, rollout: Any) -> Tensor:
        return self._function(state.theta, rollout)[1]

    def gradient(self, state: InnerState, eta: Any, rollout: Any) -> LossGradient:
        gradients, loss = self._function(state.theta, rollout)
        of_theta = [gradients.get(name) for name in state.theta]
        return LossGradient(loss, [*of_theta, *(None for _ in flatten(state.optimizer))], [None for _ in flatten(eta)])
