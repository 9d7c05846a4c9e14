"""The shapes in the core's annotations are checked while tests run, and only then."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from dgvf_agents.core.returns import bootstrapped_returns

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


def test_users_do_not_pay_for_checks() -> None:
    program = "import sys, dgvf_agents; from dgvf_agents.core.losses import normalize; print('beartype' in sys.modules)"
    program += "; print(hasattr(normalize, '__wrapped__'))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
