"""PPO's learner against a transcription of the iteration, and its meta-gradient against central differences of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from dgvf_agents.agents.ppo_learner import PPOLearner, PPOSettings
from dgvf_agents.core import ppo
from dgvf_agents.core.inner_update import Numbers
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, RMSProp
from dgvf_agents.core.ppo import Clipping, scan_of
from dgvf_agents.core.tasks import RewardPrediction
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.learner import MetaSettings
from tests.core.metagradient_problem import optimizer_of
from tests.core_oracles import (
    Rule,
    Statistics,
    alive,
    central_difference,
    encode,
    head,
    optimizer_step,
    slow_lambda_returns,
    squared_error,
)
from tests.test_learner import ROLLOUTS
from tests.test_learner import learner as discovery_learner

pytestmark = pytest.mark.usefixtures("double_precision")

L, RATE, GAMMA, LAMBDA, COEFFICIENT, MAX_NORM = 3, 0.05, 0.9, 0.8, 0.7, 0.2
PPO = PPOSettings(batch_size=5, n_epochs=2, clipping=Clipping(0.05, 0.03), answer_lambda=0.6)


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout here would be one chunk."""
    monkeypatch.setattr(ppo, "CHUNK", 5)


def learner(optimizer: Optimizer | None = None, **changes: Any) -> PPOLearner:
    """A learner of five observations, three actions and three questions, the same at every call."""
    meta = {name: changes.pop(name) for name in ("objective", "horizon") if name in changes}
    settings = MetaSettings(L, meta_max_grad_norm=np.inf, meta_skip_norm=np.inf, **meta)
    numbers = Numbers(GAMMA, 0.5, 0.01, COEFFICIENT, MAX_NORM)
    rule = {"optimizer": optimizer or SGD(), "numbers": numbers, "gae_lambda": LAMBDA, "normalize_advantage": True}
    made = discovery_learner(settings=settings, kind=PPOLearner, **{**rule, **changes})
    made.ppo = PPO
    return made


# --- the transcription ------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A rollout as the policy that generated it evaluates it; steps follow each other by environment, then time."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    returns: Tensor

    def rows(self, index: Any) -> Batch:
        return Batch(*(part[index] for part in self))


def by_env(values: Tensor) -> Tensor:
    return values.transpose(0, 1).flatten(0, 1)


def evaluated(theta: Params, rollout: Rollout) -> Batch:
    x, after = encode(theta, rollout.observations), encode(theta, rollout.next_observations)
    values, following = (head(theta, "value", features)[..., 0] for features in (x, after))
    discounts = GAMMA * alive(rollout)
    returns = slow_lambda_returns(rollout.rewards, discounts, values, following, rollout.segment_end, LAMBDA)
    log_probs = torch.log_softmax(head(theta, "policy", x), -1).gather(-1, rollout.actions[..., None])[..., 0]
    return Batch(*(by_env(part) for part in (rollout.observations, rollout.actions, log_probs, values, returns)))


def answer_targets(theta: Params, eta: Params, rollout: Rollout, discount: float | None) -> Tensor:
    x = encode(eta, rollout.next_observations)
    u = torch.arctan(head(eta, "cumulants", x))
    gammas = torch.full_like(u, discount) if discount is not None else torch.sigmoid(head(eta, "discounts", x))
    gammas = gammas * alive(rollout)[..., None]
    answers, after = (
        head(theta, "answers", encode(theta, o)) for o in (rollout.observations, rollout.next_observations)
    )
    each = [
        slow_lambda_returns(
            u[..., i], gammas[..., i], answers[..., i], after[..., i], rollout.segment_end, PPO.answer_lambda
        )
        for i in range(u.shape[-1])
    ]
    return by_env(torch.stack(each, -1))


def ppo_loss(theta: Params, x: Tensor, batch: Batch) -> Tensor:
    log_policy = torch.log_softmax(head(theta, "policy", x), -1)
    advantages = batch.returns - batch.values
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(log_policy.gather(-1, batch.actions[:, None])[:, 0] - batch.log_probs)
    clip, value_clip = PPO.clipping
    assert value_clip is not None
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    v = batch.values + (head(theta, "value", x)[:, 0] - batch.values).clamp(-value_clip, value_clip)
    entropy = -(log_policy.exp() * log_policy).sum(-1)
    return (-surrogate + 0.5 * (batch.returns - v) ** 2 - 0.01 * entropy).mean()


def gradient(theta: Params, batch: Batch, targets: Tensor, joint: bool, relative: bool) -> Params:
    """Of the loss on a minibatch, clipped. The weight of the answers may be relative to the main task's gradient."""
    leaves = {name: value.detach().requires_grad_() for name, value in theta.items()}
    x = encode(leaves, batch.observations[None])[0]
    answers = 0.5 * squared_error(head(leaves, "answers", x)[None], targets[None])
    weight = COEFFICIENT
    if relative:
        main, auxiliary = (
            float(torch.autograd.grad(part, x, retain_graph=True)[0].norm())
            for part in (ppo_loss(leaves, x, batch), answers)
        )
        weight *= main / auxiliary
    loss = ppo_loss(leaves, x if joint else x.detach(), batch) + weight * answers
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    norm = torch.sqrt(sum((g**2).sum() for g in gradients))  # type: ignore[arg-type]
    return {name: g * min(1.0, MAX_NORM / float(norm)) for name, g in zip(theta, gradients, strict=True)}


def orders(seed: int, count: int) -> list[np.ndarray]:
    """The minibatches of an iteration."""
    random = np.random.RandomState(seed)
    epochs = [random.permutation(count) for _ in range(PPO.n_epochs)]
    return [epoch[i : i + PPO.batch_size] for epoch in epochs for i in range(0, count, PPO.batch_size)]


State = tuple[Params, Statistics]


def iteration(
    start: State, rule: Rule, batches: list[tuple[Batch, Tensor]], joint: bool, relative: bool
) -> list[State]:
    """θ and the optimizer's statistics after each step."""
    states = [start]
    for batch, targets in batches:
        theta, statistics = states[-1]
        states.append(optimizer_step(rule, theta, gradient(theta, batch, targets, joint, relative), statistics))
    return states[1:]


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize(
    ("kind", "joint", "learns", "relative"),
    [
        ("sgd", True, False, False),
        ("rmsprop", False, True, False),
        ("rmsprop", True, True, True),
        ("adam", False, False, False),
        ("adam", True, False, True),
    ],
)
def test_meta_gradients_are_central_differences_of_the_iteration(
    kind: str, joint: bool, learns: bool, relative: bool, sums: bool
) -> None:
    rule = Rule(kind, RATE)
    mode: Any = "joint" if joint else "auxiliary"
    objective: Any = "sum" if sums else "end"
    weighting: Any = "gradient-norm" if relative else "fixed"
    changes = {"encoder_mode": mode, "objective": objective, "auxiliary_weighting": weighting}
    tested = learner(optimizer_of(rule), learns=learns, **changes)
    theta, eta, discount = tested.theta, tested.eta, None if learns else 0.9
    np.random.seed(7)  # noqa: NPY002
    tested.step(ROLLOUTS[0], RATE, 0.0)

    batch, targets = evaluated(theta, ROLLOUTS[0]), answer_targets(theta, eta, ROLLOUTS[0], discount)
    indices = orders(7, len(batch.values))
    zeros = {name: torch.zeros_like(value) for name, value in theta.items()}
    steps = [(batch.rows(index), targets[index]) for index in indices]
    start = iteration((theta, Statistics(0, zeros, zeros)), rule, steps[:-L], joint, relative)[-1]
    end, _ = iteration(start, rule, steps[-L:], joint, relative)[-1]
    torch.testing.assert_close(tested.theta, end, rtol=1e-10, atol=1e-12)
    following = evaluated(end, ROLLOUTS[1])

    def meta_loss(eta: Params) -> float:
        """PPO's loss of the following batch after the last steps, or the sum of it after each."""
        asked = answer_targets(theta, eta, ROLLOUTS[0], discount)
        states = iteration(start, rule, [(batch.rows(index), asked[index]) for index in indices[-L:]], joint, relative)
        scored = states if sums else states[-1:]
        return float(sum(ppo_loss(one, encode(one, following.observations[None])[0], following) for one, _ in scored))

    tested.ppo = replace(PPO, answer_lambda=0.1, clipping=Clipping(0.5))  # of the next iteration
    tested.step(ROLLOUTS[1], RATE, 0.0)
    moments = tested.meta_optimizer_state["state"][0]["exp_avg"] / 0.1
    sizes = [tensor.numel() for tensor in eta.values()]
    found = dict(zip(eta, moments.split(sizes), strict=True))
    for name in eta:
        for i in range(0, eta[name].numel(), 3):
            expected = central_difference(meta_loss, eta, name, i, 1e-5)
            assert float(found[name][i]) == pytest.approx(expected, rel=2e-5, abs=1e-10), name
    assert tested.meta_loss is not None
    assert float(tested.meta_loss) == pytest.approx(meta_loss(eta), rel=1e-10)


def test_conventions_agree_where_both_losses_train_the_encoder_with_fixed_weight() -> None:
    def meta_gradient(**changes: Any) -> Tensor:
        tested = learner(RMSProp(0.6, 1e-2), **changes)
        for number, rollout in enumerate(ROLLOUTS[:2]):
            np.random.seed(number)  # noqa: NPY002
            tested.step(rollout, RATE, 0.0)
        return tested.meta_optimizer_state["state"][0]["exp_avg"]

    exact = meta_gradient(encoder_mode="joint", convention="exact")
    torch.testing.assert_close(meta_gradient(encoder_mode="joint", convention="surrogate"), exact)
    exact = meta_gradient(encoder_mode="auxiliary", convention="exact")
    assert not torch.allclose(meta_gradient(encoder_mode="auxiliary", convention="surrogate"), exact)
    myopic = meta_gradient(encoder_mode="auxiliary", convention="exact", horizon="myopic")
    assert not torch.allclose(myopic, exact)


@pytest.mark.parametrize("weighting", ["fixed", "gradient-norm"])
def test_learning_goes_on_from_its_state_bitwise(weighting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(one: PPOLearner, first: int, end: int) -> PPOLearner:
        for i in range(first, end):
            np.random.seed(i)  # noqa: NPY002
            one.ppo = replace(PPO, clipping=Clipping(0.05 + 0.02 * i, 0.03), answer_lambda=0.6 + 0.1 * i)
            one.step(ROLLOUTS[i], RATE, RATE)
        return one

    def new() -> PPOLearner:
        return learner(Adam(), learns=True, auxiliary_weighting=weighting)

    resumed, whole = new(), go_on(new(), 0, 3)
    resumed.set_state(go_on(new(), 0, 2).get_state())
    resumed.set_state(resumed.get_state())  # saved again before it learns
    with monkeypatch.context() as context:  # stopped once it has repeated the unroll
        context.setattr(resumed, "_meta_gradient", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            go_on(resumed, 2, 3)
    resumed.set_state(resumed.get_state())
    assert resumed.unroll_updates == L
    go_on(resumed, 2, 3)
    torch.testing.assert_close(resumed.theta, whole.theta, rtol=0.0, atol=0.0)
    torch.testing.assert_close(resumed.eta, whole.eta, rtol=0.0, atol=0.0)
    assert resumed.meta_updates == whole.meta_updates == 2


def test_an_iteration_ends_before_a_step_that_went_too_far() -> None:
    tested = learner(SGD(), task=RewardPrediction(), encoder_mode="joint")
    tested.ppo = replace(PPO, target_kl=1e-5, n_epochs=50)
    tested.step(ROLLOUTS[0], RATE, 0.0)
    assert tested.kl is not None
    assert float(tested.last.kl) > 1.5e-5
    assert 0 < tested.updates < 50 * 3
    assert tested.epochs == tested.updates // 3 + 1
    discovers = learner(SGD(), encoder_mode="joint")
    discovers.ppo = replace(PPO, target_kl=1e-4, n_epochs=50)
    discovers.step(ROLLOUTS[0], RATE, 0.0)
    assert discovers.updates > L
    assert discovers.unroll_updates == L  # the step that was not taken is none of them


def test_frozen_parameters_stay_and_heads_have_their_rate() -> None:
    def moved(**changes: Any) -> Params:
        one = learner(SGD(), encoder_mode="joint", **changes)
        one.ppo = replace(PPO, n_epochs=1, batch_size=12)
        before = one.theta
        one.step(ROLLOUTS[0], RATE, 0.0)
        return {name: value - before[name] for name, value in one.theta.items()}

    usual, slow = moved(), moved(head_rate=0.25)
    for name, step in usual.items():
        rate = 0.25 if name.startswith(("policy", "value")) else 1.0
        torch.testing.assert_close(slow[name], rate * step)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_a_scan_is_the_lambda_return_with_its_derivative(lambda_: float) -> None:
    rollout = ROLLOUTS[0]
    rewards = rollout.rewards.clone().requires_grad_()
    values, ends = torch.randn(4, 3), torch.randn(4, 3)
    following = torch.where(rollout.segment_end, ends, torch.cat([values[1:], ends[-1:]]))
    discounts = GAMMA * alive(rollout)
    scan = scan_of(rollout.rewards, discounts, following, rollout.segment_end, lambda_)
    expected = slow_lambda_returns(rewards, discounts, values, ends, rollout.segment_end, lambda_)
    torch.testing.assert_close(scan.forward(), expected)
    cotangents = torch.randn(4, 3)
    torch.testing.assert_close(
        scan.backward(cotangents), torch.autograd.grad((expected * cotangents).sum(), rewards)[0]
    )
