"""The inner update against the transcription, its metrics, and zero gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import (
    InnerMetrics,
    InnerState,
    MetaLoss,
    inner_update,
    meta_loss_gradient,
)
from dgvf_agents.core.networks import AgentNetwork, MLPEncoder
from dgvf_agents.core.tasks import AuxiliaryTask, NoTask, PixelControl, RewardPrediction
from dgvf_agents.core.types import Params, Rollout
from tests.core.metagradient_problem import (
    ACTIONS,
    RULES,
    TASKS,
    Case,
    algorithm,
    computed,
    crossed,
    flat,
    learning_rate,
    problem,
    rule_of,
    state_of,
    unmoved,
    with_numbers,
)
from tests.core_oracles import encode, head, slow_returns
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")


# --- the inner update -------------------------------------------------------------------------------------------------


@crossed(task=TASKS, encoder_mode=("auxiliary", "joint"), optimizer=RULES, max_gradient_norm=(None, 0.3))
def test_inner_updates_follow_the_transcription(case: Case) -> None:
    given, slow, rule, state = problem(case.task), algorithm(case), rule_of(case), state_of(case)
    expected, _ = slow.trajectory(given.theta, given.statistics(case.optimizer), given.eta, given.rollouts)
    for theta, rollout, following in zip(expected, given.rollouts, given.rollouts[1:], strict=False):
        state, _ = inner_update(rule, state, given.eta, rollout, learning_rate(case))
        torch.testing.assert_close(state.theta, theta, rtol=1e-12, atol=1e-12)
        scored, loss = meta_loss_gradient(rule, state.theta, following)
        whole = slow.meta_loss_gradient(theta, following)
        torch.testing.assert_close(scored, {k: whole[k] for k in scored}, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(loss, slow.meta_loss(theta, following))
        assert not any(whole[k].any() for k in set(whole) - set(scored))


@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_the_meta_loss_reaches_encoder_policy_and_value_but_not_the_answers(encoder_mode: str) -> None:
    case = Case(encoder_mode=encoder_mode)
    gradients, _ = meta_loss_gradient(rule_of(case), problem(case.task).theta, problem(case.task).rollouts[1])
    assert {name.split(".")[0] for name, g in gradients.items() if g.any()} == {"encoder", "policy", "value"}
    assert not any(name.startswith("answers.") for name in gradients)


@pytest.mark.parametrize("weighting", ["fixed", "gradient-norm"])
def test_metrics(weighting: str) -> None:
    case = Case(encoder_mode="joint", max_gradient_norm=0.1, weighting=weighting)
    given, slow, rollout = problem(case.task), algorithm(case), problem(case.task).rollouts[0]
    after, metrics = inner_update(rule_of(case), state_of(case), given.eta, rollout, learning_rate(case))

    def encoder(theta: Params) -> Params:
        return {name: value for name, value in theta.items() if name.startswith("encoder.")}

    step = (flat(encoder(after.theta)) - flat(encoder(given.theta))).norm()
    stopped = slow.stop_gradient_inputs(given.theta, rollout, given.eta)
    gradient = slow.inner_gradient(given.theta, stopped, given.eta, rollout, create_graph=False)
    main, auxiliary = slow.feature_gradients(given.theta, stopped, given.eta, rollout)
    discounts = slow.discount * (1.0 - rollout.terminated.double())
    returns = slow_returns(rollout.rewards, discounts, stopped.next_values, rollout.segment_end)
    log_pi = torch.log_softmax(head(given.theta, "policy", stopped.features), -1)
    weight = slow.auxiliary_coefficient if stopped.weight is None else stopped.weight
    expected = InnerMetrics(
        loss=slow.inner_loss(given.theta, stopped, given.eta, rollout),
        policy_loss=-((returns - stopped.values) * log_pi.gather(-1, rollout.actions[..., None])[..., 0]).mean(),
        value_loss=((returns - stopped.values) ** 2).mean(),
        entropy=-(log_pi.exp() * log_pi).sum(-1).mean(),
        answer_loss=slow.answer_loss(
            head(given.theta, "answers", stopped.features), stopped.next_answers, given.eta, rollout
        ),
        gradient_norm=flat(gradient).norm(),
        explained_variance=1 - (returns - stopped.values).var() / returns.var(),
        main_gradient=main.norm(),
        auxiliary_gradient=weight * auxiliary.norm(),
        encoder_step=step / flat(encoder(given.theta)).norm(),
    )
    torch.testing.assert_close(metrics, expected)
    assert metrics.gradient_norm > 0.1
    assert not any(metric.requires_grad for metric in metrics)


def test_a_single_step_of_a_single_environment() -> None:
    """Where nothing varies there is no variance, and no warning about it."""
    case, given = Case(), problem("hand_set_discount")
    one = random_rollout(0, steps=3, num_envs=1, ends=False)
    one = Rollout(*(part[-1:] for part in one[:6]), torch.tensor([0]), torch.tensor([[0]]))
    state, metrics = inner_update(rule_of(case), state_of(case), given.eta, one, learning_rate(case))
    assert all(value.isfinite().all() for value in (*state.theta.values(), *metrics))


@crossed(optimizer=RULES, storage=("graph", "recompute"))
def test_arguments_are_left_as_they_are(case: Case) -> None:
    given, state = problem(case.task), state_of(case)
    arguments = (state, given.eta, given.rollouts)
    before = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
    rule = rule_of(case)
    inner_update(rule, state, given.eta, given.rollouts[0], learning_rate(case))
    meta_loss_gradient(rule, state.theta, given.rollouts[1])
    computed(case, rule, state)
    tensors, copies = (
        [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
        for tree in (arguments, before)
    )
    torch.testing.assert_close(tensors, copies, rtol=0, atol=0)
    assert not any(t.requires_grad or t.grad is not None for t in tensors)


# --- where η has no part ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [NoTask(), RewardPrediction(), PixelControl(ACTIONS, grid=2, scale=1.0)])
@pytest.mark.parametrize("horizon", ["unrolled", "myopic"])
@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_tasks_without_meta_parameters_have_an_empty_meta_gradient(
    task: AuxiliaryTask, horizon: str, storage: str
) -> None:
    assert task.initial_meta_params() == {}
    assert not task.discovers
    case = Case(task="pixel_control", optimizer="sgd", horizon=horizon, storage=storage)
    encoder = MLPEncoder(16, (6,))
    network = AgentNetwork(encoder, encoder.features, ACTIONS, task.num_answers)
    rule = replace(rule_of(case), network=network, task=task)
    assert computed(case, rule, InnerState(network.params(), {}), eta={}) == {}


# --- zero gradients ---------------------------------------------------------------------------------------------------


def with_theta(case: Case, **values: float) -> InnerState:
    """The problem's parameters, constant where a name starts with one of these words, and initial statistics."""
    theta = {
        name: next((torch.full_like(p, value) for word, value in values.items() if name.startswith(word)), p)
        for name, p in problem(case.task).theta.items()
    }
    return InnerState(theta, rule_of(case).optimizer.init(theta))


zero_cases = crossed(
    task=("hand_set_discount", "learned_discounts"),
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=RULES,
    storage=("graph", "recompute"),
    max_gradient_norm=(None, 0.3),
)


@zero_cases
def test_finite_with_dead_units(case: Case) -> None:
    """No unit of the encoder is active, so that no gradient passes it, and Adam's second moment is zero at first."""
    state = with_theta(case)
    for name, p in state.theta.items():
        if name.startswith("encoder.") and name.endswith(".bias"):
            state.theta[name] = torch.full_like(p, -100.0)
    given, rule = problem(case.task), rule_of(case)
    assert not encode(state.theta, given.rollouts[0].observations).any()
    after, _ = inner_update(rule, state, given.eta, given.rollouts[0], learning_rate(case))
    assert unmoved(state.theta, after.theta) == {"encoder"}
    gradient = flat(computed(case, rule, state))
    assert gradient.isfinite().all()
    # the answers' biases still move, which reaches the rest through the norm that all gradients are divided by
    assert bool(gradient.any()) == (case.max_gradient_norm is not None)


@zero_cases
def test_finite_where_the_whole_inner_gradient_is_zero(case: Case) -> None:
    """No advantages, no entropy bonus, no answer loss: the gradient's norm, which clipping divides by, is zero."""
    rule = with_numbers(rule_of(case), vf_coef=0.5, ent_coef=0.0, auxiliary_coefficient=0.0)
    state, given = with_theta(case, value=0.0), problem(case.task)
    batches = [rollout._replace(rewards=torch.zeros_like(rollout.rewards)) for rollout in given.rollouts[:3]]
    after, metrics = inner_update(rule, state, given.eta, batches[0], learning_rate(case))
    assert metrics.gradient_norm == 0
    assert unmoved(state.theta, after.theta) == {"encoder", "policy", "value", "answers"}
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    # scored on rewards, so that something comes back through the zero gradients
    loop = InnerLoop(state, given.eta, storage=case.storage)  # type: ignore[arg-type]
    for k in range(2):
        loop.step(update, batches[k], learning_rate(case))
        loop.add_loss(MetaLoss(meta_loss), given.rollouts[k + 1])
    assert flat(loop.gradient()).isfinite().all()
