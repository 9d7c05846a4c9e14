"""Learners with batches of their own, and one learner with all batches side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch

from dgvf_agents.core.types import Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.learner_group import LearnerGroup, rank
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.learner import DiscoveryLearner, LearnerState, MetaSettings
from tests.core.metagradient_problem import ACTIONS, Case, problem_of, random_log_probs, rule_of, state_of
from tests.random_rollouts import random_rollout, side_by_side

BOUNDS = (0.9, 0.8)
RATE, META_RATE, UPDATES, STEPS = 0.05, 0.03, 2, 7
"""Three unrolls of two updates, and one update more."""

OPTIONS: dict[str, tuple[Any, ...]] = {
    "encoder_mode": ("joint", "auxiliary"),
    "task": ("shared", "learned_discounts"),
    "storage": ("graph", "recompute"),
    "weighting": ("fixed", "gradient-norm"),
    "convention": ("exact", "surrogate"),
}
ALL = [
    Case(**dict(zip(OPTIONS, values, strict=True)), bounds=BOUNDS, max_gradient_norm=0.3)
    for values in product(*OPTIONS.values())
]
PAIRS = [ALL[16 * a + 8 * b + 4 * c + 2 * (a ^ b) + (a ^ c)] for a, b, c in product((0, 1), repeat=3)]
"""Cases with every pair of options."""
OTHERS = [
    replace(PAIRS[1], objective="end", max_gradient_norm=None),
    replace(PAIRS[2], horizon="myopic", optimizer="adam"),
    replace(PAIRS[5], bounds=None, optimizer="sgd", task="reward_prediction"),
]
QUICK = [*PAIRS, *OTHERS]


class Outcome(NamedTuple):
    """What learning led to."""

    state: LearnerState
    moments: dict[str, torch.Tensor]
    """Adam's, of η."""


@cache
def batches(case: Case, learner: int) -> tuple[Rollout, ...]:
    """The batches of one learner; their numbers of bootstrap states differ."""
    given = problem_of(case)
    shape = tuple(given.rollouts[0].observations.shape[2:])  # type: ignore[union-attr]
    rollouts = []
    for k in range(STEPS):
        seed = 100 * (learner + 1) + k
        rollout = random_rollout(seed, shape=shape, actions=ACTIONS, index_terminated=given.task.reads_features)
        rollouts.append(rollout if case.bounds is None else rollout._replace(behavior_log_probs=random_log_probs(seed)))
    return tuple(rollouts)


def learned(case: Case, rollouts: Sequence[Rollout], learners: int = 1) -> Outcome:
    """One of several learners, or one alone, after an update on each batch."""
    rule = replace(rule_of(case), averaging=LearnerGroup(learners) if learners > 1 else None)
    given, start = problem_of(case), state_of(case)
    learner = DiscoveryLearner(
        UpdateFunctions(rule, given.eta, Compilation(False)),
        start.theta,
        start.optimizer,
        given.eta,
        discovers=True,
        settings=MetaSettings(UPDATES, case.objective, case.horizon, case.storage, 0.02, 0.01),  # type: ignore[arg-type]
    )
    for rollout in rollouts:
        learner.step(rollout, RATE, META_RATE)
    (moments,) = learner.meta_optimizer_state["state"].values()
    return Outcome(learner.get_state()._replace(unroll=None), moments)


def learned_together(cases: Sequence[Case], learners: int = 2) -> list[Outcome]:
    """What one of the learners learns; called in each of their processes."""
    torch.set_default_dtype(torch.float64)
    return [learned(case, batches(case, rank()), learners) for case in cases]


def learned_alone(case: Case, learners: int = 2) -> Outcome:
    """What one learner learns from the batches of all."""
    joined = zip(*(batches(case, learner) for learner in range(learners)), strict=True)
    index_terminated = problem_of(case).task.reads_features
    return learned(case, [side_by_side(parts, index_terminated) for parts in joined])
