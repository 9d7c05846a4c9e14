"""What an agent has learned besides θ: the inner optimizer's statistics, η, and Adam's state on η."""

from __future__ import annotations

from typing import Any, final

import torch

from dgvf_agents.core.optimizers import OptimizerState
from dgvf_agents.core.types import Params
from dgvf_agents.execution.packing import KEY, PackedFunctions


@final
class LearnerState:
    """Holds the tensors that change while learning, packed; `questions` and `optimizers` name them in state dicts."""

    def __init__(self, packed: PackedFunctions, optimizer: OptimizerState, eta: Params, meta_epsilon: float) -> None:
        """
        Args:
            packed: knows how the tensors are packed.
            optimizer: statistics of the inner update at first.
            eta: η at first, empty where nothing is discovered.
            meta_epsilon: ε of Adam on η.
        """
        self._packed = packed
        self.optimizer: OptimizerState = {KEY: packed.optimizer.pack(optimizer)}
        self.eta: Params = packed.eta.pack(eta)
        self._meta_parameters = [value.clone().requires_grad_() for value in self.eta.values()]
        self.meta_optimizer = (
            torch.optim.Adam(self._meta_parameters, eps=meta_epsilon, fused=True) if self._meta_parameters else None
        )
        self.questions = QuestionParameters(self)
        self.optimizers = OptimizerStates(self)

    def named_eta(self) -> Params:
        """η by name."""
        return self._packed.eta.unpack(self.eta)

    def take_eta(self, eta: Params) -> None:
        """Go on with this η, by name; tensors handed out before stay as they are."""
        with torch.no_grad():
            for parameter, value in zip(self._meta_parameters, self._packed.eta.pack(eta).values(), strict=True):
                parameter.copy_(value)
        self._copy_out()

    def named_optimizer(self) -> OptimizerState:
        """The inner optimizer's statistics by name."""
        return self._packed.optimizer.unpack(self.optimizer[KEY])

    def take_optimizer(self, state: OptimizerState) -> None:
        """Go on with these statistics, by name."""
        self.optimizer = {KEY: self._packed.optimizer.pack(state)}

    def meta_step(self, gradient: Params, learning_rate: float) -> None:
        """η ← η - α Adam(gradient), α the learning rate.

        η's tensors are new ones afterwards, those handed out stay as they are.
        """
        assert self.meta_optimizer is not None
        for parameter, part in zip(self._meta_parameters, gradient.values(), strict=True):
            parameter.grad = part
        for group in self.meta_optimizer.param_groups:
            group["lr"] = learning_rate
        self.meta_optimizer.step()
        self._copy_out()

    def _copy_out(self) -> None:
        self.eta = {name: p.detach().clone() for name, p in zip(self.eta, self._meta_parameters, strict=True)}


@final
class QuestionParameters:
    """η as a state dict of named tensors, like a network's."""

    def __init__(self, state: LearnerState) -> None:
        self._state = state

    def state_dict(self) -> Params:
        """η by name."""
        return self._state.named_eta()

    def load_state_dict(self, state: Params, strict: bool = True) -> None:
        """Restore what `state_dict` returned; with `strict` false, the tensors that it has.

        Raises:
            ValueError: the names do not match this agent's, and `strict`.
        """
        own = self._state.named_eta()
        if strict:
            _check_names("questions", state, own)
        self._state.take_eta({name: state.get(name, value) for name, value in own.items()})


@final
class OptimizerStates:
    """The inner optimizer's statistics and Adam's state on η as a state dict."""

    def __init__(self, state: LearnerState) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Both, as nested dicts of tensors and numbers."""
        meta = self._state.meta_optimizer
        return {
            "inner": self._state.named_optimizer(),
            "meta": meta.state_dict() if meta is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the names do not match this agent's.
        """
        _check_names("optimizers", state, self.state_dict())
        _check_names("inner", state["inner"], self._state.named_optimizer())
        self._state.take_optimizer(state["inner"])
        if self._state.meta_optimizer is not None:
            self._state.meta_optimizer.load_state_dict(state["meta"])


def _check_names(what: str, state: dict[str, Any], own: dict[str, Any]) -> None:
    if set(state) != set(own):
        raise ValueError(f"state must have under {what!r} the names {sorted(own)}, got {sorted(state)}")
