"""What an agent has learned besides θ: the inner optimizer's statistics, η, and Adam's state on η."""

from __future__ import annotations

from typing import Any, final

import torch

from dgvf_agents.optimizers import OptimizerState
from dgvf_agents.packing import KEY, PackedLearner
from dgvf_agents.types import Params


@final
class LearnerState:
    """Holds the tensors that change while learning, packed, and names them in a state dict."""

    def __init__(
        self, packed: PackedLearner, optimizer: OptimizerState, eta: Params, meta_learning_rate: float
    ) -> None:
        """
        Args:
            packed: knows how the tensors are packed.
            optimizer: statistics of the inner update at first.
            eta: η at first, empty where nothing is discovered.
            meta_learning_rate: α of Adam.
        """
        self._packed = packed
        self.optimizer: OptimizerState = {KEY: packed.optimizer.pack(optimizer)}
        self.eta: Params = packed.eta.pack(eta)
        self._meta_parameters = [value.clone().requires_grad_() for value in self.eta.values()]
        self._meta_optimizer = (
            torch.optim.Adam(self._meta_parameters, lr=meta_learning_rate) if self._meta_parameters else None
        )

    def named_eta(self) -> Params:
        """η by name."""
        return self._packed.eta.unpack(self.eta)

    def meta_step(self, gradient: Params) -> None:
        """η ← η - α Adam(gradient); η's tensors are new ones afterwards, those handed out stay as they are."""
        assert self._meta_optimizer is not None
        for parameter, part in zip(self._meta_parameters, gradient.values(), strict=True):
            parameter.grad = part
        self._meta_optimizer.step()
        self._copy_out()

    def state_dict(self) -> dict[str, Any]:
        """All of it, as nested dicts of tensors and numbers."""
        return {
            "optimizer": self._packed.optimizer.unpack(self.optimizer[KEY]),
            "eta": self.named_eta(),
            "meta_optimizer": self._meta_optimizer.state_dict() if self._meta_optimizer is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the names do not match this agent's, and `strict`.
        """
        for part, own in (("eta", self.named_eta()), ("optimizer", self._packed.optimizer.unpack(self.optimizer[KEY]))):
            if strict and set(state[part]) != set(own):
                raise ValueError(f"state must have under {part!r} the names {sorted(own)}, got {sorted(state[part])}")
        self.optimizer = {KEY: self._packed.optimizer.pack(state["optimizer"])}
        if self._meta_optimizer is not None:
            with torch.no_grad():
                self._meta_parameters[0].copy_(self._packed.eta.pack(state["eta"])[KEY])
            self._meta_optimizer.load_state_dict(state["meta_optimizer"])
            self._copy_out()

    def _copy_out(self) -> None:
        self.eta = {name: p.detach().clone() for name, p in zip(self.eta, self._meta_parameters, strict=True)}
