"""Action distributions as pure functions of the policy head's outputs.

Sampling is a function of noise passed in, so that runs are reproducible bitwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgvf_agents.core.argument_checks import UnsupportedSpaceError


def one_hot(indices: Int[Tensor, "*batch"], size: int, dtype: torch.dtype) -> Float[Tensor, "*batch size"]:
    """1 at the index and 0 elsewhere.

    PyTorch's `one_hot` reads its input to check it, which waits for the device and cannot be traced ahead of time.

    Args:
        indices: in [0, size); any other index gives zeros.
        size: length of the vectors.
        dtype: of the result.
    """
    return (indices[..., None] == torch.arange(size, device=indices.device)).to(dtype)


@dataclass(frozen=True)
class ActionDistribution(ABC):
    """A family of distributions over actions."""

    action_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)
    """Type of actions in a rollout."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """A, the number of parameters of one distribution."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action in a rollout; () for a single number."""
        return ()

    def draw_noise(self, generator: np.random.Generator, *batch: int) -> np.ndarray:
        """Noise for `sample`: `[*batch, *action_shape]` float32, uniform in [0, 1) if not overridden.

        Args:
            generator: source of randomness.
            batch: sizes of the batch axes.
        """
        return generator.random((*batch, *self.action_shape), dtype=np.float32)

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log π(a|x) `[...]` of `actions` `[..., *action_shape]` under `outputs` `[..., A]`."""

    @abstractmethod
    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        """Entropy in nats `[...]`; estimated from `actions` if it has no closed form."""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Actions `[..., *action_shape]` from `outputs` `[..., A]` and `noise` `[..., *action_shape]`."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The most probable actions `[..., *action_shape]`."""


@final
@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """A softmax over n actions."""

    num_actions: int
    """n ≥ 1."""

    @property
    def outputs(self) -> int:
        return self.num_actions

    def log_prob(self, outputs: Float[Tensor, "*batch A"], actions: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        log_probs = torch.log_softmax(outputs, -1)
        # a product, not a gather: its double backward stays dense and fast
        return (log_probs * one_hot(actions, self.num_actions, outputs.dtype)).sum(-1)

    def entropy(self, outputs: Float[Tensor, "*batch A"], actions: Tensor | None = None) -> Float[Tensor, "*batch"]:
        log_probs = torch.log_softmax(outputs, -1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, outputs: Float[Tensor, "*batch A"], noise: Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        cumulative = torch.softmax(outputs, -1).cumsum(-1)
        return (noise[..., None] >= cumulative[..., :-1]).sum(-1)  # inverse transform sampling

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)


@final
@dataclass(frozen=True)
class MultiCategorical(ActionDistribution):
    """Independent softmaxes, one for each part of an action."""

    parts: tuple[int, ...]
    """Number of choices ≥ 1 of each part."""

    @property
    def outputs(self) -> int:
        return sum(self.parts)

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (len(self.parts),)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        parts = zip(self._softmaxes(), outputs.split(self.parts, -1), actions.unbind(-1), strict=True)
        return torch.stack([part.log_prob(logits, action) for part, logits, action in parts]).sum(0)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        parts = zip(self._softmaxes(), outputs.split(self.parts, -1), strict=True)
        return torch.stack([part.entropy(logits) for part, logits in parts]).sum(0)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        parts = zip(self._softmaxes(), outputs.split(self.parts, -1), noise.unbind(-1), strict=True)
        return torch.stack([part.sample(logits, uniforms) for part, logits, uniforms in parts], -1)

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.stack([logits.argmax(-1) for logits in outputs.split(self.parts, -1)], -1)

    def _softmaxes(self) -> list[Categorical]:
        return [Categorical(choices) for choices in self.parts]


@final
@dataclass(frozen=True)
class Bernoulli(ActionDistribution):
    """Independent binary components, each 1 with probability σ(logit)."""

    components: int
    """Number of components ≥ 1."""

    @property
    def outputs(self) -> int:
        return self.components

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.components,)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        signs = 2.0 * actions.to(outputs.dtype) - 1.0
        return torch.nn.functional.logsigmoid(signs * outputs).sum(-1)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        p = torch.sigmoid(outputs)
        log_p, log_1_minus_p = torch.nn.functional.logsigmoid(outputs), torch.nn.functional.logsigmoid(-outputs)
        return -(p * log_p + (1.0 - p) * log_1_minus_p).sum(-1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return (noise < torch.sigmoid(outputs)).long()

    def mode(self, outputs: Tensor) -> Tensor:
        return (outputs > 0.0).long()


@dataclass(frozen=True)
class _Gaussian(ActionDistribution, ABC):
    """Independent normals, or a function of them."""

    dimensions: int
    """Number of dimensions ≥ 1 of an action."""

    action_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @property
    def outputs(self) -> int:
        return 2 * self.dimensions

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.dimensions,)

    def draw_noise(self, generator: np.random.Generator, *batch: int) -> np.ndarray:
        """Standard normal noise `[*batch, dimensions]` float32."""
        return generator.standard_normal((*batch, self.dimensions), dtype=np.float32)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        z = (actions - mean) * torch.exp(-log_std)
        return -(0.5 * z * z + log_std + 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        return mean + torch.exp(log_std) * noise

    def mode(self, outputs: Tensor) -> Tensor:
        return outputs.chunk(2, -1)[0]


@final
@dataclass(frozen=True)
class DiagonalGaussian(_Gaussian):
    """Independent normals, whose means are followed by their log standard deviations in the outputs.

    Actions are not clipped here, so their probability is the sample's, not the clipped action's, which the
    environment receives.
    """

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        return (outputs.chunk(2, -1)[1] + 0.5 * (1.0 + math.log(2.0 * math.pi))).sum(-1)


@final
@dataclass(frozen=True)
class SquashedGaussian(_Gaussian):
    """The hyperbolic tangent of a `DiagonalGaussian`: actions lie in (-1, 1) (Haarnoja et al. 2018, appendix C).

    As in Stable-Baselines3, 1e-6 is added to the Jacobian 1 - a², and actions are clipped to ±(1 - ε) before the
    inverse, with ε the machine epsilon.
    """

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        limit = 1.0 - torch.finfo(actions.dtype).eps
        unsquashed = torch.atanh(actions.clamp(-limit, limit))
        return super().log_prob(outputs, unsquashed) - torch.log(1.0 - actions * actions + 1e-6).sum(-1)

    def entropy(self, outputs: Tensor, actions: Tensor | None = None) -> Tensor:
        """-log π(a|x), whose mean over actions sampled from the policy is the entropy.

        Raises:
            ValueError: `actions` is `None`.
        """
        if actions is None:
            raise ValueError("actions must be given: the entropy of a squashed Gaussian has no closed form, got None")
        return -self.log_prob(outputs, actions)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return torch.tanh(super().sample(outputs, noise))

    def mode(self, outputs: Tensor) -> Tensor:
        return torch.tanh(super().mode(outputs))


def distribution_for(space: gym.Space, squashed: bool = False) -> ActionDistribution:
    """The distribution for an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary or Box.
        squashed: whether actions of a Box are squashed by tanh instead of clipped.

    Raises:
        UnsupportedSpaceError: the space is not supported, or its actions do not start at 0.
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
