"""Optimizers as pure functions of parameters, gradients and state, so that a gradient can pass through a step.

They are the α′ of Algorithm 1. All square roots have ε inside: √v has an infinite derivative at 0, which a dead unit
reaches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from dgvf_agents.core.types import Params

OptimizerState = dict[str, Params]
"""Named statistics, each a dict like the parameters."""


@dataclass(frozen=True)
class Optimizer(ABC):
    """A rule that turns gradients into new parameters."""

    @abstractmethod
    def init(self, params: Params) -> OptimizerState:
        """The statistics before the first step."""

    @abstractmethod
    def step(
        self, params: Params, gradients: Params, state: OptimizerState, learning_rate: Tensor | float
    ) -> tuple[Params, OptimizerState]:
        """One step; differentiable in all four arguments, which it leaves as they are.

        Args:
            params: by name.
            gradients: like `params`.
            state: what `init` or the last step returned.
            learning_rate: α′ ≥ 0.
        """


@final
@dataclass(frozen=True)
class SGD(Optimizer):
    """θ ← θ - α′ g."""

    def init(self, params: Params) -> OptimizerState:
        return {}

    def step(
        self, params: Params, gradients: Params, state: OptimizerState, learning_rate: Tensor | float
    ) -> tuple[Params, OptimizerState]:
        return {k: p - learning_rate * gradients[k] for k, p in params.items()}, state


@final
@dataclass(frozen=True)
class RMSProp(Optimizer):
    """s ← ρ s + (1 - ρ) g², θ ← θ - α′ g / √(s + ε).

    Both published conventions are of this form: `RMSProp.pytorch` and `RMSProp.tensorflow`. The defaults are PyTorch's
    with ε = 1e-5, which are those of Stable-Baselines3's A2C.
    """

    decay: float = 0.99
    """ρ in [0, 1)."""
    epsilon: float = 1e-10
    """ε > 0, inside the root."""
    differentiable_moment: bool = True
    """Whether the gradient passes through s; false holds the denominator fixed."""
    initial_moment: float = 0.0
    """s before the first step, ≥ 0."""

    @classmethod
    def pytorch(cls, epsilon: float = 1e-5, decay: float = 0.99) -> RMSProp:
        """The rule of `torch.optim.RMSprop`: s starts at 0, and ε² stands inside the root.

        PyTorch divides by √s + ε, whose derivative is infinite at s = 0. √(s + ε²) agrees with it far from s = ε² on
        either side, and is at most √2 times smaller at s = ε².

        Args:
            epsilon: PyTorch's `eps` > 0, in units of a gradient.
            decay: PyTorch's `alpha`, in [0, 1).
        """
        return cls(decay, epsilon**2)

    @classmethod
    def tensorflow(cls, epsilon: float = 1e-5, decay: float = 0.99) -> RMSProp:
        """The rule of TensorFlow 1 (`RMSpropTFLike` in Stable-Baselines3): s starts at 1, and ε stands inside the root.

        While 0.99^n, what is left of the initial 1, exceeds g², steps are proportional to gradients: with gradients of
        1e-3, as means over a batch often have, for the first 1,400 updates.

        Args:
            epsilon: ε > 0, in units of a squared gradient.
            decay: ρ in [0, 1).
        """
        return cls(decay, epsilon, initial_moment=1.0)

    def __post_init__(self) -> None:
        _check("decay", self.decay, 0.0 <= self.decay < 1.0, "in [0, 1)")
        _check("epsilon", self.epsilon, self.epsilon > 0.0, "> 0")
        _check("initial_moment", self.initial_moment, self.initial_moment >= 0.0, ">= 0")

    def init(self, params: Params) -> OptimizerState:
        return {"second_moment": {k: torch.full_like(p, self.initial_moment) for k, p in params.items()}}

    def step(
        self, params: Params, gradients: Params, state: OptimizerState, learning_rate: Tensor | float
    ) -> tuple[Params, OptimizerState]:
        old = state["second_moment"]
        moment = {k: self.decay * old[k] + (1.0 - self.decay) * g * g for k, g in gradients.items()}
        scale = moment if self.differentiable_moment else {k: m.detach() for k, m in moment.items()}
        new = {k: p - learning_rate * gradients[k] * torch.rsqrt(scale[k] + self.epsilon) for k, p in params.items()}
        return new, {"second_moment": moment}


@final
@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with ε² inside the root: θ ← θ - α′ m̂ / √(v̂ + ε²)."""

    beta1: float = 0.9
    """Decay of the first moment in [0, 1)."""
    beta2: float = 0.999
    """Decay of the second moment in [0, 1)."""
    epsilon: float = 1e-5
    """ε > 0."""
    weight_decay: float = 0.0
    """λ ≥ 0: θ also shrinks by α′ λ θ, apart from the gradient (AdamW)."""

    def __post_init__(self) -> None:
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0.0, ">= 0")
        _check("beta1", self.beta1, 0.0 <= self.beta1 < 1.0, "in [0, 1)")
        _check("beta2", self.beta2, 0.0 <= self.beta2 < 1.0, "in [0, 1)")
        _check("epsilon", self.epsilon, self.epsilon > 0.0, "> 0")

    def init(self, params: Params) -> OptimizerState:
        zeros = {k: torch.zeros_like(p) for k, p in params.items()}
        some = next(iter(params.values()))
        # the powers of β rather than a step count: a tensor whose value no compiled graph depends on
        powers = {"beta1": torch.ones_like(some.flatten()[0]), "beta2": torch.ones_like(some.flatten()[0])}
        return {"first_moment": zeros, "second_moment": {k: z.clone() for k, z in zeros.items()}, "powers": powers}

    def step(
        self, params: Params, gradients: Params, state: OptimizerState, learning_rate: Tensor | float
    ) -> tuple[Params, OptimizerState]:
        first = {k: self.beta1 * state["first_moment"][k] + (1 - self.beta1) * g for k, g in gradients.items()}
        second = {k: self.beta2 * state["second_moment"][k] + (1 - self.beta2) * g * g for k, g in gradients.items()}
        power1, power2 = state["powers"]["beta1"] * self.beta1, state["powers"]["beta2"] * self.beta2
        new = {}
        for k, p in params.items():
            root = torch.rsqrt(second[k] / (1 - power2) + self.epsilon**2)
            kept = p - learning_rate * self.weight_decay * p if self.weight_decay else p
            new[k] = kept - learning_rate * first[k] / (1 - power1) * root
        powers = {"beta1": power1, "beta2": power2}
        return new, {"first_moment": first, "second_moment": second, "powers": powers}


def global_norm(tensors: Params) -> Tensor:
    """The Euclidean norm of all tensors together, a scalar; its gradient at zero is zero, and NaN gives NaN."""
    squares = torch.stack([(t * t).sum() for t in tensors.values()]).sum()
    some = squares != 0  # NaN too, which must come out as NaN
    return torch.where(some, torch.sqrt(torch.where(some, squares, 1.0)), 0.0)


def clip_by_global_norm(gradients: Params, max_norm: float) -> Params:
    """The gradients, scaled down together where their norm exceeds `max_norm` > 0."""
    norm = global_norm(gradients)
    factor = torch.where(norm > max_norm, max_norm / torch.clamp(norm, min=max_norm), 1.0)
    return {k: g * factor for k, g in gradients.items()}


def _check(name: str, value: float, valid: bool, allowed: str) -> None:
    if not valid:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
