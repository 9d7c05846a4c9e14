"""The meta-update: Adam on η."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import check_not_negative, check_positive_or_infinite
from dgvf_agents.core.flat import builder, check_layout, flatten, template

Eta = TypeVar("Eta")


@final
class MetaOptimizer(Generic[Eta]):
    """Adam on η, a tree of tensors. It skips meta-gradients that are too large or not finite, and clips the others.

    An exploded meta-gradient points nowhere: clipping alone would take a step of full length in its direction, and NaN
    would destroy η.
    """

    def __init__(self, eta: Eta, *, epsilon: float = 1e-8) -> None:
        """
        Args:
            eta: the initial η; floating-point tensors in dicts, lists and named tuples. It is copied.
            epsilon: ε of Adam, > 0.

        Raises:
            TypeError: η has something else in it.
        """
        for value in flatten(eta):
            if not value.is_floating_point():
                raise TypeError(f"eta must consist of floating-point tensors, got {value.dtype}")
        self.norm: Tensor | None = None
        """The norm of the last meta-gradient before clipping."""
        self._build: Callable[[list[Tensor]], Eta] = builder(template(eta))
        self._parameters = [value.detach().clone().requires_grad_() for value in flatten(eta)]
        self._adam = torch.optim.Adam(self._parameters, eps=epsilon, fused=True) if self._parameters else None
        self._publish()

    @property
    def eta(self) -> Eta:
        """η, detached. Never modified in place: a step makes new tensors."""
        return self._eta

    def set_eta(self, eta: Eta) -> None:
        """Replace η by one of the same layout; Adam's moments stay.

        Raises:
            ValueError: the layout is another.
        """
        check_layout("eta must be like the one before", eta, self._eta)
        with torch.no_grad():
            for parameter, value in zip(self._parameters, flatten(eta), strict=True):
                parameter.copy_(value)
        self._publish()

    def step(
        self,
        gradient: Eta,
        learning_rate: float,
        *,
        max_norm: float = math.inf,
        skip_norm: float = math.inf,
        clip: Callable[[Eta], Eta] | None = None,
    ) -> bool:
        """η ← η - α Adam(gradient), unless the gradient is skipped.

        Args:
            gradient: a meta-gradient, like η.
            learning_rate: α ≥ 0.
            max_norm: a gradient with a larger Euclidean norm is scaled down to it; > 0, may be infinite.
            skip_norm: a gradient with a larger norm is skipped; > 0, may be infinite. One that is not finite always is.
            clip: clips a gradient in place of `max_norm`.

        Returns:
            whether the step was taken.

        Raises:
            ValueError: a number is out of its range, or the gradient is not like η.
        """
        check_positive_or_infinite(max_norm=max_norm, skip_norm=skip_norm)
        check_not_negative(learning_rate=float(learning_rate))
        check_layout("gradient must be like eta", gradient, self._eta)
        parts = flatten(gradient)
        if self._adam is None:
            return False
        self.norm = _norm(parts)
        # Reading the norm synchronizes with the device, once per meta-update.
        norm = float(self.norm)
        if not norm <= skip_norm or norm == math.inf:  # NaN compares false
            return False
        if clip is not None:
            parts = flatten(clip(gradient))
            if not math.isfinite(float(_norm(parts))):
                return False
        elif norm > max_norm:
            parts = [part * (max_norm / norm) for part in parts]
        self._step(self._adam, parts, learning_rate)
        self._publish()
        return True

    def _step(self, optimizer: torch.optim.Adam, gradients: list[Tensor], learning_rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()

    def _publish(self) -> None:
        """Copy η from Adam's parameters, which are updated in place."""
        self._eta = self._build([parameter.detach().clone() for parameter in self._parameters])

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state dict of Adam; empty without meta-parameters."""
        return deepcopy(self._adam.state_dict()) if self._adam is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the state of Adam by a state dict of the same layout.

        Raises:
            ValueError: there are no meta-parameters, but the state is not empty.
        """
        if self._adam is not None:
            self._adam.load_state_dict(deepcopy(state))
        elif state:
            raise ValueError(f"the state of Adam must be empty without meta-parameters, got {state!r}")


def _norm(parts: list[Tensor]) -> Tensor:
    """The Euclidean norm of all tensors together; unlike `global_norm`, in one pass and not to be differentiated."""
    norms = [torch.linalg.vector_norm(part) for part in parts]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
