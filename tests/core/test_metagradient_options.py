"""Options that the main tests of the meta-gradient leave at their defaults, and errors."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dgvf_agents.core.inner_update import (
    InnerState,
    UpdateRule,
    inner_update,
    meta_loss_gradient,
    update_with_meta_loss,
)
from dgvf_agents.core.losses import ActorCriticWeights
from dgvf_agents.core.networks import AgentNetwork
from dgvf_agents.core.optimizers import SGD
from dgvf_agents.core.tasks import AuxiliaryTask, DiscoveredGVFs
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.core.unroll import Unroll, meta_gradient
from dgvf_agents.options import Storage
from tests.core.metagradient_problem import (
    ACTIONS,
    QUESTIONS,
    AlgorithmWithOptions,
    Case,
    ExploringNetwork,
    algorithm,
    computed,
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
    return meta_gradient(update, meta_loss, state_of(case), problem(case.task).eta, rollouts, learning_rate(case))


def transcribed(case: Case, rollouts: tuple[Rollout, ...], **options: Any) -> Params:
    slow, given = algorithm(case), problem(case.task)
    # not by replace(): it is a dataclass with more fields
    slow = AlgorithmWithOptions(**{name: getattr(slow, name) for name in slow.__dataclass_fields__} | options)
    return slow.meta_gradients(given.theta, given.statistics(case.optimizer), given.eta, rollouts)["sum"]


@pytest.mark.parametrize("convention", ["exact", "surrogate"])
@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({"gae_lambda": 0.0}, {"gae_lambda": 0.0}),
        ({"gae_lambda": 0.7}, {"gae_lambda": 0.7}),
        ({"normalize_advantages": True}, {"normalize": True}),
        ({"normalize_advantages": True, "gae_lambda": 0.9}, {"normalize": True, "gae_lambda": 0.9}),
    ],
)
def test_returns_and_advantages(convention: str, changes: dict[str, Any], options: dict[str, Any]) -> None:
    case = Case(convention=convention, encoder_mode="joint")
    rollouts = problem(case.task).rollouts[:3]
    gradient = gradient_of(replace(rule_of(case), **changes), case, rollouts)
    assert relative_error(gradient, transcribed(case, rollouts, **options)) < 1e-10


def test_a_batch_may_bring_its_own_entropy_weight() -> None:
    case = Case()
    rollouts = tuple(
        batch._replace(entropy_weight=torch.tensor(0.1 * k)) for k, batch in enumerate(problem(case.task).rollouts[:3])
    )
    assert relative_error(gradient_of(rule_of(case), case, rollouts), transcribed(case, rollouts)) < 1e-10


@pytest.mark.parametrize("weighting", ["fixed", "gradient-norm"])
@pytest.mark.parametrize("convention", ["exact", "surrogate"])
def test_a_batch_may_bring_its_own_auxiliary_coefficient(convention: str, weighting: str) -> None:
    case = Case(convention=convention, weighting=weighting)
    rollouts = tuple(
        batch._replace(auxiliary_coefficient=torch.tensor(0.2 * (k + 1)))
        for k, batch in enumerate(problem(case.task).rollouts[:3])
    )
    assert relative_error(gradient_of(rule_of(case), case, rollouts), transcribed(case, rollouts)) < 1e-10


@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
@pytest.mark.parametrize("head_rate", [0.0, 0.3, 2.0])
def test_policy_and_value_heads_may_have_a_rate_of_their_own(head_rate: float, encoder_mode: str) -> None:
    case = Case(encoder_mode=encoder_mode, optimizer="rmsprop")
    rollouts = problem(case.task).rollouts[:3]
    gradient = gradient_of(replace(rule_of(case), head_rate=head_rate), case, rollouts)
    assert relative_error(gradient, transcribed(case, rollouts, head_rate=head_rate)) < 1e-10


@pytest.mark.parametrize("convention", ["exact", "surrogate"])
@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_networks_are_passed_statistics_stop_gradient_inputs_and_training_mode(
    convention: str, encoder_mode: str
) -> None:
    case = Case(convention=convention, encoder_mode=encoder_mode)
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


class Unread(AuxiliaryTask):
    """Discovered questions whose η has a parameter that nothing reads."""

    discovers = True

    def __init__(self, task: DiscoveredGVFs) -> None:
        self.task = task

    @property
    def num_answers(self) -> int:
        return self.task.num_answers

    def initial_meta_params(self) -> Params:
        return {"unread": torch.ones(2, 3), **self.task.initial_meta_params()}

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        return self.task.loss(answers, bootstraps, {k: p for k, p in eta.items() if k != "unread"}, rollout)


@pytest.mark.parametrize("horizon", ["unrolled", "myopic"])
def test_the_meta_gradient_of_unused_parameters_is_zero(horizon: str) -> None:
    case, given = Case(horizon=horizon), problem("hand_set_discount")
    rule = replace(rule_of(case), task=Unread(given.task))
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    eta = {"unread": torch.ones(2, 3), **given.eta}
    gradient = meta_gradient(
        update, meta_loss, state_of(case), eta, given.rollouts[:3], learning_rate(case), horizon=horizon
    )
    torch.testing.assert_close(gradient.pop("unread"), torch.zeros(2, 3))
    torch.testing.assert_close(gradient, computed(case), rtol=0, atol=0)


# --- scoring ----------------------------------------------------------------------------------------------------------


def no_meta_loss(theta: Params, rollout: Rollout) -> tuple[Params, Tensor]:
    raise AssertionError("the meta-loss is a part of the next update")


@pytest.mark.parametrize("horizon", ["unrolled", "myopic"])
@pytest.mark.parametrize(
    "case",
    [
        Case(updates=5, convention="surrogate"),
        Case(updates=5, encoder_mode="joint"),
        Case(updates=5, bounds=(0.9, 0.8)),
    ],
    ids=["surrogate", "joint", "V-trace"],
)
@pytest.mark.parametrize(("storage", "length"), [("graph", 1), ("recompute", 1), ("recompute", 3)])
def test_update_with_meta_loss_equals_score_then_update(case: Case, storage: str, length: int, horizon: str) -> None:
    """Under both storages, and for any number of states per block."""
    case = replace(case, horizon=horizon)
    rule, given = rule_of(case), problem_of(case)
    update, meta_loss, both = (partial(f, rule) for f in (inner_update, meta_loss_gradient, update_with_meta_loss))
    apart = Unroll(update, meta_loss, state_of(case), given.eta, horizon=horizon)  # type: ignore[arg-type]
    unused = no_meta_loss if horizon == "unrolled" else meta_loss
    options: Any = {"update_with_meta_loss": both, "storage": storage, "length": length, "horizon": horizon}
    together = Unroll(update, unused, state_of(case), given.eta, **options)
    assert not any(value.requires_grad for value in apart.state.theta.values())
    for k, batch in enumerate(given.rollouts[:6]):
        loss = apart.add_meta_loss(batch) if k else None
        expected = apart.update(batch, learning_rate(case))
        metrics, loss_of_both = together.update_with_meta_loss(batch, learning_rate(case))
        torch.testing.assert_close(metrics, expected)
        if loss is not None:
            torch.testing.assert_close(loss_of_both, loss)
        assert together.updates == k + 1
        torch.testing.assert_close(together.state, apart.state)
        assert not any(t.requires_grad for t in (loss_of_both, *metrics, *together.state.theta.values()))
    # the sixth update was not scored: the gradient is that of the first five
    gradient = together.gradient()
    torch.testing.assert_close(gradient, apart.gradient())
    torch.testing.assert_close(gradient, computed(case))


def _begun(case: Case, eta: Params, storage: Storage, length: int) -> tuple[Callable[..., Any], Unroll]:
    """The inner update, and an unroll of it that has not taken any."""
    rule = rule_of(case)
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    return update, Unroll(update, meta_loss, state_of(case), eta, storage=storage, length=length)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_histories_lead_from_the_first_state_to_the_last(storage: Storage) -> None:
    case, given = Case(), problem("hand_set_discount")
    update, unroll = _begun(case, given.eta, storage, 3)
    start, steps = unroll.history
    torch.testing.assert_close(start, state_of(case), rtol=0, atol=0)
    assert steps == []
    for k in range(3):
        unroll.update(given.rollouts[k], torch.tensor(0.1 * (k + 1)))
    start, steps = unroll.history
    torch.testing.assert_close(start, state_of(case), rtol=0, atol=0)
    state = state_of(case)
    for rollout, rate in steps:
        state, _ = update(state, given.eta, rollout, rate)
    torch.testing.assert_close(state, unroll.state, rtol=0, atol=0)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_an_unroll_continues_from_the_state_it_is_given(storage: Storage) -> None:
    """The next update starts there; the state is detached."""
    case, given = Case(), problem("hand_set_discount")
    update, unroll = _begun(case, given.eta, storage, 2)
    unroll.update(given.rollouts[0], learning_rate(case))
    elsewhere = tree_map_only(Tensor, lambda t: (1.01 * t).requires_grad_(), unroll.state)
    unroll.set_state(elsewhere)
    torch.testing.assert_close(unroll.state, elsewhere, rtol=0, atol=0)
    assert not any(t.requires_grad for t in tree_leaves(unroll.state))
    unroll.update(given.rollouts[1], learning_rate(case))
    expected, _ = update(elsewhere, given.eta, given.rollouts[1], learning_rate(case))
    torch.testing.assert_close(unroll.state, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("storage", "calls"), [("graph", 3), ("recompute", 6)])
def test_graphs_are_kept_or_updates_recomputed(storage: str, calls: int) -> None:
    """Graph storage calls every function once per update, recomputation twice."""
    case, given, counts = Case(updates=3), problem("hand_set_discount"), Counter[str]()
    rule = rule_of(case)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[function.__name__] += 1
            return function(rule, *arguments)

        return call

    gradient = meta_gradient(
        counted(inner_update), counted(meta_loss_gradient), state_of(case), given.eta, given.rollouts[:4],
        learning_rate(case), storage=storage,
    )  # fmt: skip
    assert counts == {"inner_update": calls, "meta_loss_gradient": calls}
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


@pytest.mark.parametrize("scale", [1e-2, 10.0])
def test_explained_variance_is_free_of_the_rewards_scale(scale: float) -> None:
    """1 - Var(G - v) / Var(G), as scikit-learn's `explained_variance_score`; without values all of it is lost."""
    case = Case(optimizer="sgd", ends=False)
    given, rule = problem(case.task, ends=False), rule_of(case)
    rollout = given.rollouts[0]._replace(rewards=scale * given.rollouts[0].rewards)
    theta = {k: scale * p if k.startswith("value.") else p for k, p in given.theta.items()}
    expected, actual = (
        inner_update(rule, InnerState(params, {}), given.eta, batch, learning_rate(case))[1].explained_variance
        for params, batch in ((given.theta, given.rollouts[0]), (theta, rollout))
    )
    assert 0.01 < abs(float(expected)) < 10
    torch.testing.assert_close(actual, expected)


def test_explained_variance_of_constant_returns() -> None:
    case = Case(optimizer="sgd")
    given, rule = problem(case.task), rule_of(case)
    theta = {k: torch.zeros_like(p) if k.startswith("value.") else p for k, p in given.theta.items()}
    rollout = given.rollouts[0]._replace(rewards=torch.zeros(4, 3))
    _, metrics = inner_update(rule, InnerState(theta, {}), given.eta, rollout, learning_rate(case))
    assert metrics.explained_variance == 1.0


# --- ranges and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"discount": 0.0}, {"discount": 1.0}, {"gae_lambda": 0.0}, {"gae_lambda": 1.0}, {"auxiliary_coefficient": 0.0}],
    ids=str,
)
def test_ends_of_ranges_are_allowed(changes: dict[str, float]) -> None:
    rule = replace(rule_of(Case()), **changes)
    assert all(getattr(rule, name) == value for name, value in changes.items())
    assert replace(rule, max_gradient_norm=1e-3).max_gradient_norm == 1e-3


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"discount": 1.5}, "discount must lie in [0, 1], got 1.5"),
    ({"discount": -0.1}, "discount must lie in [0, 1], got -0.1"),
    ({"discount": math.nan}, "discount must lie in [0, 1], got nan"),
    ({"gae_lambda": 1.5}, "gae_lambda must lie in [0, 1], got 1.5"),
    ({"gae_lambda": -0.1}, "gae_lambda must lie in [0, 1], got -0.1"),
    ({"auxiliary_coefficient": -0.5}, "auxiliary_coefficient must be >= 0, got -0.5"),
    ({"head_rate": -0.5}, "head_rate must be >= 0, got -0.5"),
    ({"auxiliary_coefficient": math.nan}, "auxiliary_coefficient must be a finite number >= 0, got nan"),
    ({"max_gradient_norm": 0.0}, "max_gradient_norm must be > 0, got 0.0"),
    ({"max_gradient_norm": math.nan}, "max_gradient_norm must be a finite number > 0, got nan"),
    ({"encoder_mode": "both"}, "encoder_mode must be one of ('auxiliary', 'joint'), got 'both'"),
    ({"convention": "exakt"}, "convention must be one of ('exact', 'surrogate'), got 'exakt'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(changes) for changes, _ in REFUSED])
def test_invalid_update_rules(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"must") as refusal:
        replace(rule_of(Case()), **changes)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "mean"}, "objective must be one of ('sum', 'end'), got 'mean'"),
        ({"horizon": "far"}, "horizon must be one of ('unrolled', 'myopic'), got 'far'"),
        ({"storage": "disk"}, "storage must be one of ('graph', 'recompute'), got 'disk'"),
    ],
)
def test_invalid_choices(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=r"must") as refusal:
        computed(Case(**changes), rule_of(Case()), state_of(Case()))
    assert str(refusal.value) == message


def test_calls_out_of_order() -> None:
    case, given = Case(), problem("hand_set_discount")
    rule = rule_of(case)
    unroll = Unroll(partial(inner_update, rule), partial(meta_loss_gradient, rule), state_of(case), given.eta)
    batch = given.rollouts[0]
    calls = {
        "add_meta_loss() was called before any update: call update() first": lambda: unroll.add_meta_loss(batch),
        "gradient() was called without any meta-loss: call update() and add_meta_loss() first": unroll.gradient,
        "update_with_meta_loss() needs an unroll created with": lambda: unroll.update_with_meta_loss(
            batch, learning_rate(case)
        ),
    }
    for message, call in calls.items():
        with pytest.raises(RuntimeError) as refusal:
            call()
        assert str(refusal.value).startswith(message)


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_paper() -> None:
    """Multi-step returns, advantages as they are, only the answers training the encoder (sections 3.4 and 4.2)."""
    given = problem("hand_set_discount")
    rule = UpdateRule(given.network, rule_of(Case()).distribution, given.task, SGD())
    assert (rule.discount, rule.gae_lambda, rule.normalize_advantages) == (0.99, 1.0, False)
    assert (rule.auxiliary_coefficient, rule.max_gradient_norm) == (1.0, None)
    assert (rule.encoder_mode, rule.convention) == ("auxiliary", "exact")
    assert rule.weights == ActorCriticWeights(0.5, 0.01)
