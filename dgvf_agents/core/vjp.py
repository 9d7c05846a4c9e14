"""Vector-Jacobian products of functions of trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from dgvf_agents.core.flat import builder, flatten, template

Result = TypeVar("Result")


Addend = Tensor | float | None
"""Addend of a product: a tensor, or 0.0 for none; `None`: the product is not needed."""


class PullBack(Protocol):
    """The vector-Jacobian product of one call of a function, for one use."""

    def __call__(self, cotangents: Sequence[Tensor], addends: Sequence[Addend]) -> list[Tensor | None]:
        """Jᵀ times the cotangents, plus the addends.

        Args:
            cotangents: of the tensors of the first result, in the order of `flatten`.
            addends: one for each tensor of the differentiated arguments.

        Returns:
            one tensor, or `None`, for each addend.
        """


def first_result(result: Any) -> list[Tensor]:
    """The tensors of a function's result that are differentiated: all, or the first entry of a tuple."""
    return flatten(result[0] if is_plain_tuple(result) else result)


def is_plain_tuple(tree: Any) -> bool:
    """Whether it is a tuple without names."""
    return isinstance(tree, tuple) and not hasattr(tree, "_fields")


def vjp(function: Callable[..., Result], arguments: Sequence[Any], differentiable: int) -> tuple[Result, PullBack]:
    """A function's result and pull-back: by its own method `vjp` if it has one, otherwise by autograd.

    Args:
        function: of tensors in nested tuples, lists and dicts.
        arguments: of the function.
        differentiable: number of leading arguments that it is differentiated in.

    Returns:
        the result, detached, and its pull-back; see `first_result`.

    Raises:
        ValueError: the result is detached from the arguments.
    """
    own = getattr(function, "vjp", None)
    if own is not None:
        found: tuple[Result, PullBack] = own(*arguments)
        return found
    leading = arguments[:differentiable]
    inputs = [value.detach().requires_grad_(value.is_floating_point()) for value in flatten(leading)]
    with torch.enable_grad():
        result = function(*builder(template(tuple(leading)))(inputs), *arguments[differentiable:])
    outputs = first_result(result)
    if not any(value.requires_grad for value in outputs):
        raise ValueError("a step must depend on the state or on eta, got one that is detached from both")
    detached: Result = builder(template(result))([value.detach() for value in flatten(result)])

    def pull_back(cotangents: Sequence[Tensor], addends: Sequence[Addend]) -> list[Tensor | None]:
        wanted = [i for i, addend in enumerate(addends) if addend is not None and inputs[i].requires_grad]
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        products: Sequence[Tensor | None] = [None] * len(wanted)
        if wanted and pairs:
            products = torch.autograd.grad(
                [o for o, _ in pairs], [inputs[i] for i in wanted], [c for _, c in pairs], allow_unused=True
            )
        of_inputs = dict(zip(wanted, products, strict=True))
        return [
            added(addend, of_inputs.get(i), like) for i, (addend, like) in enumerate(zip(addends, inputs, strict=True))
        ]

    return detached, pull_back


def added(addend: Addend, product: Tensor | None, like: Tensor) -> Tensor | None:
    """The sum of an addend and a product, which may be zero (`None`); `None` if it is not needed."""
    if addend is None:
        return None
    if isinstance(addend, Tensor):
        return addend if product is None else addend + product
    return torch.zeros_like(like) if product is None else product
