"""Algorithm 1: its inner update and meta-gradient against an unrolled transcription and central differences."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.distributions import Categorical
from dgvf_agents.core.inner_update import InnerMetrics, InnerState, UpdateRule, inner_update, meta_loss_gradient
from dgvf_agents.core.losses import ActorCriticWeights
from dgvf_agents.core.networks import AgentNetwork, MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, OptimizerState, RMSProp
from dgvf_agents.core.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.core.unroll import Unroll, meta_gradient
from tests.core_oracles import (
    Algorithm,
    AnswerLoss,
    Rule,
    Statistics,
    StopGradientInputs,
    encode,
    gvf_loss,
    head,
    pixel_control_loss,
    random_rollout,
    reward_prediction_loss,
    slow_returns,
)

pytestmark = pytest.mark.usefixtures("double_precision")

ACTIONS, QUESTIONS = 3, 5


# --- the problem ------------------------------------------------------------------------------------------------------


class Weighted(AuxiliaryTask):
    """A task whose weight is its meta-parameter: gives tasks that ask no questions an η to differentiate in."""

    discovers = True

    def __init__(self, task: AuxiliaryTask) -> None:
        self.task = task

    @property
    def num_answers(self) -> int:
        return self.task.num_answers

    def initial_meta_params(self) -> Params:
        return {"weights": torch.tensor([0.3, -0.2])}

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        return eta["weights"].exp().sum() * self.task.loss(answers, bootstraps, {}, rollout)


def weighted(answer_loss: AnswerLoss) -> AnswerLoss:
    return lambda answers, following, eta, rollout: (
        eta["weights"].exp().sum() * answer_loss(answers, following, {}, rollout)
    )


@dataclass(frozen=True)
class TaskCase:
    """A task, its transcription, and a problem for it."""

    shape: tuple[int, ...] = (5,)
    """Of an observation."""
    hidden: tuple[int, ...] = (7,)
    """Layers of both networks."""
    discount: float | None = None
    """Of the questions; `None` learns it."""
    window: int = 1

    def make(self) -> AuxiliaryTask:
        inputs = math.prod(self.shape) * self.window
        network = QuestionNetwork(
            MLPEncoder(inputs, self.hidden), self.hidden[-1], QUESTIONS, learned_discounts=self.discount is None
        )
        return DiscoveredGVFs(network, self.discount, self.window)

    def answer_loss(self) -> AnswerLoss:
        return gvf_loss(self.discount, self.window)


class RewardCase(TaskCase):
    def make(self) -> AuxiliaryTask:
        return Weighted(RewardPrediction())

    def answer_loss(self) -> AnswerLoss:
        return weighted(reward_prediction_loss)


class PixelCase(TaskCase):
    def make(self) -> AuxiliaryTask:
        return Weighted(PixelControl(ACTIONS, grid=2, discount=0.8, scale=0.5))

    def answer_loss(self) -> AnswerLoss:
        return weighted(pixel_control_loss(ACTIONS, 2, 0.8, 0.5))


TASKS: dict[str, TaskCase] = {
    "hand_set_discount": TaskCase(discount=0.8),
    "learned_discounts": TaskCase(hidden=(6, 5), window=2),
    "reward_prediction": RewardCase(hidden=(6,)),
    "pixel_control": PixelCase(shape=(1, 4, 4), hidden=(6,)),
}

RULES = {
    "sgd": Rule("sgd", learning_rate=0.2),
    "rmsprop": Rule("rmsprop", learning_rate=0.1),
    "adam": Rule("adam", learning_rate=0.05),
    "first": Rule("rmsprop", learning_rate=7e-4, epsilon=1e-10, decay=0.99),
}
"""Large steps, so that an update matters to the next ones; and the default of `DGVFA2C` from the first update on."""


@dataclass(frozen=True)
class Case:
    """One combination of what the meta-gradient can be asked for."""

    task: str = "hand_set_discount"
    convention: str = "exact"
    encoder_mode: str = "auxiliary"
    optimizer: str = "rmsprop"
    updates: int = 2
    objective: str = "sum"
    horizon: str = "unrolled"
    storage: str = "graph"
    max_gradient_norm: float | None = None
    ends: bool = True
    weighting: str = "fixed"


def crossed(**choices: Iterable[Any]) -> pytest.MarkDecorator:
    """Run a test for every combination of these choices."""
    combinations = list(product(*choices.values()))
    cases = [Case(**dict(zip(choices, values, strict=True))) for values in combinations]
    return pytest.mark.parametrize("case", cases, ids=["-".join(map(str, values)) for values in combinations])


@dataclass(frozen=True, eq=False)
class Problem:
    """Networks, parameters in the middle of training, and experience."""

    network: AgentNetwork
    task: AuxiliaryTask
    theta: Params
    eta: Params
    rollouts: tuple[Rollout, ...]

    def statistics(self, optimizer: str) -> Statistics:
        """Of an optimizer after three steps, with moments of the size of gradients."""
        if optimizer == "sgd":
            return Statistics(0, {}, {})
        if optimizer == "first":
            zeros = {k: torch.zeros_like(p) for k, p in self.theta.items()}
            return Statistics(0, zeros, zeros)
        generator = torch.Generator().manual_seed(3)
        normal = {k: 0.1 * torch.randn(p.shape, generator=generator) for k, p in self.theta.items()}
        uniform = {k: 0.1 * torch.rand(p.shape, generator=generator) for k, p in self.theta.items()}
        return Statistics(3, normal, uniform)


@cache
def problem(task: str, ends: bool = True) -> Problem:
    """T = 4 steps of B = 3 environments, six batches, every parameter of a size at which it matters."""
    case = TASKS[task]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = case.make()
        agent = MLPEncoder(math.prod(case.shape), case.hidden)
        network = AgentNetwork(agent, agent.features, ACTIONS, made.num_answers)
        theta = {k: p + 0.3 * torch.randn(p.shape) for k, p in network.params().items()}
        eta = {k: p + 0.3 * torch.randn(p.shape) for k, p in made.initial_meta_params().items()}
    rollouts = tuple(
        random_rollout(10 + k, shape=case.shape, actions=ACTIONS, ends=ends, num_unused=k % 2) for k in range(6)
    )
    return Problem(network, made, theta, eta, rollouts)


def algorithm(case: Case) -> Algorithm:
    return Algorithm(
        TASKS[case.task].answer_loss(),
        RULES[case.optimizer],
        convention=case.convention,
        encoder_mode=case.encoder_mode,
        horizon=case.horizon,
        max_gradient_norm=case.max_gradient_norm,
        auxiliary_weighting=case.weighting,
    )


def optimizer_of(rule: Rule) -> Optimizer:
    if rule.kind == "sgd":
        return SGD()
    if rule.kind == "rmsprop":
        return RMSProp(rule.decay, rule.epsilon)
    return Adam(rule.beta1, rule.beta2, rule.epsilon)


def optimizer_state(rule: Rule, statistics: Statistics) -> OptimizerState:
    """The statistics as `dgvf_agents.core.optimizers` keeps them."""
    if rule.kind == "sgd":
        return {}
    if rule.kind == "rmsprop":
        return {"second_moment": statistics.second}
    powers = {name: torch.tensor(getattr(rule, name) ** statistics.steps) for name in ("beta1", "beta2")}
    return {"first_moment": statistics.first, "second_moment": statistics.second, "powers": powers}


def learner_of(case: Case) -> UpdateRule:
    given, slow = problem(case.task, case.ends), algorithm(case)
    return UpdateRule(
        given.network,
        Categorical(ACTIONS),
        given.task,
        optimizer_of(slow.rule),
        ActorCriticWeights(slow.value_weight, slow.entropy_weight),
        discount=slow.discount,
        auxiliary_coefficient=slow.auxiliary_coefficient,
        encoder_mode=case.encoder_mode,
        convention=case.convention,
        max_gradient_norm=case.max_gradient_norm,
        auxiliary_weighting=case.weighting,
    )


def state_of(case: Case) -> InnerState:
    given = problem(case.task, case.ends)
    return InnerState(given.theta, optimizer_state(RULES[case.optimizer], given.statistics(case.optimizer)))


def learning_rate(case: Case) -> Tensor:
    return torch.tensor(RULES[case.optimizer].learning_rate)


def computed(case: Case, learner: UpdateRule | None = None, state: InnerState | None = None) -> Params:
    """The meta-gradient under test."""
    learner, given = learner or learner_of(case), problem(case.task, case.ends)
    return meta_gradient(
        partial(inner_update, learner),
        partial(meta_loss_gradient, learner),
        state or state_of(case),
        given.eta,
        given.rollouts[: case.updates + 1],
        learning_rate(case),
        objective=case.objective,
        horizon=case.horizon,
        storage=case.storage,
    )


def flat(params: Params) -> Tensor:
    return torch.cat([p.flatten() for p in params.values()])


def relative_error(actual: Params, expected: Params) -> float:
    """Euclidean distance over the expected norm, which must not be zero."""
    assert list(actual) == list(expected)
    norm = flat(expected).norm()
    assert norm > 1e-12  # RMSProp's very first step is the sign of the gradient where that is not tiny
    return float((flat(actual) - flat(expected)).norm() / norm)


# --- against the transcription ----------------------------------------------------------------------------------------


@cache
def transcribed(case: Case) -> dict[str, Params]:
    """The meta-gradients of the transcription, by objective."""
    given = problem(case.task, case.ends)
    batches = given.rollouts[: case.updates + 1]
    return algorithm(case).meta_gradients(given.theta, given.statistics(case.optimizer), given.eta, batches)


@crossed(
    task=("hand_set_discount", "learned_discounts"),
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=RULES,
    updates=(1, 2, 5),
    objective=("sum", "end"),
    horizon=("unrolled", "myopic"),
    storage=("graph", "recompute"),
    max_gradient_norm=(None, 0.3),
)
def test_equals_the_unrolled_transcription(case: Case) -> None:
    expected = transcribed(replace(case, objective="sum", storage="graph"))[case.objective]
    assert relative_error(computed(case), expected) < (1e-9 if case.optimizer == "first" else 1e-10)


@crossed(
    task=("hand_set_discount", "learned_discounts"),
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=("sgd", "first"),
    updates=(1, 2, 5),
    objective=("sum", "end"),
    max_gradient_norm=(None, 0.3),
    weighting=("gradient-norm",),
)
def test_equals_the_unrolled_transcription_with_weights_from_gradients(case: Case) -> None:
    expected = transcribed(replace(case, objective="sum"))[case.objective]
    assert relative_error(computed(case), expected) < 1e-9


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
    given, slow = problem(case.task, case.ends), algorithm(case)
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
    task=TASKS,
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=RULES,
    updates=(1, 2, 5),
    objective=("sum", "end"),
    ends=(True, False),
)
def test_equals_central_differences(case: Case) -> None:
    assert_central_differences(case)


@crossed(
    task=("hand_set_discount", "learned_discounts"),
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=("sgd", "first"),
    updates=(1, 5),
    objective=("sum",),
    weighting=("gradient-norm",),
)
def test_equals_central_differences_with_weights_from_gradients(case: Case) -> None:
    assert_central_differences(case)


@crossed(task=("reward_prediction", "pixel_control"), encoder_mode=("auxiliary", "joint"), updates=(1, 3))
def test_weights_from_gradients_are_free_of_the_scale_of_the_auxiliary_loss(case: Case) -> None:
    """η only scales the loss of these tasks, which a fixed weight passes on and the other takes out again."""
    fixed, weighted = (flat(computed(replace(case, optimizer="sgd", weighting=w))) for w in ("fixed", "gradient-norm"))
    assert weighted.norm() < 1e-10 * fixed.norm()


def assert_central_differences(case: Case) -> None:
    gradient = computed(case)
    by_direction = central_differences(replace(case, objective="sum"))
    for direction, by_update in zip(directions(case.task), by_direction, strict=True):
        expected = sum(by_update) if case.objective == "sum" else by_update[-1]
        actual = float(flat(gradient) @ flat(direction))
        # the first step is nearly a sign: differences of θ are near rounding, 1e-16 / STEP
        rel, abs_ = (1e-4, 1e-10) if case.optimizer == "first" else (1e-6, 0)
        assert actual == pytest.approx(expected, rel=rel, abs=abs_)


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
    learner, given, state, total = learner_of(case), problem(case.task), state_of(case), torch.zeros(())
    update, score = partial(inner_update, learner), partial(meta_loss_gradient, learner)
    for k in range(case.updates):
        batches = given.rollouts[k : k + 2]
        total = total + flat(meta_gradient(update, score, state, given.eta, batches, learning_rate(case)))
        state, _ = update(state, given.eta, batches[0], learning_rate(case))
    torch.testing.assert_close(flat(computed(case)), total, rtol=1e-12, atol=0)


@crossed(convention=("exact", "surrogate"), optimizer=RULES, updates=(5,), horizon=("unrolled", "myopic"))
def test_recomputation_gives_the_same_gradient_as_the_graph(case: Case) -> None:
    graph, recomputed = (computed(replace(case, storage=storage)) for storage in ("graph", "recompute"))
    torch.testing.assert_close(recomputed, graph, rtol=0, atol=0)


def test_scoring_decides_what_the_meta_loss_is() -> None:
    """Scores of single updates add up to the sum of all."""
    case = Case(updates=3)
    learner, given = learner_of(case), problem(case.task)

    def gradient(scored: set[int]) -> Tensor:
        unroll = Unroll(partial(inner_update, learner), partial(meta_loss_gradient, learner), state_of(case), given.eta)
        for k in range(case.updates):
            unroll.update(given.rollouts[k], learning_rate(case))
            if k in scored:
                unroll.score(given.rollouts[k + 1])
        return flat(unroll.gradient())

    torch.testing.assert_close(gradient({0, 1, 2}), flat(computed(case)), rtol=0, atol=0)
    torch.testing.assert_close(gradient({2}), flat(computed(replace(case, objective="end"))), rtol=0, atol=0)
    torch.testing.assert_close(gradient({0}) + gradient({1, 2}), gradient({0, 1, 2}))


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_results_of_an_unroll_are_detached(storage: str) -> None:
    """The agent continues from them, and would otherwise keep every earlier graph alive."""
    case, given = Case(optimizer="adam"), problem("hand_set_discount")
    learner = learner_of(case)
    update, score = partial(inner_update, learner), partial(meta_loss_gradient, learner)
    unroll = Unroll(update, score, state_of(case), given.eta, storage=storage)
    for k in range(2):
        metrics = unroll.update(given.rollouts[k], learning_rate(case))
        assert unroll.updates == k + 1
        loss = unroll.score(given.rollouts[k + 1])
        assert not any(
            tensor.requires_grad for tensor in torch.utils._pytree.tree_leaves((unroll.state, metrics, loss))
        )
    expected, _ = algorithm(case).trajectory(
        given.theta, given.statistics(case.optimizer), given.eta, given.rollouts[:3]
    )
    torch.testing.assert_close(unroll.state.theta, expected[-1], rtol=1e-12, atol=1e-12)
    assert not any(tensor.requires_grad for tensor in unroll.gradient().values())


def test_the_gradient_of_the_meta_loss_is_of_first_order() -> None:
    case = Case()
    theta = {name: p.clone().requires_grad_() for name, p in problem(case.task).theta.items()}
    gradients, loss = meta_loss_gradient(learner_of(case), theta, problem(case.task).rollouts[1])
    assert not any(tensor.requires_grad for tensor in (*gradients.values(), loss))


# --- the inner update -------------------------------------------------------------------------------------------------


@crossed(task=TASKS, encoder_mode=("auxiliary", "joint"), optimizer=RULES, max_gradient_norm=(None, 0.3))
def test_inner_updates_follow_the_transcription(case: Case) -> None:
    given, slow, learner, state = problem(case.task), algorithm(case), learner_of(case), state_of(case)
    expected, _ = slow.trajectory(given.theta, given.statistics(case.optimizer), given.eta, given.rollouts)
    for theta, rollout, following in zip(expected, given.rollouts, given.rollouts[1:], strict=False):
        state, _ = inner_update(learner, state, given.eta, rollout, learning_rate(case))
        torch.testing.assert_close(state.theta, theta, rtol=1e-12, atol=1e-12)
        scored, loss = meta_loss_gradient(learner, state.theta, following)
        whole = slow.meta_loss_gradient(theta, following)
        torch.testing.assert_close(scored, {k: whole[k] for k in scored}, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(loss, slow.meta_loss(theta, following))
        assert not any(whole[k].any() for k in set(whole) - set(scored))


def plain_step(case: Case, **changes: Any) -> tuple[InnerState, InnerMetrics]:
    """One inner update by gradient descent with α′ = 1, so that parameters move by the negative gradient."""
    given, learner = problem(case.task), replace(learner_of(case), optimizer=SGD(), **changes)
    return inner_update(learner, InnerState(given.theta, {}), given.eta, given.rollouts[0], torch.tensor(1.0))


@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_heads_move_by_the_updates_of_the_paper(encoder_mode: str) -> None:
    """Section 3.4: (G^v - v) ∂v/∂θ^v, (G^v - v) ∂log π(a|x)/∂θ^π and (G^{y_i} - y_i) ∂y_i/∂θ^{y_i}, summed by hand.

    Targets and bootstraps have no part in the derivatives.
    """
    case = Case(encoder_mode=encoder_mode)
    given, rollout = problem(case.task), problem(case.task).rollouts[0]
    theta, slow = given.theta, algorithm(case)
    moved_to = plain_step(case, weights=ActorCriticWeights(slow.value_weight, 0.0))[0].theta
    stopped: StopGradientInputs = slow.stop_gradient_inputs(theta, rollout)
    x, alive = stopped.features, 1.0 - rollout.terminated.double()
    returns = slow_returns(rollout.rewards, slow.discount * alive, stopped.next_values, rollout.segment_end)
    u, _ = given.task.network.ask(given.eta, rollout.next_observations)
    gamma = (TASKS[case.task].discount * alive)[..., None].expand_as(u)
    answer_error = slow_returns(u, gamma, stopped.next_answers, rollout.segment_end) - head(theta, "answers", x)
    error, pi = returns - stopped.values, torch.softmax(head(theta, "policy", x), -1)
    expected = {name: torch.zeros_like(theta[name]) for name in ("value.weight", "policy.weight", "answers.weight")}
    steps, num_envs = rollout.rewards.shape
    for t, b in product(range(steps), range(num_envs)):
        a = int(rollout.actions[t, b])
        expected["value.weight"][0] += 2 * slow.value_weight * error[t, b] * x[t, b]
        for other in range(ACTIONS):
            expected["policy.weight"][other] += error[t, b] * (float(a == other) - pi[t, b, other]) * x[t, b]
        for i in range(QUESTIONS):
            expected["answers.weight"][i] += slow.auxiliary_coefficient * answer_error[t, b, i] * x[t, b]
    for name, total in expected.items():
        torch.testing.assert_close(moved_to[name] - theta[name], total / (steps * num_envs))


def unmoved(before: Params, after: Params) -> set[str]:
    """Parts of the network, by the first word of their names, that are bitwise where they were."""
    parts = {name.split(".")[0] for name in before}
    return parts - {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("task", TASKS)
def test_the_rl_loss_leaves_the_answers_alone_and_in_auxiliary_mode_the_encoder(task: str) -> None:
    theta = problem(task).theta
    auxiliary, _ = plain_step(Case(task=task), auxiliary_coefficient=0.0)
    assert unmoved(theta, auxiliary.theta) == {"encoder", "answers"}
    joint, _ = plain_step(Case(task=task, encoder_mode="joint"), auxiliary_coefficient=0.0)
    assert unmoved(theta, joint.theta) == {"answers"}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_the_answer_loss_leaves_policy_and_value_alone(task: str, encoder_mode: str) -> None:
    case = Case(task=task, encoder_mode=encoder_mode)
    without, little, much = (plain_step(case, auxiliary_coefficient=c)[0].theta for c in (0.0, 0.5, 2.0))
    assert unmoved(little, much) == unmoved(without, much) == {"policy", "value"}


@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_the_meta_loss_reaches_encoder_policy_and_value_but_not_the_answers(encoder_mode: str) -> None:
    case = Case(encoder_mode=encoder_mode)
    gradients, _ = meta_loss_gradient(learner_of(case), problem(case.task).theta, problem(case.task).rollouts[1])
    assert {name.split(".")[0] for name, g in gradients.items() if g.any()} == {"encoder", "policy", "value"}
    assert not any(name.startswith("answers.") for name in gradients)


@pytest.mark.parametrize("weighting", ["fixed", "gradient-norm"])
def test_metrics(weighting: str) -> None:
    case = Case(encoder_mode="joint", max_gradient_norm=0.1, weighting=weighting)
    given, slow, rollout = problem(case.task), algorithm(case), problem(case.task).rollouts[0]
    _, metrics = inner_update(learner_of(case), state_of(case), given.eta, rollout, learning_rate(case))
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
    )
    torch.testing.assert_close(metrics, expected)
    assert metrics.gradient_norm > 0.1
    assert not any(metric.requires_grad for metric in metrics)


def test_a_single_step_of_a_single_environment() -> None:
    """Where nothing varies there is no variance, and no warning about it."""
    case, given = Case(), problem("hand_set_discount")
    one = random_rollout(0, steps=3, num_envs=1, ends=False)
    one = Rollout(*(part[-1:] for part in one[:6]), torch.tensor([0]), torch.tensor([[0]]))
    state, metrics = inner_update(learner_of(case), state_of(case), given.eta, one, learning_rate(case))
    assert all(value.isfinite().all() for value in (*state.theta.values(), *metrics))


@crossed(optimizer=RULES, storage=("graph", "recompute"))
def test_arguments_are_left_as_they_are(case: Case) -> None:
    given, state = problem(case.task), state_of(case)
    arguments = (state, given.eta, given.rollouts)
    before = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
    learner = learner_of(case)
    inner_update(learner, state, given.eta, given.rollouts[0], learning_rate(case))
    meta_loss_gradient(learner, state.theta, given.rollouts[1])
    computed(case, learner, state)
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
    learner = replace(learner_of(case), network=network, task=task)
    gradient = meta_gradient(
        partial(inner_update, learner),
        partial(meta_loss_gradient, learner),
        InnerState(network.params(), {}),
        {},
        problem("pixel_control").rollouts[:3],
        learning_rate(case),
        horizon=horizon,
        storage=storage,
    )
    assert gradient == {}


def test_random_questions_are_those_of_discovered_ones_but_not_for_training() -> None:
    case = Case()
    task = problem(case.task).task
    random = RandomGVFs(task.network, task.discount)
    assert task.discovers
    assert not random.discovers
    torch.testing.assert_close(computed(case, replace(learner_of(case), task=random)), computed(case), rtol=0, atol=0)


# --- zero gradients ---------------------------------------------------------------------------------------------------


def with_theta(case: Case, **values: float) -> InnerState:
    """Parameters amid training but for those whose names start with these words, and fresh statistics."""
    theta = {
        name: next((torch.full_like(p, value) for word, value in values.items() if name.startswith(word)), p)
        for name, p in problem(case.task).theta.items()
    }
    return InnerState(theta, learner_of(case).optimizer.init(theta))


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
    given, learner = problem(case.task), learner_of(case)
    assert not encode(state.theta, given.rollouts[0].observations).any()
    after, _ = inner_update(learner, state, given.eta, given.rollouts[0], learning_rate(case))
    assert unmoved(state.theta, after.theta) == {"encoder"}
    gradient = flat(computed(case, learner, state))
    assert gradient.isfinite().all()
    # the answers' biases still move, which reaches the rest through the norm that all gradients are divided by
    assert bool(gradient.any()) == (case.max_gradient_norm is not None)


@zero_cases
def test_finite_where_the_whole_inner_gradient_is_zero(case: Case) -> None:
    """No advantages, no entropy bonus, no answer loss: the gradient's norm, which clipping divides by, is zero."""
    learner = replace(learner_of(case), weights=ActorCriticWeights(0.5, 0.0), auxiliary_coefficient=0.0)
    state, given = with_theta(case, value=0.0), problem(case.task)
    batches = [rollout._replace(rewards=torch.zeros_like(rollout.rewards)) for rollout in given.rollouts[:3]]
    after, metrics = inner_update(learner, state, given.eta, batches[0], learning_rate(case))
    assert metrics.gradient_norm == 0
    assert unmoved(state.theta, after.theta) == {"encoder", "policy", "value", "answers"}
    update, score = partial(inner_update, learner), partial(meta_loss_gradient, learner)
    # scored on rewards, so that something comes back through the zero gradients
    unroll = Unroll(update, score, state, given.eta, storage=case.storage)
    for k in range(2):
        unroll.update(batches[k], learning_rate(case))
        unroll.score(given.rollouts[k + 1])
    assert flat(unroll.gradient()).isfinite().all()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], got 1\.5"),
        ({"discount": -0.1}, r"discount must lie in \[0, 1\], got -0\.1"),
        ({"discount": math.nan}, r"discount must lie in \[0, 1\], got nan"),
        ({"auxiliary_coefficient": -1.0}, r"auxiliary_coefficient must be >= 0, got -1\.0"),
        ({"auxiliary_coefficient": math.nan}, r"auxiliary_coefficient must be a finite number >= 0, got nan"),
        ({"max_gradient_norm": 0.0}, r"max_gradient_norm must be > 0, got 0\.0"),
        ({"max_gradient_norm": math.nan}, r"max_gradient_norm must be a finite number > 0, got nan"),
        ({"encoder_mode": "both"}, r"encoder_mode must be one of \('auxiliary', 'joint'\), got 'both'"),
        ({"convention": "exakt"}, r"convention must be one of \('exact', 'surrogate'\), got 'exakt'"),
    ],
)
def test_invalid_learner(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(learner_of(Case()), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "mean"}, r"objective must be one of \('sum', 'end'\), got 'mean'"),
        ({"horizon": "far"}, r"horizon must be one of \('unrolled', 'myopic'\), got 'far'"),
        ({"storage": "disk"}, r"storage must be one of \('graph', 'recompute'\), got 'disk'"),
    ],
)
def test_invalid_choices(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        computed(replace(Case(), **changes), learner_of(Case()), state_of(Case()))


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_a_gradient_needs_a_score(updates: int) -> None:
    case = Case()
    learner, given = learner_of(case), problem(case.task)
    unroll = Unroll(partial(inner_update, learner), partial(meta_loss_gradient, learner), state_of(case), given.eta)
    for rollout in given.rollouts[:updates]:
        unroll.update(rollout, learning_rate(case))
    with pytest.raises(RuntimeError, match=r"without any scored update: call update\(\) and score\(\) first"):
        unroll.gradient()


def test_a_score_needs_an_update() -> None:
    case = Case()
    learner, given = learner_of(case), problem(case.task)
    unroll = Unroll(partial(inner_update, learner), partial(meta_loss_gradient, learner), state_of(case), given.eta)
    with pytest.raises(RuntimeError, match="score"):
        unroll.score(given.rollouts[0])


# --- memory -----------------------------------------------------------------------------------------------------------


def living_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_unrolls_leave_nothing_behind(storage: str) -> None:
    case = Case(optimizer="adam", storage=storage)
    learner, state = learner_of(case), state_of(case)
    computed(case, learner, state)
    before = living_tensors()
    for _ in range(50):
        computed(case, learner, state)
    assert living_tensors() <= before


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_unrolls_free_every_byte(storage: str) -> None:
    """Python's garbage collector does not see the tensors that autograd saves; the profiler counts all allocations."""
    case = Case(storage=storage)
    learner, state = learner_of(case), state_of(case)
    computed(case, learner, state)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(2):
            computed(case, learner, state)
        gc.collect()
    events = profiler.events()
    assert sum(max(0, event.self_cpu_memory_usage) for event in events) > 1e5
    assert sum(event.self_cpu_memory_usage for event in events) == 0


# --- compiled ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of torch's own, on import
def test_compiled_functions_give_the_same_gradient() -> None:
    """In batches with one number of bootstraps, as every new one is compiled anew, which takes long."""
    case = Case()
    learner, given = learner_of(case), problem(case.task)
    batches = [batch for batch in map(random_rollout, range(20)) if len(batch.bootstrap_index) == 4][:3]

    def gradient(compiled: Callable[[Any], Any]) -> Params:
        update, score = compiled(partial(inner_update, learner)), compiled(partial(meta_loss_gradient, learner))
        return meta_gradient(update, score, state_of(case), given.eta, batches, learning_rate(case))

    assert relative_error(gradient(partial(torch.compile, fullgraph=True)), gradient(lambda eager: eager)) < 1e-12
