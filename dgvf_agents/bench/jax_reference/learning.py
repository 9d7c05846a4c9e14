"""Discovered GVFs with auxiliary-only encoder updates in JAX: losses, inner update, unroll and meta-update.

The functions are those of `dgvf_agents.core` with the settings of the gridworld presets: exact convention, summed
objective, RMSProp in PyTorch's convention. Parameters have the names that they have there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm

Params = dict[str, Array]
LAYERS = "encoder.extractor.encoder.layers"


class Settings(NamedTuple):
    """The numbers of the algorithm, named as in `UpdateRule` and `MetaSettings`."""

    discount: float
    question_discount: float
    value_weight: float
    entropy_weight: float
    answer_weight: float
    decay: float
    epsilon: float
    learning_rate: float
    meta_learning_rate: float
    meta_epsilon: float
    max_norm: float
    skip_norm: float
    unroll_length: int
    n_steps: int

    @classmethod
    def of(cls, model: DiscoveryAlgorithm) -> Settings:
        """Those of a model."""
        rule, meta = model.learner.functions.rule, model.learner.settings
        optimizer: Any = rule.optimizer
        return cls(
            discount=rule.discount,
            question_discount=float(model.question_discount or 0.0),
            value_weight=rule.weights.value,
            entropy_weight=float(model.ent_coef),
            answer_weight=rule.auxiliary_coefficient,
            decay=optimizer.decay,
            epsilon=optimizer.epsilon,
            learning_rate=float(model.learning_rate),  # type: ignore[arg-type]
            meta_learning_rate=float(model.meta_learning_rate),  # type: ignore[arg-type]
            meta_epsilon=model.learner.meta_epsilon,
            max_norm=meta.max_grad_norm,
            skip_norm=meta.skip_norm,
            unroll_length=meta.unroll_length,
            n_steps=model.n_steps,
        )


class Batch(NamedTuple):
    """T steps of B environments: the fields of `Rollout` that experience decides."""

    observations: Float[Array, "T B *obs"]
    actions: Int[Array, "T B"]
    rewards: Float[Array, "T B"]
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    next_observations: Float[Array, "T B *obs"]


class Inner(NamedTuple):
    """θ and RMSProp's second moments."""

    theta: Params
    moments: Params


class Adam(NamedTuple):
    """The statistics of Adam on η."""

    steps: Float[Array, ""]
    first: Params
    second: Params


class StopGradientInputs(NamedTuple):
    """Inputs that an inner gradient treats as constants; the meta-gradient does not."""

    heads: Params
    features: Float[Array, "T B F"]
    bootstraps: Float[Array, "2 B F"]


def linear(params: Params, name: str, x: Float[Array, "*batch I"]) -> Float[Array, "*batch O"]:
    """W x + b."""
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def convolution(params: Params, name: str, x: Float[Array, "N C H W"]) -> Float[Array, "N O h w"]:
    """Without padding, stride 1."""
    return jax.lax.conv(x, params[f"{name}.weight"], (1, 1), "VALID") + params[f"{name}.bias"][:, None, None]


def encode(params: Params, observations: Float[Array, "T B *obs"]) -> Float[Array, "T B F"]:
    """X, by the networks of `PaperMlpPolicy` (points) or `CnnPolicy` (planes), or the question network's like them."""
    x, planes = observations.reshape(-1, *observations.shape[2:]), observations.ndim == 5
    x, layer = (x, convolution) if planes else (2.0 * x - 1.0, linear)
    for name in ("0", "2"):
        x = jax.nn.relu(layer(params, f"{LAYERS}.{name}", x))
    if planes:
        x = jax.nn.relu(linear(params, f"{LAYERS}.5", x.reshape(len(x), -1)))
    return x.reshape(*observations.shape[:2], -1)


def split(theta: Params) -> tuple[Params, Params]:
    """The parameters of encoder and heads."""
    encoder = {name: value for name, value in theta.items() if name.startswith("encoder.")}
    return encoder, {name: value for name, value in theta.items() if name not in encoder}


def act(theta: Params, observations: Float[Array, " B *obs"], noise: Float[Array, " B"]) -> Int[Array, " B"]:
    """Actions by inverse transform sampling."""
    logits = linear(theta, "action_net", encode(theta, observations[None])[0])
    return (noise[:, None] >= jnp.cumsum(jax.nn.softmax(logits), -1)[:, :-1]).sum(-1)


def bootstrap_observations(batch: Batch) -> Float[Array, "2 B *obs"]:
    """The last next observation of every environment, and that of its first truncated step.

    An environment has at most one truncated step in a batch, because the time limit is longer.
    """
    early = jnp.argmax(batch.truncated, 0)
    return jnp.stack([batch.next_observations[-1], batch.next_observations[early, jnp.arange(len(early))]])


def returns(
    cumulants: Float[Array, "T B *tail"], discount: float, bootstraps: Float[Array, "2 B *tail"], batch: Batch
) -> Float[Array, "T B *tail"]:
    """Discounted sums up to the end of an episode or of the batch, with a bootstrap there unless it terminated."""
    tail = (1,) * (cumulants.ndim - 2)
    truncated, alive = (mask.reshape(*mask.shape, *tail) for mask in (batch.truncated, ~batch.terminated))
    g, found = bootstraps[0], []
    for t in reversed(range(len(cumulants))):
        g = cumulants[t] + discount * alive[t] * jnp.where(truncated[t], bootstraps[1], g)
        found.append(g)
    return jnp.stack(found[::-1])


def main_loss(
    s: Settings, heads: Params, features: Float[Array, "T B F"], stopped: StopGradientInputs, batch: Batch
) -> Float[Array, ""]:
    """L^RL."""
    bootstraps = linear(stopped.heads, "value_net", stopped.bootstraps)[..., 0]
    targets = returns(batch.rewards, s.discount, bootstraps, batch)
    advantages = targets - linear(stopped.heads, "value_net", stopped.features)[..., 0]
    log_pi = jax.nn.log_softmax(linear(heads, "action_net", features))
    taken = (log_pi * jax.nn.one_hot(batch.actions, log_pi.shape[-1], dtype=log_pi.dtype)).sum(-1)
    errors = targets - linear(heads, "value_net", features)[..., 0]
    entropy = -(jnp.exp(log_pi) * log_pi).sum(-1)
    return (-advantages * taken + s.value_weight * errors**2 - s.entropy_weight * entropy).mean()


def answer_loss(
    s: Settings, heads: Params, features: Float[Array, "T B F"], stopped: StopGradientInputs, eta: Params, batch: Batch
) -> Float[Array, ""]:
    """L^ans."""
    cumulants = jnp.arctan(linear(eta, "cumulants", encode(eta, batch.next_observations)))
    targets = returns(cumulants, s.question_discount, linear(stopped.heads, "answers", stopped.bootstraps), batch)
    return 0.5 * ((targets - linear(heads, "answers", features)) ** 2).mean((0, 1)).sum()


def meta_loss(s: Settings, theta: Params, batch: Batch) -> Float[Array, ""]:
    """L^RL of θ_k on batch k + 1; returns and advantages are constants."""
    encoder, heads = split(theta)
    features, bootstraps = encode(encoder, batch.observations), encode(encoder, bootstrap_observations(batch))
    stopped = jax.lax.stop_gradient(StopGradientInputs(heads, features, bootstraps))
    return main_loss(s, heads, features, stopped, batch)


def inner_update(s: Settings, inner: Inner, eta: Params, batch: Batch) -> Inner:
    """θ_{k-1} → θ_k, differentiable in θ_{k-1}, the second moments and η."""
    encoder, heads = split(inner.theta)
    features, pull_back = jax.vjp(lambda params: encode(params, batch.observations), encoder)
    stopped = StopGradientInputs(heads, features, encode(encoder, bootstrap_observations(batch)))

    def loss(heads: Params, features: Array) -> Array:
        answers = answer_loss(s, heads, features, stopped, eta, batch)
        return main_loss(s, heads, stopped.features, stopped, batch) + s.answer_weight * answers

    of_heads, of_features = jax.grad(loss, (0, 1))(heads, features)
    gradients = {**of_heads, **pull_back(of_features)[0]}
    moments = {k: s.decay * m + (1.0 - s.decay) * gradients[k] ** 2 for k, m in inner.moments.items()}
    step = {k: s.learning_rate * g * jax.lax.rsqrt(moments[k] + s.epsilon) for k, g in gradients.items()}
    return Inner({k: value - step[k] for k, value in inner.theta.items()}, moments)


def unroll(
    s: Settings,
    eta: Params,
    inner: Inner,
    first: Batch,
    collect: Callable[[Params, Any], tuple[Batch, Any]],
    experience: Any,
) -> tuple[Float[Array, ""], tuple[Inner, Batch, Any]]:
    """L inner updates.

    Args:
        s: the settings.
        eta: η.
        inner: θ_0 and the second moments.
        first: batch 1.
        collect: the next batch, under the given θ, and what `collect` continues from.
        experience: what `collect` starts from.

    Returns:
        the meta-loss Σ_k L^RL(θ_k); θ_L and its second moments, batch L + 1, and the last of `collect`.
    """

    def update(carry: tuple[Inner, Batch, Any], k: Array) -> tuple[tuple[Inner, Batch, Any], Array]:
        inner, batch, experience = carry
        loss = jnp.where(k > 0, meta_loss(s, inner.theta, batch), 0.0)
        inner = inner_update(s, inner, eta, batch)
        return (inner, *collect(jax.lax.stop_gradient(inner.theta), experience)), loss

    last, losses = jax.lax.scan(update, (inner, first, experience), jnp.arange(s.unroll_length))
    return losses.sum() + meta_loss(s, last[0].theta, last[1]), last


def meta_update(s: Settings, eta: Params, gradient: Params, adam: Adam) -> tuple[Params, Adam]:
    """One step of Adam along the clipped meta-gradient; none along one that is too large or not finite."""
    norm = jnp.sqrt(sum((g**2).sum() for g in gradient.values()))
    gradient = {k: g * jnp.where(norm > s.max_norm, s.max_norm / norm, 1.0) for k, g in gradient.items()}
    steps = adam.steps + 1.0
    first = {k: 0.9 * m + 0.1 * gradient[k] for k, m in adam.first.items()}
    second = {k: 0.999 * v + 0.001 * gradient[k] ** 2 for k, v in adam.second.items()}
    rate, root = s.meta_learning_rate / (1.0 - 0.9**steps), jnp.sqrt(1.0 - 0.999**steps)
    new = {k: p - rate * first[k] / (jnp.sqrt(second[k]) / root + s.meta_epsilon) for k, p in eta.items()}
    return jax.tree.map(
        lambda after, before: jnp.where(norm <= s.skip_norm, after, before),
        (new, Adam(steps, first, second)),
        (eta, adam),
    )
