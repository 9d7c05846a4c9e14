from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from dgvf_agents.core.returns import bootstrapped_returns, lambda_returns, per_step_discounts, window_index
from tests.core_oracles import slow_lambda_returns, slow_returns, slow_window

pytestmark = pytest.mark.usefixtures("double_precision")

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 6)


def random_segment_end(steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
    segment_end = torch.rand(steps, num_envs, generator=generator) < 0.3
    segment_end[-1] = True
    return segment_end


def discounts_like(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """In [0, 1), zero at times as after a termination."""
    sizes = {"scalar": (), "per_question": shape[2:], "per_step": (*shape[:2], *(1 for _ in shape[2:])), "full": shape}
    values = torch.rand(sizes[kind], generator=generator)
    return values * (torch.rand(values.shape, generator=generator) > 0.1)


@given(
    seed=SEEDS,
    steps=SIZES,
    num_envs=SIZES,
    tail=st.sampled_from([(), (4,), (2, 3)]),
    kind=st.sampled_from(["scalar", "per_question", "per_step", "full"]),
)
def test_returns_equal_their_definition(seed: int, steps: int, num_envs: int, tail: tuple[int, ...], kind: str) -> None:
    generator, shape = torch.Generator().manual_seed(seed), (steps, num_envs, *tail)
    cumulants, bootstraps = (torch.randn(shape, generator=generator) for _ in range(2))
    discounts, segment_end = discounts_like(kind, shape, generator), random_segment_end(steps, num_envs, generator)
    expected = slow_returns(cumulants, discounts, bootstraps, segment_end)
    torch.testing.assert_close(bootstrapped_returns(cumulants, discounts, bootstraps, segment_end), expected)


def test_the_return_of_ones_is_a_geometric_series() -> None:
    ones, segment_end = torch.ones(7, 2), torch.zeros(7, 2, dtype=torch.bool)
    segment_end[[3, 6]] = True
    forever = torch.full((7, 2), 1 / (1 - 0.9))
    torch.testing.assert_close(bootstrapped_returns(ones, torch.tensor(0.9), forever, segment_end), forever)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0, torch.tensor(0.9)])
def test_discounts_are_zero_on_terminated_steps(dtype: torch.dtype, discount: Tensor | float) -> None:
    terminated = torch.tensor([[False, True], [True, False]])
    discounts = per_step_discounts(discount, terminated, dtype)
    assert discounts.dtype == torch.result_type(torch.empty(1, dtype=dtype), discount)
    expected = [[0.0 if end else float(discount) for end in row] for row in terminated.tolist()]
    torch.testing.assert_close(discounts.double(), torch.tensor(expected), rtol=1e-7, atol=0)


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, length=st.integers(1, 8))
def test_windows_equal_their_definition(seed: int, steps: int, num_envs: int, length: int) -> None:
    segment_end = random_segment_end(steps, num_envs, torch.Generator().manual_seed(seed))
    expected = [[slow_window(segment_end, t, b, length) for b in range(num_envs)] for t in range(steps)]
    assert window_index(segment_end, length).tolist() == expected


def test_windows_stay_on_the_device_of_their_segment_ends() -> None:
    index = window_index(torch.ones(5, 2, dtype=torch.bool, device="meta"), 3)
    assert index.device.type == "meta"
    assert index.shape == (5, 2, 3)


@given(seed=SEEDS, steps=SIZES, num_envs=SIZES, gae_lambda=st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_lambda_returns_mix_the_returns_of_every_length(
    seed: int, steps: int, num_envs: int, gae_lambda: float
) -> None:
    """(1-λ) Σ_n λ^(n-1) G^(n), the rest of the weight on the longest; with λ = 1 the longest alone."""
    generator, shape = torch.Generator().manual_seed(seed), (steps, num_envs)
    rewards, values, bootstraps = (torch.randn(shape, generator=generator) for _ in range(3))
    discounts, segment_end = (
        discounts_like("per_step", shape, generator),
        random_segment_end(steps, num_envs, generator),
    )
    returns = lambda_returns(rewards, discounts, values, bootstraps, segment_end, gae_lambda)
    expected = slow_lambda_returns(rewards, discounts, values, bootstraps, segment_end, gae_lambda)
    torch.testing.assert_close(returns, expected, rtol=0, atol=1e-12)
    if gae_lambda == 1.0:
        torch.testing.assert_close(returns, bootstrapped_returns(rewards, discounts, bootstraps, segment_end))


# --- the shapes in the core's annotations are checked while tests run, and only then ----------------------------------

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
