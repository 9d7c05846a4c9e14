"""Algorithm 1 and its state, without environments, files or Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dgvf_agents.core.distributions import Categorical
from dgvf_agents.core.inner_update import (
    InnerState,
    Numbers,
    UpdateRule,
    inner_update,
    meta_loss_gradient,
)
from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.core.networks import AgentNetwork, MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import RMSProp
from dgvf_agents.core.tasks import AuxiliaryTask, DiscoveredGVFs, NoTask, RandomGVFs
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.learner import DiscoveryLearner, LearnerState, MetaSettings, SingleLearner
from tests.core.metagradient_problem import meta_gradient
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")

L, RATE, META_RATE = 3, 0.01, 0.05


def parts(task: str | AuxiliaryTask = "discovered", learns: bool = False, **changes: Any) -> tuple[UpdateRule, Params]:
    """An update rule and θ_0, the same at every call, with questions that learn their discounts or not."""
    torch.manual_seed(0)
    encoder = MLPEncoder(5, (4,))
    questions, discount = QuestionNetwork(encoder, encoder.features, 3, learns).double(), None if learns else 0.9
    discovered, random = DiscoveredGVFs(questions, discount), RandomGVFs(questions, discount)
    made = {"none": NoTask(), "discovered": discovered, "random": random}[task] if isinstance(task, str) else task
    encoder = MLPEncoder(5, (6,))
    network = AgentNetwork(encoder, encoder.features, 3, made.num_answers).double()
    rule = UpdateRule(network, Categorical(3), made, RMSProp())
    return replace(rule, **changes), network.params()


def learner(
    task: str | AuxiliaryTask = "discovered",
    settings: MetaSettings | None = None,
    meta_epsilon: float = 1e-8,
    kind: type[SingleLearner] = DiscoveryLearner,
    **changes: Any,
) -> Any:
    rule, theta = parts(task, **changes)
    eta = rule.task.initial_meta_params()
    given = (UpdateFunctions(rule, eta, Compilation(False)), theta, rule.optimizer.init(theta), eta)
    settings = settings or MetaSettings(unroll_length=L)
    return kind(*given, discovers=rule.task.discovers, settings=settings, meta_epsilon=meta_epsilon)


def _rollouts() -> list[Rollout]:
    singles = [random_rollout(seed) for seed in range(12)]
    return [tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, one) for one in singles]


ROLLOUTS = _rollouts()


def run(one: DiscoveryLearner, rollouts: list[Rollout]) -> DiscoveryLearner:
    for rollout in rollouts:
        one.step(rollout, RATE, META_RATE)
    return one


def assert_same(one: LearnerState, other: LearnerState) -> None:
    first, second = tree_leaves(one), tree_leaves(other)
    assert len(first) == len(second) > 15
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_the_meta_update_is_adams_step_along_the_meta_gradient(epsilon: float) -> None:
    """The first step of Adam is -α · sign(g), up to ε: against the gradient, element by element."""
    rule, theta = parts()
    eta, state = rule.task.initial_meta_params(), InnerState(theta, rule.optimizer.init(theta))
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    gradient = meta_gradient(update, meta_loss, state, eta, ROLLOUTS[: L + 1], torch.tensor(RATE))
    one = run(learner(meta_epsilon=epsilon), ROLLOUTS[: L + 1])
    norm = torch.cat([value.flatten() for value in gradient.values()]).norm()
    assert one.meta_updates == 1
    torch.testing.assert_close(one.meta_gradient_norm, norm)
    for name, value in eta.items():
        clipped = gradient[name] / max(1.0, float(norm))
        expected = value - META_RATE * clipped / (clipped.abs() + epsilon)
        torch.testing.assert_close(one.eta[name], expected)


@pytest.mark.parametrize("task", ["discovered", "random", "none"])
@pytest.mark.parametrize("updates", [0, 1, 2, 3, 4, 7])
def test_training_continues_bitwise_from_a_state(task: str, updates: int) -> None:
    one = run(learner(task), ROLLOUTS[:updates])
    state = tree_map_only(Tensor, torch.clone, one.get_state())
    other = learner(task)
    run(other, ROLLOUTS[5:7])
    other.set_state(state)
    assert_same(other.get_state(), state)
    assert other.unroll_updates == one.unroll_updates
    kept = tree_map_only(Tensor, torch.clone, state)
    run(one, ROLLOUTS[updates:])
    run(other, ROLLOUTS[updates:])
    assert_same(other.get_state(), one.get_state())
    assert_same(state, kept)
    assert one.meta_updates == ((len(ROLLOUTS) - 1) // L if task == "discovered" else 0)


def test_only_discovered_questions_change() -> None:
    for task, moves in (("discovered", True), ("random", False)):
        one = learner(task)
        before = one.eta
        run(one, ROLLOUTS[: L + 1])
        assert all(torch.equal(one.eta[name], value) is not moves for name, value in before.items())


def test_a_meta_gradient_that_is_too_large_is_skipped_and_counted() -> None:
    one = learner(settings=MetaSettings(L, meta_skip_norm=1e-9))
    before = one.eta
    run(one, ROLLOUTS[: 2 * L + 1])
    assert (one.meta_updates, one.meta_skipped) == (0, 2)
    assert all(torch.equal(one.eta[name], value) for name, value in before.items())


def moved_by(theta: Params, distance: float) -> Params:
    """θ a little away."""
    return {name: value + distance for name, value in theta.items()}


@pytest.mark.parametrize(("distance", "continues"), [(1e-9, True), (1.0, False)])
def test_a_stored_unroll_continues_if_it_ends_at_theta_up_to_rounding(distance: float, continues: bool) -> None:
    """θ itself stays as it was given, also where the stored updates lead to a slightly different one."""
    state = run(learner(), ROLLOUTS[:2]).get_state()
    one, theta = learner(), moved_by(state.theta, distance)
    one.set_state(state._replace(theta=theta))
    one.step(ROLLOUTS[2], 0.0, META_RATE)
    torch.testing.assert_close(one.theta, theta, rtol=0, atol=0)
    assert one.unroll_updates == (3 if continues else 1)


def test_a_stored_unroll_of_another_rule_restarts() -> None:
    one = learner(numbers=Numbers(gamma=0.5))
    one.set_state(run(learner(), ROLLOUTS[:2]).get_state())
    assert one.unroll_updates == 2
    one.step(ROLLOUTS[2], RATE, META_RATE)
    assert one.unroll_updates == 1


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("change", ["theta", "statistics", "eta", "functions"])
def test_an_unroll_restarts_where_its_parts_are_replaced(change: str, stored: bool) -> None:
    one = run(learner(), ROLLOUTS[:2])
    if stored:
        state, one = one.get_state(), learner()
        one.set_state(state)
    assert one.unroll_updates == 2
    if change == "functions":
        rule, _ = parts(numbers=Numbers(gamma=0.5))
        one.set_functions(UpdateFunctions(rule, one.eta, Compilation(False)))
    else:
        getattr(one, f"set_{change}")(getattr(one, change))
    assert one.unroll_updates == 0
    run(one, ROLLOUTS[2:4])
    assert (one.unroll_updates, one.meta_updates) == (2, 0)


FOREIGN: list[tuple[Callable[[Any], LearnerState], str]] = [
    (lambda s: s._replace(theta=dict(list(s.theta.items())[1:])), "theta must have the names"),
    (lambda s: s._replace(eta={name: value.float() for name, value in s.eta.items()}), "float64, got .*float32"),
    (lambda s: s._replace(statistics=[]), "statistics must have the names"),
    (lambda s: s._replace(meta_optimizer={"state": 3}), "meta_optimizer must be a state dict"),
    (
        lambda s: s._replace(unroll=s.unroll._replace(start=InnerState({}, {}))),
        "unroll.start.theta must have the names",
    ),
    (lambda s: s._replace(unroll=s.unroll._replace(learning_rates=[])), "unroll must have equal numbers"),
]


@pytest.mark.parametrize(("change", "message"), FOREIGN)
def test_a_state_of_another_learner_is_refused_by_name(change: Callable[[Any], LearnerState], message: str) -> None:
    state = run(learner(), ROLLOUTS[: L + 2]).get_state()
    with pytest.raises(ValueError, match=message):
        learner().set_state(change(state))


def test_a_task_without_meta_parameters_has_no_adam() -> None:
    one = learner("none")
    assert one.get_state().meta_optimizer == {}
    one.set_meta_optimizer_state({})
    with pytest.raises(ValueError, match="meta_optimizer must be empty for a task without meta-parameters"):
        one.set_meta_optimizer_state({"state": {}})


@pytest.mark.parametrize("kind", ["theta", "statistics", "eta"])
def test_values_that_are_not_finite_are_named(kind: str) -> None:
    one = run(learner(), ROLLOUTS[:2])
    one.check_finite()
    whole = getattr(one, kind)
    named = whole["second_moment"] if kind == "statistics" else whole
    name = next(iter(named))
    broken = {**named, name: torch.full_like(named[name], torch.nan)}
    getattr(one, f"set_{kind}")({"second_moment": broken} if kind == "statistics" else broken)
    with pytest.raises(NotFiniteError, match=rf"(^|\W){kind}\W.*{name}.*must be finite after 2 updates"):
        one.check_finite()
