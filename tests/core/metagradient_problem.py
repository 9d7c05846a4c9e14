"""Small problems for the meta-gradient: networks, parameters, experience, and the options to compute it with."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.distributions import Categorical
from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import (
    InnerState,
    MetaLoss,
    MetaLossFunction,
    Numbers,
    UpdateFunction,
    UpdateRule,
    inner_update,
    meta_loss_gradient,
)
from dgvf_agents.core.networks import AgentNetwork, MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, OptimizerState, RMSProp
from dgvf_agents.core.question_networks import SharedQuestionNetwork
from dgvf_agents.core.targets import OnPolicyTargets, VTraceTargets
from dgvf_agents.core.tasks import AuxiliaryTask, DiscoveredGVFs, PixelControl, RewardPrediction
from dgvf_agents.core.types import Params, Rollout
from tests import covering
from tests.core_oracles import (
    Algorithm,
    AnswerLoss,
    Rule,
    Statistics,
    VTraceAlgorithm,
    gvf_loss,
    pixel_control_loss,
    reward_prediction_loss,
)
from tests.random_rollouts import random_rollout

ACTIONS, QUESTIONS = 3, 5


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


class SharedCase(TaskCase):
    """Questions on the agent's features."""

    def make(self) -> AuxiliaryTask:
        inputs = self.hidden[-1] * self.window
        network = SharedQuestionNetwork(inputs, QUESTIONS, self.discount is None, hidden=(6, 4))
        return DiscoveredGVFs(network, self.discount, self.window)


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

SHARED_TASKS: dict[str, TaskCase] = {
    "shared": SharedCase(),
    "shared_hand_set_discount": SharedCase(hidden=(6, 5), discount=0.8, window=2),
}
_CASES = {**TASKS, **SHARED_TASKS}

RULES = {
    "sgd": Rule("sgd", learning_rate=0.2),
    "rmsprop": Rule("rmsprop", learning_rate=0.1),
    "adam": Rule("adam", learning_rate=0.05),
    "first": Rule("rmsprop", learning_rate=7e-4, epsilon=1e-10, decay=0.99),
}
"""Large steps, so that an update matters to the next ones; and the default of `DGVFA2C` from the first update on."""


@dataclass(frozen=True)
class Case:
    """One combination of the options of the meta-gradient."""

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
    bounds: tuple[float, float] | None = None
    """ρ̄ and c̄ of V-trace; `None`: A2C's returns."""


def crossed(*groups: dict[str, Collection[Any]], **choices: Collection[Any]) -> pytest.MarkDecorator:
    """Run a test for every combination of these choices, in one or several groups; of many, most are slow."""
    cases = []
    for group in groups or (choices,):
        for parameter in covering.crossed(*group.values()):
            case = Case(**dict(zip(group, parameter.values, strict=True)))
            cases.append(pytest.param(case, id=parameter.id, marks=parameter.marks))
    return pytest.mark.parametrize("case", cases)


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


def random_log_probs(seed: int) -> Tensor:
    """Of actions under some policy, on both sides of the problem's."""
    return -0.3 - 2.5 * torch.rand(4, 3, generator=torch.Generator().manual_seed(seed))


def problem(task: str, ends: bool = True, off_policy: bool = False) -> Problem:
    """The problem of a task, always the same one in the default precision."""
    return _problem(task, ends, off_policy, torch.get_default_dtype())


@cache
def _problem(task: str, ends: bool, off_policy: bool, dtype: torch.dtype) -> Problem:
    """T = 4 steps of B = 3 environments, six batches, every parameter of a size at which it matters."""
    case = _CASES[task]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = case.make()
        agent = MLPEncoder(math.prod(case.shape), case.hidden)
        network = AgentNetwork(agent, agent.features, ACTIONS, made.num_answers)
        theta = {k: p + 0.3 * torch.randn(p.shape, dtype=dtype) for k, p in network.params().items()}
        eta = {k: p + 0.3 * torch.randn(p.shape) for k, p in made.initial_meta_params().items()}
    rollouts = tuple(
        random_rollout(
            10 + k, shape=case.shape, actions=ACTIONS, ends=ends, num_unused=k % 2, index_terminated=made.reads_features
        )
        for k in range(6)
    )
    if off_policy:
        rollouts = tuple(rollout._replace(behavior_log_probs=random_log_probs(k)) for k, rollout in enumerate(rollouts))
    return Problem(network, made, theta, eta, rollouts)


def problem_of(case: Case) -> Problem:
    return problem(case.task, case.ends, case.bounds is not None)


def algorithm(case: Case) -> Algorithm:
    kind, options = Algorithm, {}
    if case.bounds is not None:
        kind, options = VTraceAlgorithm, dict(zip(("rho_bar", "c_bar"), case.bounds, strict=True))
    return kind(
        _CASES[case.task].answer_loss(),
        RULES[case.optimizer],
        convention=case.convention,
        encoder_mode=case.encoder_mode,
        horizon=case.horizon,
        max_gradient_norm=case.max_gradient_norm,
        auxiliary_weighting=case.weighting,
        shared_questions=problem_of(case).task.reads_features,
        **options,
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
    corrections = {name: torch.tensor(1.0 - getattr(rule, name) ** statistics.steps) for name in ("beta1", "beta2")}
    return {"first_moment": statistics.first, "second_moment": statistics.second, "corrections": corrections}


def rule_of(case: Case) -> UpdateRule:
    given, slow = problem_of(case), algorithm(case)
    return UpdateRule(
        given.network,
        Categorical(ACTIONS),
        given.task,
        optimizer_of(slow.rule),
        Numbers(
            gamma=slow.discount,
            vf_coef=slow.value_weight,
            ent_coef=slow.entropy_weight,
            auxiliary_coefficient=slow.auxiliary_coefficient,
            max_grad_norm=case.max_gradient_norm,
        ),
        targets=OnPolicyTargets() if case.bounds is None else VTraceTargets(*case.bounds),
        encoder_mode=case.encoder_mode,
        convention=case.convention,
        auxiliary_weighting=case.weighting,
    )


def with_numbers(rule: UpdateRule, **changes: Any) -> UpdateRule:
    """The rule with other numbers."""
    return replace(rule, numbers=rule.numbers._replace(**changes))


def state_of(case: Case) -> InnerState:
    given = problem_of(case)
    return InnerState(given.theta, optimizer_state(RULES[case.optimizer], given.statistics(case.optimizer)))


def learning_rate(case: Case) -> Tensor:
    return torch.tensor(RULES[case.optimizer].learning_rate)


def meta_gradient(
    update: UpdateFunction,
    meta_loss: MetaLossFunction,
    state: InnerState,
    eta: Params,
    rollouts: Sequence[Rollout],
    learning_rate: Tensor,
    objective: str = "sum",
    **options: Any,
) -> Params:
    """The meta-gradient of one iteration of Algorithm 1 with L = len(rollouts) - 1, by an `InnerLoop`."""
    loop = InnerLoop(state, eta, **options)
    for k, (batch, next_batch) in enumerate(pairwise(rollouts)):
        loop.step(update, batch, learning_rate)
        if objective == "sum" or k == len(rollouts) - 2:
            loop.add_loss(MetaLoss(meta_loss), next_batch)
    return loop.gradient()


def computed(
    case: Case,
    rule: UpdateRule | None = None,
    state: InnerState | None = None,
    eta: Params | None = None,
    rollouts: Sequence[Rollout] = (),
) -> Params:
    """The meta-gradient under test, of the problem's parts unless others are given."""
    rule, given = rule or rule_of(case), problem_of(case)
    return meta_gradient(
        partial(inner_update, rule),
        partial(meta_loss_gradient, rule),
        state or state_of(case),
        given.eta if eta is None else eta,
        rollouts or given.rollouts[: case.updates + 1],
        learning_rate(case),
        objective=case.objective,
        horizon=case.horizon,
        storage=case.storage,
    )


def flat(params: Params) -> Tensor:
    return torch.cat([p.flatten() for p in params.values()])


def moved(params: Params, direction: Params, by: float) -> Params:
    return {name: value + by * direction[name] for name, value in params.items()}


def relative_error(actual: Params, expected: Params) -> float:
    """Euclidean distance over the expected norm, which must not be zero."""
    assert list(actual) == list(expected)
    norm = flat(expected).norm()
    assert norm > 1e-12  # RMSProp's very first step is the sign of the gradient where that is not tiny
    return float((flat(actual) - flat(expected)).norm() / norm)


def unmoved(before: Params, after: Params) -> set[str]:
    """Parts of the network, by the first word of their names, that are bitwise where they were."""
    parts = {name.split(".")[0] for name in before}
    return parts - {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


class ExploringNetwork:
    """A network that uses every argument.

    Its encoder adds a running statistic to observations and flips its sign outside training mode. The sharpness of its
    softmax depends on the state's value, a stop-gradient input.
    """

    def __init__(self, network: AgentNetwork) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def encode(self, params: Params, observations: Tensor, batch_dims: int = 2, training: bool = False) -> Tensor:
        params = dict(params)
        x = self._network.encode(params, observations + params.pop("encoder.shift"), batch_dims)
        return x if training else -x

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        sharpness = torch.exp(0.3 * self._network.values(*(held or (params, features))))
        return self._network.policy_outputs(params, features) * sharpness[..., None]
