"""Arguments out of range are refused by name, with their value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgvf_agents.core import argument_checks as checks
from dgvf_agents.core.networks import AtariCNNEncoder, GridCNNEncoder, MLPEncoder, QuestionNetwork
from dgvf_agents.core.optimizers import Adam, RMSProp
from dgvf_agents.core.question_networks import PrincipalQuestions, SharedQuestionNetwork, principal_components
from dgvf_agents.core.targets import VTraceTargets
from dgvf_agents.core.tasks import DiscoveredGVFs, GVFTask, PixelControl, RandomGVFs
from tests.random_rollouts import random_rollout

OTHERS: list[Any] = [math.nan, -math.inf, "1", None, True, [0.5], 1j, np.array(0.5)]
"""Values that are not finite numbers."""

CASES: list[tuple[Callable[..., None], list[Any], list[Any]]] = [
    (checks.check_counts, [1, 2, np.int64(4), np.uint8(1)], [0, -1, 1.5, 4.0, np.float64(4.0), math.inf]),
    (checks.check_fractions, [0.0, 0.5, 1.0, 1, np.float32(0.5), np.int64(1)], [-0.1, 1.1, math.inf]),
    (checks.check_fractions_below_one, [0.0, 0.5, np.float32(0.5), np.int64(0)], [-0.1, 1.0, 1, math.inf]),
    (checks.check_positive, [1e-9, 1, np.float32(0.1), np.int64(1)], [0.0, -1, math.inf, 1e39]),
    (checks.check_positive_or_infinite, [1e-9, math.inf], [0.0, -1]),
    (checks.check_not_negative, [0.0, 1, np.float32(0.0)], [-1e-9, math.inf]),
]


@pytest.mark.parametrize(("check", "right", "wrong"), CASES, ids=[check.__name__ for check, *_ in CASES])
def test_checks_name_the_argument_and_its_value(check: Callable[..., None], right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        check(number=value)
    for value in (*wrong, *OTHERS):
        with pytest.raises(ValueError, match=r"^second must ") as refusal:
            check(first=right[0], second=value)
        assert str(refusal.value).endswith(f"got {value!r}")


def questions(learned: bool = False) -> QuestionNetwork:
    return QuestionNetwork(MLPEncoder(5, (6,)), 6, 4, learned)


def pixel_changes(shape: tuple[int, ...], **options: int) -> Tensor:
    return PixelControl(3, **options).cumulants(random_rollout(0, shape=shape))


def refused_questions(kind: type[GVFTask]) -> list[tuple[Callable[[], object], str]]:
    return [
        (lambda: kind(questions(), 0.9, window=0), "window must be >= 1, got 0"),
        (lambda: kind(questions(), 1.0), "discount must .*got 1.0"),
        (lambda: kind(questions(), None), "discount must be a number .*got None"),
        (lambda: kind(questions(learned=True), 0.9), "discount must be None .*got 0.9"),
    ]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: MLPEncoder(2, ()), "hidden must .*got "),
    (lambda: MLPEncoder(1, (6,), [0.0], None), "low and high must .*got .*None"),
    (lambda: MLPEncoder(1, (6,), None, [1.0]), "low and high must .*got None"),
    (lambda: GridCNNEncoder((3, 2, 9)), "shape must .*got .*2, 9"),
    (lambda: AtariCNNEncoder((4, 35, 84)), "shape must .*got .*35, 84"),
    (lambda: QuestionNetwork(MLPEncoder(5, (6,)), 6, 0, learned_discounts=False), "num_questions must .*got 0"),
    (lambda: SharedQuestionNetwork(7, 0, True), "num_questions must .*got 0"),
    (lambda: PrincipalQuestions(questions(), 0), "count must be .*got 0"),
    (lambda: PrincipalQuestions(questions(), 5), "count must be .*got 5"),
    (lambda: PrincipalQuestions(questions(learned=True), 2), "network must have no discount head"),
    (lambda: principal_components(torch.randn(20, 4), 0), "count must be .*got 0"),
    (lambda: principal_components(torch.randn(20, 4), 5), "count must be .*got 5"),
    *refused_questions(DiscoveredGVFs),
    *refused_questions(RandomGVFs),
    (lambda: PixelControl(0), "num_actions must .*got 0"),
    (lambda: PixelControl(3, grid=0), "grid must .*got 0"),
    (lambda: PixelControl(3, border=-1), "border must .*got -1"),
    (lambda: PixelControl(3, discount=1.0), "discount must .*got 1.0"),
    (lambda: pixel_changes((1, 4, 5), grid=2), "grid must .*4 x 5 pixels, got 2"),
    (lambda: pixel_changes((1, 4, 4), grid=1, border=2), "grid must .*got 1"),
    (lambda: pixel_changes((4,), grid=2), "observations must .*got "),
    (lambda: PixelControl.over((4, 83, 83), 3), "observations must .*got 83 x 83"),
    (lambda: PixelControl.over((4, 84, 80), 3), "observations must .*got 84 x 80"),
    (lambda: PixelControl.over((1, 4, 4), 3), "observations must .*got 4 x 4"),
    (lambda: RMSProp(decay=1.0), "decay must .*got 1.0"),
    (lambda: RMSProp(epsilon=0.0), "epsilon must .*got 0.0"),
    (lambda: Adam(beta1=1.0), "beta1 must .*got 1.0"),
    (lambda: Adam(epsilon=-1e-5), "epsilon must .*got -1e-05"),
    (lambda: VTraceTargets(0.0, 1.0), "rho_bar must .*got 0.0"),
    (lambda: VTraceTargets(1.0, -1.0), "c_bar must .*got -1.0"),
    (lambda: VTraceTargets(1.0, 2.0), "c_bar must .*got 2.0"),
    (lambda: VTraceTargets(math.nan, 1.0), "rho_bar must .*got nan"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_made_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make()
