"""The meta-gradient against the transcription and against central differences."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch

from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import MetaLoss, inner_update, meta_gradient, meta_loss_gradient
from dgvf_agents.core.types import Params
from tests.core.metagradient_problem import (
    RULES,
    SHARED_TASKS,
    TASKS,
    Case,
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


def moved(eta: Params, direction: Params, by: float) -> Params:
    return {k: p + by * direction[k] for k, p in eta.items()}


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
    update, meta_loss = partial(inner_update, rule), partial(meta_loss_gradient, rule)
    for k in range(case.updates):
        batches = given.rollouts[k : k + 2]
        total = total + flat(meta_gradient(update, meta_loss, state, given.eta, batches, learning_rate(case)))
        state, _ = update(state, given.eta, batches[0], learning_rate(case))
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


# --- compiled ---------------------------------------------------------------------------------------------------------
