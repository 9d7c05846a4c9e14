"""The shapes in the core's annotations are checked while tests run, and only then."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from dgvf_agents.core.inner_update import inner_update
from dgvf_agents.core.losses import normalize
from dgvf_agents.core.returns import bootstrapped_returns
from tests.core.metagradient_problem import Case, learning_rate, problem, rule_of, state_of

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


@pytest.mark.parametrize("field", ["rewards", "terminated", "bootstrap_slot"])
def test_fields_of_records_are_checked(field: str) -> None:
    case, given = Case(), problem("hand_set_discount")
    short = given.rollouts[0]._replace(**{field: getattr(given.rollouts[0], field)[1:]})
    with pytest.raises(TypeCheckError, match="Rollout"):
        inner_update(rule_of(case), state_of(case), given.eta, short, learning_rate(case))


def test_functions_are_not_checked_while_they_are_compiled() -> None:
    """A wrapper that the compiler cannot trace would be an error with `fullgraph`."""
    torch.compiler.reset()
    compiled = torch.compile(normalize, fullgraph=True, backend="eager")
    advantages = torch.randn(4, 3)
    torch.testing.assert_close(compiled(advantages), normalize(advantages))
    torch.compiler.reset()


def test_users_do_not_pay_for_checks() -> None:
    program = "import sys, dgvf_agents; from dgvf_agents.core.losses import normalize; print('beartype' in sys.modules)"
    program += "; print(hasattr(normalize, '__wrapped__'))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
