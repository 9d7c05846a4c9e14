"""Every member of a population against the same member alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.core.inner_update import InnerState, UpdateRule
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.core.unroll import Unroll
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.packing import KEY
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.population.stacking import stacked, stacked_rollouts
from tests.core.metagradient_problem import Case, learning_rate, problem, rule_of, state_of, with_numbers

P, UPDATES = 3, 2

CASES = [
    Case(),
    Case(task="learned_discounts", encoder_mode="joint", weighting="gradient-norm", max_gradient_norm=0.5),
    Case(task="reward_prediction", optimizer="adam", convention="surrogate", storage="recompute"),
    Case(task="pixel_control", optimizer="sgd", encoder_mode="joint", horizon="myopic", objective="end"),
]

SETTINGS = {
    "gamma": [0.9, 0.5, 0.0],
    "auxiliary_coefficient": [0.3, 1.0, 3.0],
    "vf_coef": [0.5, 0.1, 2.0],
}


@dataclasses.dataclass(frozen=True)
class Member:
    """One member alone."""

    rule: UpdateRule
    state: InnerState
    eta: Params
    rollouts: list[Rollout]
    rate: Tensor


def settings_of(case: Case) -> dict[str, list[float]]:
    chosen = dict(SETTINGS)
    if case.optimizer != "sgd":
        chosen["epsilon"] = [1e-3, 1e-2, 1e-1]
    if case.max_gradient_norm is not None:
        chosen["max_grad_norm"] = [0.1, 0.5, 100.0]
    return chosen


def members(case: Case) -> list[Member]:
    """Members with parameters, experience and settings of their own."""
    given, settings, made = problem(case.task, case.ends), settings_of(case), []
    for p in range(P):
        generator = torch.Generator().manual_seed(p)

        def moved(tree: Any, generator: torch.Generator = generator) -> Any:
            return tree_map(lambda value: value + 0.1 * torch.rand(value.shape, generator=generator), tree)

        rule = with_numbers(rule_of(case), **{name: values[p] for name, values in settings.items()})
        start = state_of(case)
        statistics = {name: part if name == "powers" else moved(part) for name, part in start.optimizer.items()}
        rollouts = [
            given.rollouts[(p + 2 * k) % 6]._replace(entropy_weight=torch.tensor(0.01 * (p + 1)))
            for k in range(UPDATES + 1)
        ]
        state = InnerState(moved(start.theta), statistics)
        made.append(Member(rule, state, moved(given.eta), rollouts, (p + 1.0) * learning_rate(case)))
    return made


def unrolled(case: Case, functions: UpdateFunctions, start: InnerState, eta: Params, rollouts: Any, rate: Any) -> Any:
    """θ after every update, the optimizer's statistics and the meta-gradient."""
    update, meta_loss, at_once = functions.at(0)
    unroll = Unroll(
        update, meta_loss, start, eta, update_with_meta_loss=at_once, horizon=case.horizon, storage=case.storage
    )
    thetas, losses = [], []
    for rollout in rollouts[:UPDATES]:
        if case.objective == "sum":
            losses.append(unroll.update_with_meta_loss(rollout, rate)[1])
        else:
            unroll.update(rollout, rate)
        thetas.append(unroll.state.theta[KEY])
    losses.append(unroll.add_meta_loss(rollouts[UPDATES]))
    return thetas, losses, flatten(unroll.state.optimizer), unroll.gradient()[KEY]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.task}-{case.optimizer}")
def test_members_are_what_they_are_alone(case: Case) -> None:
    group, starts, alone = members(case), [], []
    for member in group:
        functions = UpdateFunctions(member.rule, member.eta, Compilation(False))
        starts.append((functions.packed.packed(member.state), functions.packed.eta.pack(member.eta)))
        alone.append(unrolled(case, functions, *starts[-1], member.rollouts, member.rate))
    given = [member.rule.numbers.given() for member in group]
    numbers = {name: torch.tensor([own[name] for own in given]) for name in given[0]}
    functions = UpdateFunctions(rule_of(case), group[0].eta, Compilation(False), numbers)
    rollouts = [stacked_rollouts([member.rollouts[k] for member in group]) for k in range(UPDATES + 1)]
    rates = torch.stack([member.rate for member in group])
    together = list(unrolled(case, functions, *stacked(starts), rollouts, rates))
    for p, expected in enumerate(alone):
        own = builder(template(together))([leaf[p] for leaf in flatten(together)])
        assert float(expected[3].abs().max()) > 0
        torch.testing.assert_close(own, list(expected), rtol=1e-4, atol=1e-6)
