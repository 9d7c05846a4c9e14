"""Several learners: each has a batch of its own, and together they are one learner with all batches side by side."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.core.metagradient_problem import Case
from tests.impala.learner_oracles import ALL, QUICK, Outcome, learned_alone, learned_together
from tests.impala.learner_processes import together

pytestmark = pytest.mark.usefixtures("double_precision")


def name(case: Case) -> str:
    values = {field.name: getattr(case, field.name) for field in fields(case)}
    usual = {field.name: field.default for field in fields(case)}
    return "-".join(str(value) for key, value in values.items() if value != usual[key] and isinstance(value, str))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> list[list[Outcome]]:
    """The quick cases by learner, learned by two processes."""
    return together(learned_together, tmp_path_factory.mktemp("quick"), QUICK)


def assert_one_learner(case: Case, first: Outcome, second: Outcome, whole: Outcome) -> None:
    own, expected = first.state, whole.state
    assert (own.updates, own.meta_updates, own.meta_skipped) == (expected.updates, 3, 0)
    for part in ("theta", "statistics", "eta"):
        torch.testing.assert_close(getattr(own, part), getattr(expected, part), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(first.moments, whole.moments, rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(own.meta_loss, expected.meta_loss)
    torch.testing.assert_close(own.meta_gradient_norm, expected.meta_gradient_norm)
    metrics: dict[str, Any] = own.metrics._asdict()  # type: ignore[union-attr]
    for key, value in expected.metrics._asdict().items():  # type: ignore[union-attr]
        if key != "explained_variance":
            torch.testing.assert_close(metrics[key], value, msg=lambda text, key=key: f"{key}: {text}")
    for one, other in zip(tree_leaves(first), tree_leaves(second), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize("index", range(len(QUICK)), ids=[name(case) for case in QUICK])
def test_two_learners_are_one_with_both_batches(quick: list[list[Outcome]], index: int) -> None:
    first, second = (outcomes[index] for outcomes in quick)
    assert_one_learner(QUICK[index], first, second, learned_alone(QUICK[index]))
