"""PPO: targets of a rollout, the gradient of a step on a minibatch, and the gradient of the meta-loss.

    θ_{k+1} = θ_k - α′ Adam(∇_θ [ L^PPO(θ_k) + w · L^ans(θ_k, G(η)) ])           on minibatch k of a rollout

The targets G^y(η) of the answers are λ-returns over the whole rollout, computed once, with the answers of the θ that
generated it. The meta-gradient therefore passes through them alone: from the meta-loss, PPO's loss of the next rollout,
back through the last L steps to G^y, and from there, by the scan's own vector-Jacobian product, to η (docs/ppo.md).

Minibatches are evaluated rollouts `[1, N]`. The conventions are `dgvf_agents.core.inner_update`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from dgvf_agents.core.inner_update import UpdateRule, main_heads, next_features, weighted_answers
from dgvf_agents.core.losses import ActorCriticLoss, regression_loss
from dgvf_agents.core.optimizers import global_norm
from dgvf_agents.core.returns import per_step_discounts
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.core.types import Observations, Params, Rollout, batch_shape, map_observations

CHUNK = 4096
"""Steps that networks evaluate at once where no minibatch says how many."""


class Clipping(NamedTuple):
    """How far a step may move from the policy and values that generated the rollout."""

    policy: float
    """ε > 0: the ratio of probabilities counts up to 1 ± ε."""
    value: float | None = None
    """Largest change > 0 of a value; `None`: not clipped."""


class Scan(NamedTuple):
    """The recurrence of λ-returns: G_t = base_t + trace_t · G_{t+1}."""

    base: Float[Tensor, "T B *tail"]
    """`[T, B, ...]`: c_{t+1} + γ_{t+1} · (1 - λ_t) f_t, where f_t is the estimate at o_{t+1} and λ_t = 0 at ends."""
    trace: Float[Tensor, "T B *tail"]
    """`[T, B, ...]`: γ_{t+1} λ_t."""

    def forward(self) -> Float[Tensor, "T B *tail"]:
        """`[T, B, ...]`: G_t, without a graph."""
        return _scan(self.base.flip(0), self.trace.flip(0)).flip(0)

    def backward(self, cotangents: Float[Tensor, "T B *tail"]) -> Float[Tensor, "T B *tail"]:
        """`[T, B, ...]`: ∂/∂base of the sum of G · `cotangents`: a_t = cotangent_t + trace_{t-1} a_{t-1}."""
        before = torch.cat([torch.zeros_like(self.trace[:1]), self.trace[:-1]])
        return _scan(cotangents, before)


def _scan(addends: Tensor, factors: Tensor) -> Tensor:
    """x_t = addend_t + factor_t · x_{t-1}, with x_{-1} = 0."""
    result = torch.empty_like(addends)
    last = torch.zeros_like(addends[0])
    for addend, factor, out in zip(addends.unbind(), factors.unbind(), result.unbind(), strict=True):
        last = torch.addcmul(addend, factor, last, out=out)
    return result


def scan_of(
    cumulants: Float[Tensor, "T B *tail"],
    discounts: Float[Tensor, "T B *tail"],
    following: Float[Tensor, "T B *tail"],
    segment_end: Bool[Tensor, "T B"],
    lambda_: float,
) -> Scan:
    """The recurrence of the λ-returns of `dgvf_agents.core.returns.lambda_returns`.

    Args:
        cumulants: `[T, B, ...]`: c_{t+1}.
        discounts: `[T, B, ...]`: γ_{t+1}; 0 where an episode terminated.
        following: `[T, B, ...]`: f_t, the estimate at o_{t+1}.
        segment_end: `[T, B]` boolean; true on the last step.
        lambda_: λ in [0, 1].
    """
    continues = (~segment_end).to(cumulants.dtype)
    traces = lambda_ * continues.reshape(continues.shape + (1,) * (cumulants.dim() - continues.dim()))
    return Scan(cumulants + discounts * (1.0 - traces) * following, discounts * traces)


class Evaluation(NamedTuple):
    """A rollout, as the θ that generated it evaluates it. Everything is constant in later steps."""

    rollout: Rollout
    log_probs: Float[Tensor, "T B"]
    """`[T, B]`: log π_old(a_t|x_t)."""
    values: Float[Tensor, "T B"]
    """`[T, B]`: v(x_t)."""
    returns: Float[Tensor, "T B"]
    """`[T, B]`: λ-returns, which values are regressed on."""
    advantages: Float[Tensor, "T B"]
    """`[T, B]`: A_t."""
    following: Float[Tensor, "T B D"]
    """`[T, B, D]`: answers at o_{t+1}."""
    next_inputs: Observations
    """`[T, B, ...]`: what the question network reads of o_{t+1}: observations, or features."""

    @property
    def explained_variance(self) -> Float[Tensor, ""]:
        """1 - Var(G - v) / Var(G)."""
        errors = self.returns - self.values
        return 1.0 - errors.var(correction=0) / self.returns.var(correction=0).clamp(min=1e-8)


@torch.no_grad()
def evaluate(rule: UpdateRule, theta: Params, rollout: Rollout) -> Evaluation:
    """Evaluate a rollout.

    Args:
        rule: the update rule.
        theta: θ that generated the rollout, by name.
        rollout: of T steps.
    """
    network, own = rule.network, {**theta, **rollout.statistics}
    features = _in_chunks(lambda part: network.encode(own, part, batch_dims=1), rollout.observations, 2)
    last = map_observations(lambda o: o.flatten(0, 1)[rollout.bootstrap_index], rollout.next_observations)
    ends = _in_chunks(lambda part: network.encode(own, part, batch_dims=1), last, 1)
    log_probs = rule.distribution.log_prob(network.policy_outputs(theta, features), rollout.actions)
    values = network.values(theta, features)
    following = next_features(values, network.values(theta, ends), rollout)
    discounts = per_step_discounts(float(rule.numbers.gamma), rollout.terminated, values.dtype)
    errors = rollout.rewards + discounts * following - values
    # As Stable-Baselines3 sums them: λ-returns less values would cancel most of their digits.
    advantages = Scan(errors, discounts * rule.gae_lambda * (~rollout.segment_end)).forward()
    answers = next_features(network.answer(theta, features), network.answer(theta, ends), rollout)
    shared = rule.task.reads_features
    inputs = next_features(features, ends, rollout) if shared else rollout.next_observations
    return Evaluation(rollout, log_probs, values, advantages + values, advantages, answers, inputs)


def _in_chunks(function: Any, inputs: Observations, batch_dims: int) -> Tensor:
    """A function of `[N, *obs]` applied to `[*batch, *obs]`, `CHUNK` rows at a time."""
    flat = map_observations(lambda tensor: tensor.flatten(0, batch_dims - 1), inputs)
    shape = batch_shape(inputs, batch_dims)
    return torch.cat([function(part) for part in _chunks(flat, math.prod(shape))]).unflatten(0, shape)


def _chunks(rows: Observations, count: int) -> list[Observations]:
    """At most `CHUNK` rows each."""
    starts = range(0, count, CHUNK)
    return [map_observations(partial(torch.narrow, dim=0, start=i, length=min(CHUNK, count - i)), rows) for i in starts]


class AnswerTargets(NamedTuple):
    """Targets of the answers to D general value functions."""

    targets: Float[Tensor, "T B D"]
    """`[T, B, D]`: G^y_t."""
    scan: Scan
    discounts: Float[Tensor, "T B D"]
    """`[T, B, D]`: γ_{t+1}, 0 where an episode terminated."""
    answer_lambda: float
    """λ."""


@torch.no_grad()
def answer_targets(task: GVFTask, eta: Params, evaluation: Evaluation, lambda_: float) -> AnswerTargets:
    """λ-returns of the questions that η asks.

    Args:
        task: the questions.
        eta: η by name.
        evaluation: of the rollout.
        lambda_: λ in [0, 1].
    """
    rollout = evaluation.rollout
    asked = [task.ask_windows(eta, part) for part in _windows(task, evaluation)]
    shape = (*rollout.rewards.shape, task.num_answers)
    cumulants, discounts = (torch.cat([part[i] for part in asked], 1).reshape(shape) for i in (0, 1))
    discounts = per_step_discounts(discounts, rollout.terminated[..., None], discounts.dtype)
    scan = scan_of(cumulants, discounts, evaluation.following, rollout.segment_end, lambda_)
    return AnswerTargets(scan.forward(), scan, discounts, lambda_)


def _windows(task: GVFTask, evaluation: Evaluation) -> list[Observations]:
    """The question network's inputs, `[1, N, ...]` with at most `CHUNK` steps each."""
    windows = task.windows(evaluation.rollout._replace(next_observations=evaluation.next_inputs))
    flat = map_observations(lambda tensor: tensor.flatten(0, 1), windows)
    chunks = _chunks(flat, evaluation.values.numel())
    return [map_observations(lambda tensor: tensor[None], chunk) for chunk in chunks]


def gradient_in_eta(
    task: GVFTask, eta: Params, evaluation: Evaluation, asked: AnswerTargets, cotangents: Float[Tensor, "T B D"]
) -> Params:
    """The gradient in η of the sum of G^y(η) · `cotangents`, with one chunk of steps in memory at a time."""
    of_cumulants = asked.scan.backward(cotangents)
    total = {name: torch.zeros_like(value) for name, value in eta.items()}
    if task.discount is None:
        rollout = evaluation.rollout
        after = torch.cat([asked.targets[1:], evaluation.following[-1:]])
        traces = asked.answer_lambda * (~rollout.segment_end)[..., None].to(after.dtype)
        value = (1.0 - traces) * evaluation.following + traces * after
        of_discounts = of_cumulants * value * (~rollout.terminated)[..., None]
    start = 0
    for part in _windows(task, evaluation):
        leaves = {name: value.detach().requires_grad_() for name, value in eta.items()}
        with torch.enable_grad():
            cumulants, discounts = task.ask_windows(leaves, part)
        stop = start + cumulants.shape[1]
        outputs, given = [cumulants], [of_cumulants.flatten(0, 1)[None, start:stop]]
        if task.discount is None:
            outputs, given = [cumulants, discounts], [*given, of_discounts.flatten(0, 1)[None, start:stop]]
        gradients = torch.autograd.grad(outputs, list(leaves.values()), given, allow_unused=True)
        for name, gradient in zip(total, gradients, strict=True):
            total[name] = total[name] if gradient is None else total[name] + gradient
        start = stop
    return total


def rows(values: Shaped[Tensor, "T B *tail"], indices: Int[Tensor, " N"]) -> Shaped[Tensor, "1 N *tail"]:
    """`[1, N, ...]`: the steps with these flat indices t·B + b."""
    return values.flatten(0, 1)[indices][None]


def minibatch(evaluation: Evaluation, indices: Int[Tensor, " N"], with_following: bool = False) -> Evaluation:
    """The steps of a rollout with these flat indices t·B + b, as one of `[1, N]`.

    Args:
        evaluation: of the whole rollout.
        indices: `[N]` integer.
        with_following: whether each step is followed by its own next observation; if not, there are none. In either
            case there are no `following` and `next_inputs`.
    """
    rollout = evaluation.rollout
    taken, count = partial(rows, indices=indices), torch.arange(len(indices), device=indices.device)
    others: Any = {name: taken(getattr(rollout, name)) for name in ("actions", "rewards", "terminated", "truncated")}
    steps = rollout._replace(
        observations=map_observations(taken, rollout.observations),
        next_observations=map_observations(taken, rollout.next_observations) if with_following else {},
        bootstrap_index=count,
        bootstrap_slot=count[None],
        **others,
    )
    log_probs, values, returns, advantages = map(taken, evaluation[1:5])
    nothing = evaluation.following.new_zeros((1, len(indices), 0))
    return Evaluation(steps, log_probs, values, returns, advantages, nothing, {})


def clipped_loss(
    rule: UpdateRule,
    heads: Params,
    features: Float[Tensor, "1 N F"],
    held: tuple[Params, Float[Tensor, "1 N F"]],
    batch: Evaluation,
    clipping: Clipping,
) -> tuple[ActorCriticLoss, Float[Tensor, ""], Float[Tensor, ""]]:
    """L^PPO = -min(r A, clip(r, 1 ± ε) A) + c_v (G - v)² - c_H H(π), averaged (Schulman et al. 2017, equation 9).

    It is followed by the last two of `StepMetrics`.

    Args:
        rule: the update rule.
        heads: policy and value heads.
        features: `[1, N, F]`: x of o_t.
        held: heads and features in which the loss is not differentiated, for gSDE.
        batch: of N steps.
        clipping: ε.
    """
    numbers, rollout = rule.numbers, batch.rollout
    outputs, values = rule.network.policy_outputs(heads, features, held), rule.network.values(heads, features)
    advantages = normalized(batch.advantages) if rule.normalize_advantage else batch.advantages
    log_ratio = rule.distribution.log_prob(outputs, rollout.actions) - batch.log_probs
    ratio = torch.exp(log_ratio)
    bounded = torch.clamp(ratio, 1.0 - clipping.policy, 1.0 + clipping.policy)
    policy = -torch.minimum(advantages * ratio, advantages * bounded).mean()
    if clipping.value is not None:
        values = batch.values + torch.clamp(values - batch.values, -clipping.value, clipping.value)
    value = ((batch.returns - values) ** 2).mean()
    entropy = rule.distribution.entropy(outputs, rollout.actions).mean()
    weight = numbers.ent_coef if rollout.entropy_weight is None else rollout.entropy_weight
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).mean()
        clipped = ((ratio - 1.0).abs() > clipping.policy).to(ratio.dtype).mean()
    total = policy + numbers.vf_coef * value - weight * entropy
    return ActorCriticLoss(total, policy, value, entropy), kl, clipped


def normalized(advantages: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """`[T, B]`: with mean 0 and standard deviation 1; a single one as it is."""
    return advantages if advantages.numel() == 1 else (advantages - advantages.mean()) / (advantages.std() + 1e-8)


class StepMetrics(NamedTuple):
    """Metrics of one gradient step, detached scalars."""

    loss: Float[Tensor, ""]
    """L^PPO + w · L^ans."""
    policy_loss: Float[Tensor, ""]
    value_loss: Float[Tensor, ""]
    entropy: Float[Tensor, ""]
    answer_loss: Float[Tensor, ""]
    main_gradient: Float[Tensor, ""]
    """‖∂L^PPO/∂x‖ at the features x; 0 without answers."""
    auxiliary_gradient: Float[Tensor, ""]
    """‖w · ∂L^ans/∂x‖ at the features x."""
    kl: Float[Tensor, ""]
    """Estimate (r - 1) - log r of KL(π_old, π), averaged, with r = π/π_old (Schulman 2020)."""
    clipped: Float[Tensor, ""]
    """Fraction of steps whose ratio is clipped."""


def step_gradient(
    rule: UpdateRule,
    theta: Params,
    targets: Float[Tensor, "1 N D"] | Params,
    batch: Evaluation,
    clipping: Clipping,
    differentiable: bool = False,
) -> tuple[Params, StepMetrics]:
    """∇_θ [L^PPO + w · L^ans] on a minibatch, by name, before it is clipped.

    Args:
        rule: the update rule.
        theta: θ by name; requires gradients.
        targets: `[1, N, D]`: G^y; or η by name, where the task's own loss of single steps is minimized.
        batch: of N steps, with next observations if that loss reads them.
        clipping: ε.
        differentiable: whether the gradient can be differentiated in θ and the targets.
    """
    encoder, heads = rule.network.split(theta)
    of_policy = main_heads(rule, theta)
    rollout = batch.rollout
    features = rule.network.encode({**encoder, **rollout.statistics}, rollout.observations, training=True)
    joint = rule.encoder_mode == "joint"
    if joint and not rule.task.num_answers:  # one backward pass is enough
        loss, *ratios = clipped_loss(rule, heads, features, (heads, features.detach()), batch, clipping)
        gradient = _grad(loss.total, theta, differentiable)
        return gradient, _metrics(loss, *[loss.total.new_zeros(())] * 4, *ratios)
    stopped = features if differentiable and rule.convention == "exact" else features.detach()
    x = _node(features if joint else stopped)
    loss, *ratios = clipped_loss(rule, heads, x, (heads, stopped), batch, clipping)
    of_main = _grad(loss.total, {**of_policy, "": x}, differentiable)
    y = _node(features)
    answer_loss = _answer_loss(rule, theta, y, targets, batch)
    answer_head = {name: value for name, value in heads.items() if name not in of_policy}
    of_answers = _grad(answer_loss, {**answer_head, "": y}, differentiable)
    main, auxiliary = of_main.pop(""), of_answers.pop("")
    weight, weighted = weighted_answers(rule, main, auxiliary, rollout.auxiliary_coefficient)
    of_features = weighted + main if joint else weighted
    gradient = {**of_main, **{name: weight * value for name, value in of_answers.items()}}
    if encoder:
        gradient |= _grad(features, encoder, differentiable, of_features)
    norms = [global_norm({"": part.detach()}) for part in (main, weighted)]
    return {name: gradient[name] for name in theta}, _metrics(loss, answer_loss, weight, *norms, *ratios)


def _node(features: Tensor) -> Tensor:
    """The same features as a tensor of its own to differentiate in."""
    return features.view_as(features) if features.requires_grad else features.detach().requires_grad_()


def _grad(loss: Tensor, inputs: Params, differentiable: bool, cotangent: Tensor | None = None) -> Params:
    """The gradient by name; zero where the loss does not depend on an input."""
    if not loss.requires_grad:
        return {name: torch.zeros_like(value) for name, value in inputs.items()}
    gradients = torch.autograd.grad(
        loss, list(inputs.values()), cotangent, create_graph=differentiable, allow_unused=True
    )
    pairs = zip(inputs.items(), gradients, strict=True)
    return {name: torch.zeros_like(value) if gradient is None else gradient for (name, value), gradient in pairs}


def _answer_loss(
    rule: UpdateRule, theta: Params, features: Tensor, targets: Tensor | Params, batch: Evaluation
) -> Float[Tensor, ""]:
    answers = rule.network.answer(theta, features)
    if isinstance(targets, Tensor):
        return regression_loss(answers, targets)
    bootstraps, steps = torch.zeros_like(answers), batch.rollout
    if rule.task.needs_final_observation:
        with torch.no_grad():
            following = rule.network.encode({**theta, **steps.statistics}, steps.next_observations)
            bootstraps = rule.network.answer(theta, following)
        if rule.task.reads_features:
            steps = steps._replace(next_observations=following)
    return rule.task.checked_loss(answers, bootstraps, targets, steps)


def _metrics(loss: ActorCriticLoss, answers: Tensor, weight: Any, *others: Tensor) -> StepMetrics:
    values = (loss.total + weight * answers, *loss[1:], answers, *others)
    return StepMetrics(*(value.detach() for value in values))


def in_chunks(rule: UpdateRule, evaluation: Evaluation) -> list[Evaluation]:
    """All steps of a rollout in minibatches of at most `CHUNK`; advantages normalized over all, if the rule does so."""
    if rule.normalize_advantage:
        evaluation = evaluation._replace(advantages=normalized(evaluation.advantages))
    steps = torch.arange(evaluation.values.numel(), device=evaluation.values.device)
    return [minibatch(evaluation, indices) for indices in steps.split(CHUNK)]


def meta_loss_gradient(
    rule: UpdateRule, theta: Params, batches: Sequence[Evaluation], clipping: Clipping
) -> tuple[Params, Float[Tensor, ""]]:
    """∂L^PPO(θ_k)/∂θ_k by name on the whole next rollout, which θ_N generated; and the loss.

    Advantages, returns and π_old are constants. In both encoder modes the gradient reaches the encoder. The graph of
    one minibatch is in memory at a time.

    Args:
        rule: the update rule.
        theta: θ_k by name.
        batches: the rollout, as by `in_chunks`.
        clipping: ε.
    """
    rule = replace(rule, normalize_advantage=False)  # `in_chunks` has
    leaves = {name: value.detach().requires_grad_() for name, value in theta.items()}
    encoder, heads = rule.network.split(leaves)
    total, count = batches[0].values.new_zeros(()), sum(batch.values.numel() for batch in batches)
    gradient = {name: torch.zeros_like(value) for name, value in theta.items()}
    for batch in batches:
        with torch.enable_grad():
            own, observations = {**encoder, **batch.rollout.statistics}, batch.rollout.observations
            features = rule.network.encode(own, observations, training=True)
            loss, *_ = clipped_loss(rule, heads, features, (heads, features.detach()), batch, clipping)
            share = loss.total * (batch.values.numel() / count)
            part = _grad(share, leaves, False)
        total, gradient = total + share.detach(), {name: gradient[name] + part[name] for name in gradient}
    return gradient, total
