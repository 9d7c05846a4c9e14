"""Targets of the main task: what values are regressed on, and what weighs the policy gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from jaxtyping import Bool, Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_positive_or_infinite
from dgvf_agents.core.returns import bootstrapped_returns, lambda_returns, vtrace


class TargetInputs(NamedTuple):
    """Inputs of the targets; stop-gradient inputs of the loss."""

    rewards: Float[Tensor, "T B"]
    """`[T, B]`: r_{t+1}."""
    discounts: Float[Tensor, "T B"]
    """`[T, B]`: γ_{t+1}; 0 where an episode terminated."""
    values: Float[Tensor, "T B"]
    """`[T, B]`: v(x_t)."""
    bootstraps: Float[Tensor, "T B"]
    """`[T, B]`: v at o_{t+1}; valid where `segment_end`."""
    segment_end: Bool[Tensor, "T B"]
    """`[T, B]` boolean; true on the last step."""
    log_ratios: Float[Tensor, "T B"] | None
    """`[T, B]`: log π(a_t|x_t) - log μ(a_t|x_t); `None` for a rule that is not off-policy."""


class Targets(NamedTuple):
    """Targets of the actor-critic loss."""

    returns: Float[Tensor, "T B"]
    """`[T, B]`: G_t, which v(x_t) is regressed on."""
    advantages: Float[Tensor, "T B"]
    """`[T, B]`: A_t, which weighs ∇ log π(a_t|x_t)."""


class TargetRule(ABC):
    """A rule that computes targets. The loss that they enter is `actor_critic_loss`."""

    off_policy: ClassVar[bool]
    """Whether the rule reads `TargetInputs.log_ratios`, and so `Rollout.behavior_log_probs`."""

    @abstractmethod
    def targets(self, inputs: TargetInputs, lambda_: float) -> Targets:
        """Targets, differentiable in all floating-point inputs.

        Args:
            inputs: of one batch.
            lambda_: λ in [0, 1].
        """


@final
@dataclass(frozen=True)
class OnPolicyTargets(TargetRule):
    """λ-returns; with λ = 1 the multi-step returns of A2C (paper, section 3.4)."""

    off_policy = False

    def targets(self, inputs: TargetInputs, lambda_: float) -> Targets:
        rewards, discounts, values, bootstraps, segment_end, _ = inputs
        if lambda_ == 1.0:
            returns = bootstrapped_returns(rewards, discounts, bootstraps, segment_end)
        else:
            returns = lambda_returns(rewards, discounts, values, bootstraps, segment_end, lambda_)
        return Targets(returns, returns - values)


@final
@dataclass(frozen=True)
class VTraceTargets(TargetRule):
    """V-trace (Espeholt et al. 2018), for experience of an earlier policy; see `dgvf_agents.core.returns`."""

    rho_bar: float = 1.0
    """ρ̄ > 0; may be infinite."""
    c_bar: float = 1.0
    """c̄ > 0, at most ρ̄; may be infinite."""

    off_policy = True

    def __post_init__(self) -> None:
        check_positive_or_infinite(rho_bar=self.rho_bar, c_bar=self.c_bar)
        if self.c_bar > self.rho_bar:
            raise ValueError(f"c_bar must be <= rho_bar = {self.rho_bar!r}, got {self.c_bar!r}")

    def targets(self, inputs: TargetInputs, lambda_: float) -> Targets:
        *others, log_ratios = inputs
        if log_ratios is None:
            raise ValueError("log_ratios must be given for V-trace, got None")
        return Targets(*vtrace(log_ratios, *others, self.rho_bar, self.c_bar, lambda_))  # type: ignore[arg-type, call-arg]
