"""Action distributions as pure functions of what the policy head puts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import gymnasium as gym
import torch
from torch import Tensor


@dataclass(frozen=True)
class ActionDistribution(ABC):
    """A family of distributions over actions."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Width of the policy head."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability log π(a|x) `[...]` for `outputs` `[..., A]` and `actions` `[...]`."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropy in nats `[...]`."""

    @abstractmethod
    def sample(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        """Actions `[B]` from `outputs` `[B, A]` and uniform numbers `[B]` in [0, 1)."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The most likely actions `[...]`."""


@final
@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """A softmax over A actions."""

    actions: int
    """A ≥ 1."""

    @property
    def outputs(self) -> int:
        return self.actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        log_probs = torch.log_softmax(outputs, -1)
        chosen = torch.nn.functional.one_hot(actions, self.actions).to(outputs.dtype)
        return (log_probs * chosen).sum(-1)  # a product, not a gather: its double backward stays dense and fast

    def entropy(self, outputs: Tensor) -> Tensor:
        log_probs = torch.log_softmax(outputs, -1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        cumulative = torch.softmax(outputs, -1).cumsum(-1)
        return (uniforms[..., None] >= cumulative[..., :-1]).sum(-1)  # inverse of the distribution function

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


def distribution_for(space: gym.Space) -> ActionDistribution:
    """The distribution for an action space.

    Raises:
        ValueError: the space is not supported.
    """
    if isinstance(space, gym.spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n))
    raise ValueError(f"action_space must be a Discrete space that starts at 0, got {space}")
