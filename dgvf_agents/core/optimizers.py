"""Inner optimizers α′ as pure functions of parameters, gradients and state, which a meta-gradient passes through.

Square roots have ε inside: √v has an infinite derivative at 0, and the second moment of a dead unit is 0.

The module also scales gradients down to a maximum norm, and converts hyperparameters of losses that are sums over a
batch, as IMPALA's are, to losses that are means, as ours are. The gradient of a sum over N = T · B samples is N times
the mean's gradient, and so is the meta-gradient of a summed meta-loss. The conversion changes what gradients compare
with: maximum norms, ε, and the initial second moment. Learning rates and loss coefficients stay the same.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_fractions_below_one, check_not_negative, check_positive
from dgvf_agents.core.types import Params

OptimizerState = dict[str, Params]
"""Named statistics, each a dict like the parameters."""

DISCOUNT_HEAD = "discounts."
"""Prefix of the parameter names of the question network's discount head."""


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
        """One step, differentiable in all four arguments. It changes none of them.

        Args:
            params: by name.
            gradients: like `params`.
            state: from `init` or the last step.
            learning_rate: α′ ≥ 0, a scalar.
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
    """s ← ρ s + (1 - ρ) g², θ ← θ - α′ g / (√s + √ε), or θ ← θ - α′ g / √(s + ε).

    Two conventions are in use: `RMSProp.pytorch` and `RMSProp.tensorflow`. The defaults are PyTorch's with √ε = 1e-5,
    as in Stable-Baselines3's A2C. The derivative of √s at 0, where g = 0, is taken as 0.
    """

    decay: float = 0.99
    """ρ in [0, 1)."""
    epsilon: float = 1e-10
    """ε > 0."""
    differentiable_moment: bool = True
    """Whether the meta-gradient passes through s; if false, the denominator is a constant."""
    initial_moment: float = 0.0
    """s before the first step, ≥ 0."""
    epsilon_outside: bool = True
    """Whether √ε is added to √s, or ε to s."""

    @classmethod
    def pytorch(cls, epsilon: float = 1e-5, decay: float = 0.99) -> RMSProp:
        """The rule of `torch.optim.RMSprop`, with initial s = 0 and ε outside the root.

        Args:
            epsilon: PyTorch's `eps` > 0, in units of a gradient.
            decay: PyTorch's `alpha`, in [0, 1).
        """
        return cls(decay, epsilon**2)

    @classmethod
    def tensorflow(cls, epsilon: float = 1e-5, decay: float = 0.99) -> RMSProp:
        """The rule of TensorFlow 1 (`RMSpropTFLike` in Stable-Baselines3), with initial s = 1 and ε inside the root.

        After n updates 0.99^n is left of the initial 1. As long as that exceeds g², steps are proportional to
        gradients. For gradients of 1e-3, as means over a batch often have, these are the first 1,400 updates.

        Args:
            epsilon: ε > 0, in units of a squared gradient.
            decay: ρ in [0, 1).
        """
        return cls(decay, epsilon, initial_moment=1.0, epsilon_outside=False)

    def __post_init__(self) -> None:
        check_fractions_below_one(decay=self.decay)
        check_positive(epsilon=self.epsilon)
        check_not_negative(initial_moment=self.initial_moment)

    def init(self, params: Params) -> OptimizerState:
        return {"second_moment": {k: torch.full_like(p, self.initial_moment) for k, p in params.items()}}

    def step(
        self,
        params: Params,
        gradients: Params,
        state: OptimizerState,
        learning_rate: Tensor | float,
        epsilon: Tensor | float | None = None,
    ) -> tuple[Params, OptimizerState]:
        """See `Optimizer.step`; `epsilon` replaces the optimizer's own."""
        epsilon = self.epsilon if epsilon is None else epsilon
        old = state["second_moment"]
        moment = {k: self.decay * old[k] + (1.0 - self.decay) * gradients[k] * gradients[k] for k in params}
        scale = moment if self.differentiable_moment else {k: m.detach() for k, m in moment.items()}
        if self.epsilon_outside:
            inverse = {k: 1.0 / (root(m) + epsilon**0.5) for k, m in scale.items()}
        else:
            inverse = {k: torch.rsqrt(m + epsilon) for k, m in scale.items()}
        new = {k: p - learning_rate * gradients[k] * inverse[k] for k, p in params.items()}
        return new, {"second_moment": moment}


@final
@dataclass(frozen=True)
class Adam(Optimizer):
    """θ ← θ - α′ m̂ / (√v̂ + ε). The derivative of √v̂ at 0, where m̂ = 0, is taken as 0."""

    beta1: float = 0.9
    """Decay of the first moment in [0, 1)."""
    beta2: float = 0.999
    """Decay of the second moment in [0, 1)."""
    epsilon: float = 1e-5
    """ε > 0."""
    weight_decay: float = 0.0
    """λ ≥ 0, decoupled weight decay (AdamW): θ also shrinks by α′ λ θ."""

    def __post_init__(self) -> None:
        check_fractions_below_one(beta1=self.beta1, beta2=self.beta2)
        check_positive(epsilon=self.epsilon)
        check_not_negative(weight_decay=self.weight_decay)

    def init(self, params: Params) -> OptimizerState:
        zeros = {k: torch.zeros_like(p) for k, p in params.items()}
        some = next(iter(params.values()))
        # 1 - βⁿ instead of a step count: a compiled graph would be specialized to every value of a Python number. It
        # is not taken from βⁿ, since 1 - 0.999 would keep five digits.
        zero = torch.zeros_like(some.flatten()[0])
        corrections = {"beta1": zero, "beta2": zero.clone()}
        return {
            "first_moment": zeros,
            "second_moment": {k: z.clone() for k, z in zeros.items()},
            "corrections": corrections,
        }

    def step(
        self,
        params: Params,
        gradients: Params,
        state: OptimizerState,
        learning_rate: Tensor | float,
        epsilon: Tensor | float | None = None,
    ) -> tuple[Params, OptimizerState]:
        """See `Optimizer.step`; `epsilon` replaces the optimizer's own."""
        epsilon = self.epsilon if epsilon is None else epsilon
        first = {k: self.beta1 * state["first_moment"][k] + (1 - self.beta1) * gradients[k] for k in params}
        second = {k: self.beta2 * state["second_moment"][k] + (1 - self.beta2) * gradients[k] ** 2 for k in params}
        correction1 = self.beta1 * state["corrections"]["beta1"] + (1 - self.beta1)
        correction2 = self.beta2 * state["corrections"]["beta2"] + (1 - self.beta2)
        new = {}
        for k, p in params.items():
            corrected = second[k] / correction2
            decayed = p - learning_rate * self.weight_decay * p if self.weight_decay else p
            new[k] = decayed - learning_rate * first[k] / correction1 / (root(corrected) + epsilon)
        corrections = {"beta1": correction1, "beta2": correction2}
        return new, {"first_moment": first, "second_moment": second, "corrections": corrections}


def global_norm(tensors: dict[str, Float[Tensor, "..."]]) -> Float[Tensor, ""]:
    """The Euclidean norm of all tensors together. Its gradient at zero is zero; NaN stays NaN."""
    return root(torch.stack([(t * t).sum() for t in tensors.values()]).sum())


def root(square: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The square root. Its gradient at zero is zero; NaN stays NaN."""
    nonzero = square != 0  # true for NaN
    return torch.where(nonzero, torch.sqrt(torch.where(nonzero, square, 1.0)), 0.0)


def clip_by_global_norm(
    gradients: dict[str, Float[Tensor, "..."]], max_norm: float | Float[Tensor, ""]
) -> dict[str, Float[Tensor, "..."]]:
    """The gradients, scaled down together if their global norm exceeds `max_norm` > 0."""
    norm = global_norm(gradients)
    factor = torch.where(norm > max_norm, max_norm / torch.clamp(norm, min=max_norm), 1.0)
    return {k: g * factor for k, g in gradients.items()}


def clip_heads_separately(
    gradient: dict[str, Float[Tensor, "..."]],
    max_norm: float | Float[Tensor, ""],
    max_discount_norm: float | Float[Tensor, ""],
) -> dict[str, Float[Tensor, "..."]]:
    """A meta-gradient clipped in two groups, each by its own global norm; either may be empty.

    The paper's table 1 has one norm for cumulants and another for discounts. The discount head is one group. The
    cumulant head and the encoder, which both heads share, are the other: splitting the encoder's gradient into its
    parts through cumulants and through discounts would need a second backward pass through every update.

    Args:
        gradient: by name of η's parameters.
        max_norm: maximum norm > 0 of the group of the cumulants.
        max_discount_norm: maximum norm > 0 of the group of the discounts.
    """
    discounts = {name: value for name, value in gradient.items() if name.startswith(DISCOUNT_HEAD)}
    cumulants = {name: value for name, value in gradient.items() if name not in discounts}
    clipped: Params = {}
    for group, norm in ((cumulants, max_norm), (discounts, max_discount_norm)):
        clipped |= clip_by_global_norm(group, norm) if group else {}
    return {name: clipped[name] for name in gradient}


def norm_for_means(norm: float, num_samples: int) -> float:
    """The maximum gradient norm of a mean that corresponds to `norm` of a sum.

    Adam's ε is converted in the same way, since it is added to a root mean square of gradients.

    Args:
        norm: of the gradient of a sum.
        num_samples: N ≥ 1.
    """
    return norm / num_samples


def optimizer_for_means(optimizer: Optimizer, num_samples: int) -> Optimizer:
    """The optimizer whose steps along a mean's gradient g equal `optimizer`'s steps along the sum's gradient, N g.

    RMSProp's are N g / √(s + ε), with s ← ρ s + (1 - ρ) N² g². Dividing by N gives g / √(s′ + ε/N²) with s′ = s / N²,
    so s′ ← ρ s′ + (1 - ρ) g², and initially s′ = s / N². With √ε outside the root the same holds.

    Args:
        optimizer: for gradients of sums; RMSProp or Adam, unless N = 1.
        num_samples: N ≥ 1.

    Raises:
        ValueError: another optimizer.
    """
    if num_samples == 1:
        return optimizer
    if isinstance(optimizer, RMSProp):
        moment = optimizer.initial_moment / num_samples**2
        return dataclasses.replace(optimizer, epsilon=optimizer.epsilon / num_samples**2, initial_moment=moment)
    if isinstance(optimizer, Adam):
        return dataclasses.replace(optimizer, epsilon=norm_for_means(optimizer.epsilon, num_samples))
    raise ValueError(f"loss_reduction must be 'mean' unless the inner optimizer is RMSProp or Adam, got {optimizer!r}")
