"""Pull-backs against Jacobians by central differences."""

from __future__ import annotations

import torch
from torch import Tensor

from dgvf_agents.core.types import Params
from dgvf_agents.core.vjp import first_result, vjp
from tests.core_oracles import central_difference

GENERATOR = torch.Generator().manual_seed(0)
X, Y, Z = (torch.randn(3, dtype=torch.float64, generator=GENERATOR) for _ in range(3))


def function(state: dict[str, Tensor], scale: Tensor, constant: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    x, y = state["x"], state["y"]
    return {"moved": (x * y).sin() * scale, "kept": y**3 + constant}, x.sum()


def jacobian_product(cotangents: list[Tensor], argument: str) -> Tensor:
    """Σ_i cotangent_i · ∂output_i/∂argument by central differences."""

    def product(given: Params) -> Tensor:
        outputs, _ = function({"x": given["x"], "y": given["y"]}, given["z"], X)
        return sum((c * o).sum() for c, o in zip(cotangents, outputs.values(), strict=True))  # type: ignore[return-value]

    given = {"x": X, "y": Y, "z": Z}
    return torch.tensor([central_difference(product, given, argument, i, 1e-6) for i in range(3)], dtype=X.dtype)


def test_products_are_those_of_the_jacobian_and_addends_are_added() -> None:
    cotangents, addends = [Y, Z], [X, 2.0 * Y, 3.0 * Z]
    results, pull_back = vjp(function, ({"x": X, "y": Y}, Z, X), 2)
    torch.testing.assert_close(results, function({"x": X, "y": Y}, Z, X))
    assert not any(value.requires_grad for value in [*results[0].values(), results[1]])
    for argument, product, addend in zip("xyz", pull_back(cotangents, addends), addends, strict=True):
        assert product is not None
        torch.testing.assert_close(product, addend + jacobian_product(cotangents, argument), rtol=1e-8, atol=1e-8)


def test_products_that_are_not_needed_are_none() -> None:
    _, pull_back = vjp(function, ({"x": X, "y": Y}, Z, X), 2)
    x, y, scale = pull_back([Y, Z], [None, torch.zeros(3, dtype=torch.float64), None])
    assert x is None
    assert scale is None
    assert y is not None
    torch.testing.assert_close(y, jacobian_product([Y, Z], "y"), rtol=1e-8, atol=1e-8)


def test_of_what_a_result_does_not_depend_on_the_addend_is_left() -> None:
    for addends, expected in (([X, Y], (X + 2.0, Y)), ([0.0, 0.0], (torch.full_like(X, 2.0), torch.zeros_like(Y)))):
        _, pull_back = vjp(lambda x, y: x * 2.0, (X, Y), 2)
        torch.testing.assert_close(tuple(pull_back([torch.ones(3, dtype=torch.float64)], addends)), expected)


def test_the_first_result() -> None:
    assert first_result(({"x": X}, Y)) == [X]
    assert first_result({"x": X, "y": Y}) == [X, Y]
