"""The shapes in the core's annotations are checked while tests run, and only then."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from dgvf_agents.core.inner_update import inner_update
from dgvf_agents.core.losses import normalize
from dgvf_agents.core.networks import MLPEncoder
from dgvf_agents.core.returns import bootstrapped_returns
from dgvf_agents.core.tasks import RewardPrediction
from tests.core.metagradient_problem import Case, learning_rate, problem, rule_of, state_of
from tests.random_rollouts import random_rollout
from tests.shape_checks import checked, install

pytestmark = pytest.mark.usefixtures("double_precision")

END = torch.tensor([[False, False], [True, True]])
VALUES = torch.zeros(2, 2, 3)
DISCOUNTS = torch.tensor(0.9)


@pytest.mark.parametrize(
    ("cumulants", "bootstraps", "segment_end"),
    [
        (VALUES, VALUES[..., :2], END),  # other questions
        (VALUES, VALUES, END[:, :1]),  # fewer environments
        (VALUES, VALUES, END.long()),
        (VALUES.long(), VALUES.long(), END),
    ],
)
def test_wrong_shapes_and_types_are_refused(cumulants: Tensor, bootstraps: Tensor, segment_end: Tensor) -> None:
    assert bootstrapped_returns(VALUES, DISCOUNTS, VALUES, END).shape == VALUES.shape
    with pytest.raises(TypeCheckError, match="bootstrapped_returns"):
        bootstrapped_returns(cumulants, DISCOUNTS, bootstraps, segment_end)


def test_methods_are_checked() -> None:
    answers = torch.zeros(4, 3, 2)
    with pytest.raises(TypeCheckError, match="bootstraps"):
        RewardPrediction().loss(answers, answers[..., :1], {}, random_rollout(0))
    with pytest.raises(TypeCheckError, match="observations"):
        MLPEncoder(2)(torch.zeros(()))


def test_results_are_checked() -> None:
    def one_step_short(rewards: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
        return rewards[1:]

    with pytest.raises(TypeCheckError, match="return value"):
        checked(one_step_short)(torch.zeros(4, 3))


@pytest.mark.parametrize(("field", "start"), [("rewards", 1), ("terminated", 1), ("bootstrap_slot", 1)])
def test_fields_of_records_are_checked(field: str, start: int) -> None:
    case, given = Case(), problem("hand_set_discount")
    rollout = given.rollouts[0]
    update = partial(inner_update, rule_of(case), state_of(case), given.eta)
    with pytest.raises(TypeCheckError, match="Rollout"):
        update(rollout._replace(**{field: getattr(rollout, field)[start:]}), learning_rate(case))


def test_functions_are_not_checked_while_they_are_compiled() -> None:
    """A wrapper that the compiler cannot trace would be an error with `fullgraph`."""
    torch.compiler.reset()
    compiled = torch.compile(normalize, fullgraph=True, backend="eager")
    advantages = torch.randn(4, 3)
    torch.testing.assert_close(compiled(advantages), normalize(advantages))
    torch.compiler.reset()


def test_checks_cannot_be_installed_too_late() -> None:
    with pytest.raises(RuntimeError, match=r"must be installed before .*dgvf_agents\.core"):
        install()


def test_users_do_not_pay_for_checks() -> None:
    program = "import sys, dgvf_agents; from dgvf_agents.core.losses import normalize; print('beartype' in sys.modules)"
    program += "; print(hasattr(normalize, '__wrapped__'))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
