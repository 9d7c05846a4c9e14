"""The meta-gradient against the transcription and against central differences."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import (
    InnerState,
    MetaLoss,
    inner_update,
    meta_loss_gradient,
)
from dgvf_agents.core.networks import AgentNetwork
from dgvf_agents.core.tasks import DiscoveredGVFs
from dgvf_agents.core.types import Params, Rollout
from tests.core.metagradient_problem import (
    ACTIONS,
    QUESTIONS,
    RULES,
    SHARED_TASKS,
    TASKS,
    Case,
    ExploringNetwork,
    algorithm,
    computed,
    crossed,
    flat,
    learning_rate,
    moved,
    problem,
    problem_of,
    relative_error,
    rule_of,
    state_of,
)

pytestmark = pytest.mark.usefixtures("double_precision")


# --- against the transcription ----------------------------------------------------------------------------------------


@cache
def transcribed(case: Case) -> dict[str, Params]:
    """The meta-gradients of the transcription, by objective."""
    given = problem_of(case)
    batches = given.rollouts[: case.updates + 1]
    return algorithm(case).meta_gradients(given.theta, given.statistics(case.optimizer), given.eta, batches)


COMMON: dict[str, Any] = {"convention": ("exact", "surrogate"), "encoder_mode": ("auxiliary", "joint")}
QUESTION_TASKS = ("hand_set_discount", "learned_discounts")
BOUNDS = ((1.0, 1.0), (1.6, 0.7), (3.0, 2.0))
"""ρ̄ and c̄: IMPALA's, and others."""


@crossed(
    {
        "task": QUESTION_TASKS,
        **COMMON,
        "optimizer": RULES,
        "updates": (1, 2, 5),
        "objective": ("sum", "end"),
        "horizon": ("unrolled", "myopic"),
        "storage": ("graph", "recompute"),
        "max_gradient_norm": (None, 0.3),
    },
    {
        "task": QUESTION_TASKS,
        **COMMON,
        "optimizer": ("sgd", "first"),
        "updates": (1, 2, 5),
        "objective": ("sum", "end"),
        "max_gradient_norm": (None, 0.3),
        "weighting": ("gradient-norm",),
    },
    {
        "task": QUESTION_TASKS,
        **COMMON,
        "optimizer": ("rmsprop", "adam"),
        "updates": (2, 5),
        "weighting": ("fixed", "gradient-norm"),
        "bounds": BOUNDS,
    },
    {
        "task": SHARED_TASKS,
        **COMMON,
        "optimizer": ("rmsprop", "adam"),
        "updates": (1, 3),
        "storage": ("graph", "recompute"),
        "weighting": ("fixed", "gradient-norm"),
    },
)
def test_equals_the_unrolled_transcription(case: Case) -> None:
    """Weights from gradients, V-trace and shared question networks too."""
    expected = transcribed(replace(case, objective="sum", storage="graph"))[case.objective]
    plain = case == replace(case, weighting="fixed", bounds=None) and case.task in QUESTION_TASKS
    assert relative_error(computed(case), expected) < (1e-10 if plain and case.optimizer != "first" else 1e-9)


# --- against central differences --------------------------------------------------------------------------------------

STEP = 1e-5


@cache
def directions(task: str) -> list[Params]:
    """Two random directions of unit length in the space of η."""
    generator = torch.Generator().manual_seed(5)
    random = [{k: torch.randn(p.shape, generator=generator) for k, p in problem(task).eta.items()} for _ in range(2)]
    return [{k: p / flat(direction).norm() for k, p in direction.items()} for direction in random]


@cache
def central_differences(case: Case) -> list[list[float]]:
    """For each direction d and each k: ∇_θ L^RL(θ_k) · (θ_k(η + h d) - θ_k(η - h d)) / 2h.

    The batches are fixed, and the pseudo-gradient is that at the base point. Under the surrogate convention the
    stop-gradient inputs of every update keep their values at the base point.
    """
    given, slow = problem_of(case), algorithm(case)
    batches, statistics = given.rollouts[: case.updates + 1], given.statistics(case.optimizer)
    base, stopped = slow.trajectory(given.theta, statistics, given.eta, batches)
    weights = [slow.meta_loss_gradient(theta, batch) for theta, batch in zip(base, batches[1:], strict=True)]
    differences = []
    for direction in directions(case.task):
        ends = []
        for sign in (1, -1):
            eta = moved(given.eta, direction, sign * STEP)
            frozen = stopped if case.convention == "surrogate" else None
            ends.append(slow.trajectory(given.theta, statistics, eta, batches, frozen)[0])
        differences.append([
            float(flat(weight) @ (flat(plus) - flat(minus))) / (2 * STEP)
            for weight, plus, minus in zip(weights, *ends, strict=True)
        ])  # fmt: skip
    return differences


@crossed(
    {
        "task": TASKS,
        **COMMON,
        "optimizer": RULES,
        "updates": (1, 2, 5),
        "objective": ("sum", "end"),
        "ends": (True, False),
    },
    {
        "task": QUESTION_TASKS,
        **COMMON,
        "optimizer": ("sgd", "first"),
        "updates": (1, 5),
        "weighting": ("gradient-norm",),
    },
    {
        "task": ("hand_set_discount", "pixel_control"),
        **COMMON,
        "optimizer": ("rmsprop", "adam"),
        "updates": (1, 5),
        "objective": ("sum", "end"),
        "bounds": BOUNDS,
    },
    {"task": SHARED_TASKS, **COMMON, "updates": (1, 3), "bounds": (None, (1.6, 0.7))},
)
def test_equals_central_differences(case: Case) -> None:
    gradient = computed(case)
    by_direction = central_differences(replace(case, objective="sum"))
    for direction, by_update in zip(directions(case.task), by_direction, strict=True):
        expected = sum(by_update) if case.objective == "sum" else by_update[-1]
        actual = float(flat(gradient) @ flat(direction))
        # the first step is nearly a sign: differences of θ are near rounding, 1e-16 / STEP
        rel, abs_ = (1e-4, 1e-10) if case.optimizer == "first" else (1e-6, 0)
        assert actual == pytest.approx(expected, rel=rel, abs=abs_)


@crossed(task=("reward_prediction", "pixel_control"), encoder_mode=("auxiliary", "joint"), updates=(1, 3))
def test_weights_from_gradients_are_free_of_the_scale_of_the_auxiliary_loss(case: Case) -> None:
    """η only scales the loss of these tasks, which a fixed weight passes on and the other takes out again."""
    fixed, weighted = (flat(computed(replace(case, optimizer="sgd", weighting=w))) for w in ("fixed", "gradient-norm"))
    assert weighted.norm() < 1e-10 * fixed.norm()


# --- what sets the choices apart, and where they must agree -----------------------------------------------------------


@crossed(task=("hand_set_discount", "learned_discounts"), updates=(1, 2, 5))
@pytest.mark.parametrize("horizon", ["unrolled", "myopic"])
def test_conventions_differ_through_earlier_updates_only(case: Case, horizon: str) -> None:
    exact, surrogate = (computed(replace(case, convention=c, horizon=horizon)) for c in ("exact", "surrogate"))
    if case.updates == 1 or horizon == "myopic":
        assert relative_error(surrogate, exact) < 1e-12
    else:
        assert relative_error(surrogate, exact) > 1e-2


@pytest.mark.parametrize("convention", ["exact", "surrogate"])
def test_myopic_is_the_sum_of_single_updates(convention: str) -> None:
    case = Case(convention=convention, updates=3, horizon="myopic", task="learned_discounts")
    rule, given, state, total = rule_of(case), problem(case.task), state_of(case), torch.zeros(())
    for batches in pairwise(given.rollouts[: case.updates + 1]):
        total = total + flat(computed(replace(case, horizon="unrolled"), rule, state, rollouts=batches))
        state, _ = inner_update(rule, state, given.eta, batches[0], learning_rate(case))
    torch.testing.assert_close(flat(computed(case)), total, rtol=1e-12, atol=0)


@crossed(convention=("exact", "surrogate"), optimizer=RULES, updates=(5,), horizon=("unrolled", "myopic"))
def test_recomputation_gives_the_same_gradient_as_the_graph(case: Case) -> None:
    graph, recomputed = (computed(replace(case, storage=storage)) for storage in ("graph", "recompute"))
    torch.testing.assert_close(recomputed, graph, rtol=0, atol=0)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_results_of_an_unroll_are_detached(storage: str) -> None:
    """The agent continues from them, and would otherwise keep every earlier graph alive."""
    case, given = Case(optimizer="adam"), problem("hand_set_discount")
    rule = rule_of(case)
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    loop = InnerLoop(state_of(case), given.eta, storage=storage)  # type: ignore[arg-type]
    for k in range(2):
        metrics = loop.step(update, given.rollouts[k], learning_rate(case))
        assert loop.steps == k + 1
        loss = loop.add_loss(MetaLoss(meta_loss), given.rollouts[k + 1])
        assert not any(tensor.requires_grad for tensor in torch.utils._pytree.tree_leaves((loop.state, metrics, loss)))
    expected, _ = algorithm(case).trajectory(
        given.theta, given.statistics(case.optimizer), given.eta, given.rollouts[:3]
    )
    torch.testing.assert_close(loop.state.theta, expected[-1], rtol=1e-12, atol=1e-12)
    assert not any(tensor.requires_grad for tensor in loop.gradient().values())


def test_the_gradient_of_the_meta_loss_is_of_first_order() -> None:
    case = Case()
    theta = {name: p.clone().requires_grad_() for name, p in problem(case.task).theta.items()}
    gradients, loss = meta_loss_gradient(rule_of(case), theta, problem(case.task).rollouts[1])
    assert not any(tensor.requires_grad for tensor in (*gradients.values(), loss))


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_unrolls_free_every_byte(storage: str) -> None:
    """Python's garbage collector does not see the tensors that autograd saves; the profiler counts all allocations."""
    case = Case(storage=storage)
    rule, state = rule_of(case), state_of(case)
    computed(case, rule, state)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        computed(case, rule, state)
        gc.collect()
    events = profiler.events()
    assert sum(max(0, event.self_cpu_memory_usage) for event in events) > 1e4
    assert sum(event.self_cpu_memory_usage for event in events) == 0


# --- options, against the transcription with the same options ---------------------------------------------------------


def transcribed_with(case: Case, rollouts: tuple[Rollout, ...], **options: Any) -> Params:
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
    gradient = computed(case, replace(rule_of(case), **options))
    assert relative_error(gradient, transcribed_with(case, rollouts, **options)) < 1e-10


@crossed(convention=("exact", "surrogate"), weighting=("fixed", "gradient-norm"))
def test_a_batch_may_bring_its_own_coefficients(case: Case) -> None:
    rollouts = tuple(
        batch._replace(entropy_weight=torch.tensor(0.1 * k), auxiliary_coefficient=torch.tensor(0.2 * (k + 1)))
        for k, batch in enumerate(problem_of(case).rollouts[:3])
    )
    assert relative_error(computed(case, rollouts=rollouts), transcribed_with(case, rollouts)) < 1e-10


@crossed(convention=("exact", "surrogate"), encoder_mode=("auxiliary", "joint"))
def test_networks_are_passed_statistics_stop_gradient_inputs_and_training_mode(case: Case) -> None:
    rollouts = tuple(
        batch._replace(statistics={"encoder.shift": torch.tensor(0.2 * (k + 1))})
        for k, batch in enumerate(problem(case.task).rollouts[:3])
    )
    rule = replace(rule_of(case), network=ExploringNetwork(problem(case.task).network))
    gradient = computed(case, rule, rollouts=rollouts)
    # the questions see observations without a shift
    shifted = tuple(b._replace(observations=b.observations + b.statistics["encoder.shift"]) for b in rollouts)
    assert relative_error(gradient, transcribed_with(case, shifted, exploring=True)) < 1e-10


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
    gradient = computed(case, rule, start)
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
