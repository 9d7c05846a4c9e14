"""What an agent has learned besides θ: the inner optimizer's statistics, η, and Adam's state on η."""

from __future__ import annotations

from typing import Any, final

import torch

from dgvf_agents.optimizers import OptimizerState
from dgvf_agents.types import Params


@final
class LearnerState:
    """Holds and restores the tensors that change while learning, by the names of a state dict."""

    def __init__(self, optimizer: OptimizerState, eta: Params, meta_learning_rate: float) -> None:
        """
        Args:
            optimizer: statistics of the inner update.
            eta: η at first, empty where nothing is discovered.
            meta_learning_rate: α of Adam.
        """
        self.optimizer = optimizer
        self.eta = eta
        self._meta_parameters = {name: value.clone().requires_grad_() for name, value in eta.items()}
        self._meta_optimizer = torch.optim.Adam(self._meta_parameters.values(), lr=meta_learning_rate) if eta else None

    def meta_step(self, gradient: Params) -> None:
        """η ← η - α Adam(gradient); η's tensors are new ones afterwards, those handed out stay as they are."""
        assert self._meta_optimizer is not None
        for name, parameter in self._meta_parameters.items():
            parameter.grad = gradient[name]
        self._meta_optimizer.step()
        self.eta = {name: parameter.detach().clone() for name, parameter in self._meta_parameters.items()}

    def state_dict(self) -> dict[str, Any]:
        """All of it, as nested dicts of tensors and numbers."""
        meta = self._meta_optimizer.state_dict() if self._meta_optimizer is not None else {}
        return {"optimizer": self.optimizer, "eta": self.eta, "meta_optimizer": meta}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the names do not match this agent's, and `strict`.
        """
        if strict and (set(state["eta"]) != set(self.eta) or set(state["optimizer"]) != set(self.optimizer)):
            raise ValueError(f"state must have the names of η {sorted(self.eta)}, got {sorted(state['eta'])}")
        self.optimizer = {k: {n: t.clone() for n, t in stats.items()} for k, stats in state["optimizer"].items()}
        self.eta = {name: value.clone() for name, value in state["eta"].items()}
        with torch.no_grad():
            for name, parameter in self._meta_parameters.items():
                parameter.copy_(state["eta"][name])
        if self._meta_optimizer is not None:
            self._meta_optimizer.load_state_dict(state["meta_optimizer"])
