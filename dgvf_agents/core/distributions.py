"""Action distributions as pure functions of what the policy head puts out.

Samples are functions of given noise, so that a run can be repeated bit by bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.argument_checks import UnsupportedSpaceError


@dataclass(frozen=True)
class ActionDistribution(ABC):
    """A family of distributions over actions."""

    action_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)
    """Of actions in a rollout."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Width A of what the distribution needs."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action in a rollout; () for a single number."""
        return ()

    def draw_noise(self, generator: np.random.Generator, *batch: int) -> np.ndarray:
        """What `sample` makes actions of: `[*batch, *action_shape]` float32, uniform in [0, 1) unless said otherwise.

        Args:
            generator: moves on.
            batch: leading sizes.
        """
        return generator.random((*batch, *self.action_shape), dtype=np.float32)

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability log π(a|x) `[...]` for `outputs` `[..., A]` and `actions` `[..., *action_shape]`."""

    @abstractmethod
    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        """Entropy in nats `[...]`, estimated from `actions` where it has no closed form."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Actions `[..., *action_shape]` from `outputs` `[..., A]` and `noise` `[..., *action_shape]`."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The most likely actions `[..., *action_shape]`."""


@final
@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """A softmax over n actions."""

    actions: int
    """n ≥ 1."""

    @property
    def outputs(self) -> int:
        return self.actions

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        log_probs = torch.log_softmax(outputs, -1)
        chosen = torch.nn.functional.one_hot(actions, self.actions).to(outputs.dtype)
        return (log_probs * chosen).sum(-1)  # a product, not a gather: its double backward stays dense and fast

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        log_probs = torch.log_softmax(outputs, -1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        cumulative = torch.softmax(outputs, -1).cumsum(-1)
        return (noise[..., None] >= cumulative[..., :-1]).sum(-1)  # inverse of the distribution function

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


@final
@dataclass(frozen=True)
class MultiCategorical(ActionDistribution):
    """Independent softmaxes, one for each part of an action."""

    parts: tuple[int, ...]
    """How many choices each part has, every one ≥ 1."""

    @property
    def outputs(self) -> int:
        return sum(self.parts)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (len(self.parts),)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        pieces = zip(self._softmaxes(), outputs.split(self.parts, -1), actions.unbind(-1), strict=True)
        return torch.stack([part.log_prob(logits, chosen) for part, logits, chosen in pieces]).sum(0)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        pieces = zip(self._softmaxes(), outputs.split(self.parts, -1), strict=True)
        return torch.stack([part.entropy(logits) for part, logits in pieces]).sum(0)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        pieces = zip(self._softmaxes(), outputs.split(self.parts, -1), noise.unbind(-1), strict=True)
        return torch.stack([part.sample(logits, uniforms) for part, logits, uniforms in pieces], -1)

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.stack([logits.argmax(-1) for logits in outputs.split(self.parts, -1)], -1)

    def _softmaxes(self) -> list[Categorical]:
        return [Categorical(choices) for choices in self.parts]


@final
@dataclass(frozen=True)
class Bernoulli(ActionDistribution):
    """Independent switches, each on with probability σ(logit)."""

    switches: int
    """How many ≥ 1."""

    @property
    def outputs(self) -> int:
        return self.switches

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.switches,)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        signs = 2.0 * actions.to(outputs.dtype) - 1.0
        return torch.nn.functional.logsigmoid(signs * outputs).sum(-1)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        on = torch.sigmoid(outputs)
        log_on, log_off = torch.nn.functional.logsigmoid(outputs), torch.nn.functional.logsigmoid(-outputs)
        return -(on * log_on + (1.0 - on) * log_off).sum(-1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return (noise < torch.sigmoid(outputs)).long()

    def mode(self, outputs: Tensor) -> Tensor:
        return (outputs > 0.0).long()


@final
@dataclass(frozen=True)
class DiagonalGaussian(ActionDistribution):
    """Independent normals; the outputs are their means, then the logarithms of their standard deviations.

    Actions are not clipped: their probability is that of what was drawn, not of what the environment makes of it.
    """

    dimensions: int
    """Numbers that an action has ≥ 1."""
    action_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @property
    def outputs(self) -> int:
        return 2 * self.dimensions

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.dimensions,)

    def draw_noise(self, generator: np.random.Generator, *batch: int) -> np.ndarray:
        """Standard normal numbers `[*batch, dimensions]` float32."""
        return generator.standard_normal((*batch, self.dimensions), dtype=np.float32)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        distances = (actions - mean) * torch.exp(-log_std)
        return -(0.5 * distances * distances + log_std + 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        return (outputs.chunk(2, -1)[1] + 0.5 * (1.0 + math.log(2.0 * math.pi))).sum(-1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        return mean + torch.exp(log_std) * noise

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.chunk(2, -1)[0]


@final
@dataclass(frozen=True)
class SquashedGaussian(ActionDistribution):
    """The hyperbolic tangent of a `DiagonalGaussian`: actions lie in (-1, 1) (Haarnoja et al. 2018, appendix C).

    As in Stable-Baselines3, the Jacobian 1 - a² has 1e-6 added, and actions are kept from ±1 by the spacing of numbers.
    """

    dimensions: int
    """Numbers that an action has ≥ 1."""
    action_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @property
    def outputs(self) -> int:
        return 2 * self.dimensions

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.dimensions,)

    def draw_noise(self, generator: np.random.Generator, *batch: int) -> np.ndarray:
        """Standard normal numbers `[*batch, dimensions]` float32."""
        return self._gaussian.draw_noise(generator, *batch)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        most = 1.0 - torch.finfo(actions.dtype).eps
        inner = torch.atanh(actions.clamp(-most, most))
        return self._gaussian.log_prob(outputs, inner) - torch.log(1.0 - actions * actions + 1e-6).sum(-1)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        """-log π(a|x), whose mean over actions drawn from the policy is the entropy.

        Raises:
            ValueError: there are no actions to estimate it from.
        """
        if actions is None:
            raise ValueError("actions must be given: the entropy of a squashed Gaussian has no closed form, got None")
        return -self.log_prob(outputs, actions)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return torch.tanh(self._gaussian.sample(outputs, noise))

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.tanh(self._gaussian.mode(outputs))

    @property
    def _gaussian(self) -> DiagonalGaussian:
        return DiagonalGaussian(self.dimensions)


def distribution_for(space: gym.Space, squashed: bool = False) -> ActionDistribution:
    """The distribution for an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary or Box.
        squashed: whether actions of a Box are squashed into it rather than clipped.

    Raises:
        UnsupportedSpaceError: the space is not supported, or counts from another number than 0.
    """
    if np.any(getattr(space, "start", 0)):
        raise UnsupportedSpaceError(f"action_space must count from 0, got {space}: shift its actions in a wrapper")
    if isinstance(space, gym.spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiCategorical(tuple(int(choices) for choices in space.nvec))
    if isinstance(space, gym.spaces.MultiBinary) and len(space.shape) == 1:
        return Bernoulli(int(space.shape[0]))
    if isinstance(space, gym.spaces.Box):
        dimensions = math.prod(space.shape)
        return SquashedGaussian(dimensions) if squashed else DiagonalGaussian(dimensions)
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        raise UnsupportedSpaceError(
            f"action_space must have one dimension: Multi-dimensional {space} action space is not supported"
        )
    raise UnsupportedSpaceError(f"action_space must be Discrete, MultiDiscrete, MultiBinary or Box, got {space}")
