"""PPO's meta-gradient against a transcription in JAX, differentiated as a whole: η, targets, L steps of Adam, loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dgvf_agents.core.optimizers import Adam
from dgvf_agents.core.types import Params, Rollout
from tests.agents.test_ppo_learner import COEFFICIENT, GAMMA, LAMBDA, MAX_NORM, PPO, RATE, ROLLOUTS, L, learner, orders

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = [pytest.mark.usefixtures("double_precision_in_jax"), pytest.mark.slow]  # JAX takes a minute
BETA1, BETA2, EPSILON = 0.7, 0.8, 1e-3


def arrays(params: Params) -> dict[str, Any]:
    return {name: jnp.asarray(value.numpy()) for name, value in params.items()}


def linear(params: Any, name: str, x: Any) -> Any:
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def features(params: Any, observations: Any) -> Any:
    return jax.nn.relu(linear(params, "encoder.layers.0", observations))


def lambda_returns(rewards: Any, discounts: Any, following: Any, ends: Any, trace: float) -> Any:
    """Backwards in time: G_t = r_t + γ_t ((1 - λ_t) v_{t+1} + λ_t G_{t+1}), λ_t = 0 at the end of a segment."""
    after, result = following[-1], []
    for t in reversed(range(len(rewards))):
        kept = trace * (1.0 - ends[t])
        kept = kept.reshape(kept.shape + (1,) * (rewards[t].ndim - kept.ndim))
        after = rewards[t] + discounts[t] * ((1.0 - kept) * following[t] + kept * after)
        result.append(after)
    return jnp.stack(result[::-1])


def flat(values: Any) -> Any:
    return jnp.swapaxes(values, 0, 1).reshape(-1, *values.shape[2:])


class Batch:
    """A rollout as θ, which generated it, evaluates it."""

    def __init__(self, theta: Any, rollout: Rollout) -> None:
        given = {name: np.asarray(getattr(rollout, name)) for name in ("observations", "next_observations", "rewards")}
        self.seen, self.next, rewards = (jnp.asarray(given[name]) for name in given)
        self.alive = 1.0 - jnp.asarray(rollout.terminated.numpy(), float)
        self.ends = jnp.asarray(rollout.segment_end.numpy(), float)
        self.values, following = (linear(theta, "value", features(theta, o))[..., 0] for o in (self.seen, self.next))
        self.returns = lambda_returns(rewards, GAMMA * self.alive, following, self.ends, LAMBDA)
        self.actions = jnp.asarray(rollout.actions.numpy())
        self.answers_after = linear(theta, "answers", features(theta, self.next))
        self.log_probs = self.log_policy(theta, self.seen, self.actions)[1]

    @staticmethod
    def log_policy(theta: Any, seen: Any, actions: Any) -> tuple[Any, Any]:
        every = jax.nn.log_softmax(linear(theta, "policy", features(theta, seen)))
        return every, jnp.take_along_axis(every, actions[..., None], -1)[..., 0]

    def targets(self, eta: Any, learns: bool) -> Any:
        x = features(eta, self.next)
        cumulants = jnp.arctan(linear(eta, "cumulants", x))
        discounts = jax.nn.sigmoid(linear(eta, "discounts", x)) if learns else jnp.full_like(cumulants, 0.9)
        discounts = discounts * self.alive[..., None]
        return flat(lambda_returns(cumulants, discounts, self.answers_after, self.ends, PPO.answer_lambda))

    def loss(self, theta: Any, index: Any) -> Any:
        """L^PPO of a minibatch."""
        seen, actions, old, values, returns = (
            flat(part)[index] for part in (self.seen, self.actions, self.log_probs, self.values, self.returns)
        )
        every, chosen = self.log_policy(theta, seen, actions)
        advantages = returns - values
        advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
        ratio, (clip, value_clip) = jnp.exp(chosen - old), PPO.clipping
        surrogate = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - clip, 1 + clip) * advantages)
        v = linear(theta, "value", features(theta, seen))[:, 0]
        v = values + jnp.clip(v - values, -value_clip, value_clip)
        entropy = -(jnp.exp(every) * every).sum(-1)
        return (-surrogate + 0.5 * (returns - v) ** 2 - 0.01 * entropy).mean()


def adam_step(state: Any, batch: Batch, targets: Any, index: Any, joint: bool) -> Any:
    theta, first, second, n = state

    def answer_loss(theta: Any) -> Any:
        answers = linear(theta, "answers", features(theta, flat(batch.seen)[index]))
        return COEFFICIENT * 0.5 * ((targets[index] - answers) ** 2).sum() / len(index)

    # The gradient of the heads depends on the encoder, whichever loss trains that one.
    trained = theta if joint else {name: value for name, value in theta.items() if not name.startswith("encoder.")}
    of_main = jax.grad(lambda own: batch.loss({**theta, **own}, index))(trained)
    gradient = {name: value + of_main.get(name, 0.0) for name, value in jax.grad(answer_loss)(theta).items()}
    norm = jnp.sqrt(sum((value**2).sum() for value in gradient.values()))
    gradient = {name: value * jnp.minimum(1.0, MAX_NORM / norm) for name, value in gradient.items()}
    first = {name: BETA1 * first[name] + (1 - BETA1) * value for name, value in gradient.items()}
    second = {name: BETA2 * second[name] + (1 - BETA2) * value**2 for name, value in gradient.items()}
    unbiased = {name: jnp.maximum(second[name] / (1 - BETA2 ** (n + 1)), 1e-300) for name in theta}
    corrected = {name: jnp.sqrt(unbiased[name]) + EPSILON for name in theta}
    theta = {name: theta[name] - RATE * first[name] / (1 - BETA1 ** (n + 1)) / corrected[name] for name in theta}
    return theta, first, second, n + 1


@pytest.mark.parametrize(("joint", "learns", "sums"), [(True, True, True), (False, False, False), (False, True, True)])
def test_meta_gradients_are_those_of_jax(joint: bool, learns: bool, sums: bool) -> None:
    mode: Any = "joint" if joint else "auxiliary"
    objective: Any = "sum" if sums else "end"
    adam = Adam(BETA1, BETA2, EPSILON)
    tested = learner(adam, learns=learns, encoder_mode=mode, objective=objective)
    theta, eta = arrays(tested.theta), arrays(tested.eta)
    np.random.seed(7)  # noqa: NPY002
    tested.step(ROLLOUTS[0], RATE, 0.0)

    batch = Batch(theta, ROLLOUTS[0])
    zeros = {name: jnp.zeros_like(value) for name, value in theta.items()}
    state, indices = (theta, zeros, zeros, 0), orders(7, batch.values.size)
    for index in indices[:-L]:
        state = adam_step(state, batch, batch.targets(eta, learns), index, joint)

    def steps(eta: Any) -> list[Any]:
        states, targets = [state], batch.targets(eta, learns)
        for index in indices[-L:]:
            states.append(adam_step(states[-1], batch, targets, index, joint))
        return [one[0] for one in states[1:]]

    last = steps(eta)[-1]
    for name, value in tested.theta.items():
        np.testing.assert_allclose(value.numpy(), last[name], rtol=1e-9, atol=1e-12)
    following = Batch(last, ROLLOUTS[1])
    everything = np.arange(following.values.size)

    def meta_loss(eta: Any) -> Any:
        scored = steps(eta) if sums else steps(eta)[-1:]
        return sum(following.loss(one, everything) for one in scored)

    value, gradient = jax.value_and_grad(meta_loss)(eta)
    tested.step(ROLLOUTS[1], RATE, 0.0)
    found = tested.meta_optimizer_state["state"][0]["exp_avg"] / 0.1
    expected = np.concatenate([np.asarray(gradient[name]).ravel() for name in tested.eta])
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-9, atol=1e-12)
    assert float(tested.meta_loss) == pytest.approx(float(value), rel=1e-10)
