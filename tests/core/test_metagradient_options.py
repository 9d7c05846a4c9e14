"""Options that the main tests of the meta-gradient leave at their defaults, and errors."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import (
    InnerState,
    MetaLoss,
    UpdateRule,
    inner_update,
    meta_gradient,
    meta_loss_gradient,
)
from dgvf_agents.core.networks import AgentNetwork
from dgvf_agents.core.tasks import DiscoveredGVFs
from dgvf_agents.core.types import Params, Rollout
from tests.core.metagradient_problem import (
    ACTIONS,
    QUESTIONS,
    Case,
    ExploringNetwork,
    algorithm,
    computed,
    crossed,
    flat,
    learning_rate,
    problem,
    problem_of,
    relative_error,
    rule_of,
    state_of,
)

pytestmark = pytest.mark.usefixtures("double_precision")


# --- options, against the transcription with the same options ---------------------------------------------------------


def gradient_of(rule: UpdateRule, case: Case, rollouts: tuple[Rollout, ...]) -> Params:
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    return meta_gradient(update, meta_loss, state_of(case), problem_of(case).eta, rollouts, learning_rate(case))


def transcribed(case: Case, rollouts: tuple[Rollout, ...], **options: Any) -> Params:
    slow, given = replace(algorithm(case), **options), problem_of(case)
    return slow.meta_gradients(given.theta, given.statistics(case.optimizer), given.eta, rollouts)["sum"]


@crossed(convention=("exact", "surrogate"), encoder_mode=("auxiliary", "joint"), bounds=(None, (1.6, 0.7)))
@pytest.mark.parametrize(
    "options",
    [
        {"gae_lambda": 0.0},
        {"gae_lambda": 0.7},
        {"normalize_advantage": True},
        {"normalize_advantage": True, "gae_lambda": 0.9},
        {"head_rate": 0.0},
        {"head_rate": 0.3},
        {"head_rate": 2.0},
    ],
    ids=str,
)
def test_options_of_the_rule(case: Case, options: dict[str, Any]) -> None:
    rollouts = problem_of(case).rollouts[:3]
    gradient = gradient_of(replace(rule_of(case), **options), case, rollouts)
    assert relative_error(gradient, transcribed(case, rollouts, **options)) < 1e-10


@crossed(convention=("exact", "surrogate"), weighting=("fixed", "gradient-norm"))
def test_a_batch_may_bring_its_own_coefficients(case: Case) -> None:
    rollouts = tuple(
        batch._replace(entropy_weight=torch.tensor(0.1 * k), auxiliary_coefficient=torch.tensor(0.2 * (k + 1)))
        for k, batch in enumerate(problem_of(case).rollouts[:3])
    )
    assert relative_error(gradient_of(rule_of(case), case, rollouts), transcribed(case, rollouts)) < 1e-10


@crossed(convention=("exact", "surrogate"), encoder_mode=("auxiliary", "joint"))
def test_networks_are_passed_statistics_stop_gradient_inputs_and_training_mode(case: Case) -> None:
    rollouts = tuple(
        batch._replace(statistics={"encoder.shift": torch.tensor(0.2 * (k + 1))})
        for k, batch in enumerate(problem(case.task).rollouts[:3])
    )
    rule = replace(rule_of(case), network=ExploringNetwork(problem(case.task).network))
    gradient = gradient_of(rule, case, rollouts)
    # the questions see observations without a shift
    shifted = tuple(b._replace(observations=b.observations + b.statistics["encoder.shift"]) for b in rollouts)
    assert relative_error(gradient, transcribed(case, shifted, exploring=True)) < 1e-10


@pytest.mark.parametrize("convention", ["exact", "surrogate"])
def test_encoders_without_parameters_stay_out_of_gradients(convention: str) -> None:
    """Observations are the features then: θ is the heads, and η reaches the main task through nothing."""
    case = Case(optimizer="sgd", convention=convention)
    given = problem(case.task)
    with torch.random.fork_rng():
        network = AgentNetwork(torch.nn.Flatten(), 5, ACTIONS, QUESTIONS)
    rule = replace(rule_of(case), network=network)
    start, rollout = InnerState(network.params(), {}), given.rollouts[0]
    state, _ = inner_update(rule, start, given.eta, rollout, learning_rate(case))
    expected, _ = algorithm(case).update(start.theta, given.statistics("sgd"), given.eta, rollout)
    torch.testing.assert_close(state.theta, expected)
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    gradient = meta_gradient(update, meta_loss, start, given.eta, given.rollouts[:3], learning_rate(case))
    assert list(gradient) == list(given.eta)
    assert not flat(gradient).any()


# --- scoring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        Case(updates=5, convention="surrogate"),
        Case(updates=5, encoder_mode="joint"),
        Case(updates=5, bounds=(0.9, 0.8)),
    ],
    ids=["surrogate", "joint", "V-trace"],
)
@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_a_scored_update_equals_a_meta_loss_and_an_update(case: Case, storage: Any) -> None:
    rule, given = rule_of(case), problem_of(case)
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    both = partial(inner_update, rule, scored=True)
    apart, together = (InnerLoop(state_of(case), given.eta, storage=kind) for kind in ("graph", storage))
    assert not any(value.requires_grad for value in apart.state.theta.values())
    for k, batch in enumerate(given.rollouts[:6]):
        loss = apart.add_loss(MetaLoss(meta_loss), batch) if k else None
        expected = apart.step(update, batch, learning_rate(case))
        metrics, loss_of_both = together.step(both, batch, learning_rate(case), with_loss=True)
        torch.testing.assert_close(metrics, expected)
        if loss is not None:
            torch.testing.assert_close(loss_of_both, loss)
        assert together.steps == k + 1
        torch.testing.assert_close(together.state, apart.state)
        assert not any(t.requires_grad for t in (loss_of_both, *metrics, *together.state.theta.values()))
    # the sixth update was not scored: the gradient covers the first five
    gradient = together.gradient()
    torch.testing.assert_close(gradient, apart.gradient())
    torch.testing.assert_close(gradient, computed(case))


# --- precision --------------------------------------------------------------------------------------------------------


def test_updates_keep_the_precision_of_their_inputs() -> None:
    """Whatever PyTorch's default is, which is double precision here."""
    case = Case(optimizer="sgd")
    given = problem(case.task)
    network, questions = (copy.deepcopy(module).float() for module in (given.network, given.task.network))
    rule = replace(rule_of(case), network=network, task=DiscoveredGVFs(questions, 0.8))
    theta, eta = ({k: p.float() for k, p in params.items()} for params in (given.theta, given.eta))
    rollouts = tree_map_only(Tensor, lambda x: x.float() if x.is_floating_point() else x, given.rollouts[:2])
    state, metrics = inner_update(rule, InnerState(theta, {}), eta, rollouts[0], torch.tensor(0.1).float())
    gradients, loss = meta_loss_gradient(rule, state.theta, rollouts[1])
    for value in (*state.theta.values(), *metrics, *gradients.values(), loss):
        assert value.dtype == torch.float32


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_explained_variance_of_constant_returns() -> None:
    case = Case(optimizer="sgd")
    given, rule = problem(case.task), rule_of(case)
    theta = {k: torch.zeros_like(p) if k.startswith("value.") else p for k, p in given.theta.items()}
    rollout = given.rollouts[0]._replace(rewards=torch.zeros(4, 3))
    _, metrics = inner_update(rule, InnerState(theta, {}), given.eta, rollout, learning_rate(case))
    assert metrics.explained_variance == 1.0
