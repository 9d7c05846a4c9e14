"""Features extractors, as Stable-Baselines3 calls encoders: the paper's, and what joins them for Dict observations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, TypeVar, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dgvf_agents.core.argument_checks import UnsupportedSpaceError
from dgvf_agents.core.distributions import one_hot
from dgvf_agents.core.networks import AtariCNNEncoder, Encoder, GridCNNEncoder, MLPEncoder
from dgvf_agents.core.resnet import ResNetEncoder
from dgvf_agents.core.types import Observations

Self = TypeVar("Self", bound="EncoderExtractor")

SMALLEST_IMAGE = 36
"""Smallest side of images in pixels for the Atari network, and for Stable-Baselines3's `NatureCNN`."""


class EncoderExtractor(BaseFeaturesExtractor):
    """A features extractor around one of the paper's encoders, which come with their own initial values."""

    def __init__(self, observation_space: gym.Space, encoder: Encoder) -> None:
        super().__init__(observation_space, encoder.features)
        self.encoder = encoder

    def forward(self, observations: Tensor) -> Tensor:
        return self.encoder(observations)

    def apply(self: Self, fn: Callable[[nn.Module], Any]) -> Self:
        """`nn.Module.apply`, but not of the initialization that policies apply to their features extractor."""
        return self if getattr(fn, "func", None) is BasePolicy.init_weights else super().apply(fn)


@final
class MLPExtractor(EncoderExtractor):
    """Two layers of 128 ReLUs on the flattened observation (paper: Puddleworld).

    For points of a `Box`, the initial biases of the first layer are spread. For one-hot inputs, such as a
    `Discrete` space, they are 0: units differ without them, and large biases would hide the input.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        hidden: tuple[int, ...] = (128, 128),
        activation_fn: type[nn.Module] = nn.ReLU,
    ) -> None:
        low, high = _bounds(observation_space)
        spread = 1.0 if isinstance(observation_space, gym.spaces.Box) else 0.0
        super().__init__(observation_space, MLPEncoder(len(low), hidden, low, high, spread, activation_fn))


@final
class GridCNNExtractor(EncoderExtractor):
    """Two 2x2 convolutions of 8 and 16 filters, then 512 ReLUs (paper: Collect-Objects)."""

    def __init__(self, observation_space: gym.Space, features_dim: int = 512) -> None:
        shape = observation_space.shape
        if shape is None or len(shape) != 3:
            raise UnsupportedSpaceError(
                f"observation_space must have planes (channels, rows, columns), got {observation_space}: use "
                "PaperMlpPolicy for vectors"
            )
        super().__init__(observation_space, GridCNNEncoder(shape, features_dim))


@final
class AtariCNNExtractor(EncoderExtractor):
    """Convolutions 32, 64, 64, then 512 ReLUs (paper: Atari)."""

    def __init__(self, observation_space: gym.Space, features_dim: int = 512, normalized_image: bool = False) -> None:
        """
        Args:
            observation_space: images (channels, height, width).
            features_dim: width of the last layer.
            normalized_image: whether pixels come scaled already, and are not to be divided by 255.

        Raises:
            UnsupportedSpaceError: observations are no images of at least 36 x 36.
        """
        shape = observation_space.shape
        if not is_image_space(observation_space, check_channels=False, normalized_image=normalized_image):
            raise UnsupportedSpaceError(
                f"observation_space must have images, uint8 in [0, 255], got {observation_space}: pass "
                "policy_kwargs={'normalize_images': False} where they are scaled already"
            )
        if shape is None or min(shape[1:]) < SMALLEST_IMAGE:
            raise UnsupportedSpaceError(
                f"observation_space must have images of side >= {SMALLEST_IMAGE}, got {observation_space}"
            )
        super().__init__(observation_space, AtariCNNEncoder(shape, features_dim))


@final
class ResNetExtractor(EncoderExtractor):
    """The deep residual network of IMPALA: sections of 16, 32, 32 channels, then 256 ReLUs (paper: joint learning)."""

    def __init__(self, observation_space: gym.Space, features_dim: int = 256, normalized_image: bool = False) -> None:
        """
        Args:
            observation_space: images or planes (channels, height, width).
            features_dim: width of the last layer.
            normalized_image: whether pixels are scaled already. Any planes are accepted, whatever this says.

        Raises:
            UnsupportedSpaceError: observations have another number of axes.
        """
        shape = observation_space.shape
        if shape is None or len(shape) != 3:
            raise UnsupportedSpaceError(
                f"observation_space must have images (channels, height, width), got {observation_space}"
            )
        super().__init__(observation_space, ResNetEncoder(shape, hidden=features_dim))


@final
class MultiInputExtractor(BaseFeaturesExtractor):
    """Every image of a Dict through convolutions of its own, all else together through two layers of 128 ReLUs."""

    def __init__(
        self,
        observation_space: gym.spaces.Dict,
        cnn_output_dim: int = 256,
        hidden: tuple[int, ...] = (128, 128),
        normalized_image: bool = False,
    ) -> None:
        """
        Args:
            observation_space: a Dict of spaces, none of them a Dict.
            cnn_output_dim: features of each image.
            hidden: widths of the layers for what is no image.
            normalized_image: whether pixels come scaled already.

        Raises:
            UnsupportedSpaceError: observations are not a Dict of such spaces.
        """
        if not isinstance(observation_space, gym.spaces.Dict):
            raise UnsupportedSpaceError(f"observation_space must be a Dict for several inputs, got {observation_space}")
        images = {
            name: space
            for name, space in observation_space.spaces.items()
            if is_image_space(space, normalized_image=normalized_image)
        }
        vectors = {name: space for name, space in observation_space.spaces.items() if name not in images}
        super().__init__(observation_space, len(images) * cnn_output_dim + (hidden[-1] if vectors else 0))
        self.images = nn.ModuleDict()
        for name, space in images.items():
            kind, more = default_cnn(space), {}
            if kind is AtariCNNExtractor:
                more["normalized_image"] = normalized_image
            self.images[name] = kind(space, cnn_output_dim, **more)
        self._vectors = tuple(vectors)
        if vectors:
            low, high = (list(chain(*bounds)) for bounds in zip(*map(_bounds, vectors.values()), strict=True))
            self.vectors = MLPEncoder(len(low), hidden, low, high)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        parts = [cnn(observations[name]) for name, cnn in self.images.items()]
        if self._vectors:
            parts.append(self.vectors(torch.cat([observations[name].flatten(1) for name in self._vectors], 1)))
        return torch.cat(parts, 1)


def default_cnn(space: gym.Space) -> type[BaseFeaturesExtractor]:
    """The Atari network for images large enough for it, the gridworld network otherwise."""
    shape = space.shape or ()
    return AtariCNNExtractor if len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE else GridCNNExtractor


def _bounds(space: gym.Space) -> tuple[list[float], list[float]]:
    """The smallest and largest value of each input that Stable-Baselines3's preprocessing makes of an observation.

    Infinite where inputs are not rescaled: in spaces without bounds, and for zeros and ones.
    """
    if isinstance(space, gym.spaces.Box) and not is_image_space(space):
        return space.low.astype(np.float64).ravel().tolist(), space.high.astype(np.float64).ravel().tolist()
    inputs = get_flattened_obs_dim(space)
    return [-np.inf] * inputs, [np.inf] * inputs


@final
class PreprocessedEncoder(Encoder):
    """All of an agent before its linear heads, as a function of raw observations.

    These are Stable-Baselines3's preprocessing, one features extractor or two, and the layers after it. With two
    extractors, or layers, the features are the policy's, then the value's.
    """

    is_own: bool
    """Whether it has modules that neither this package, PyTorch nor Stable-Baselines3 define."""

    def __init__(
        self,
        extractor: BaseFeaturesExtractor,
        space: gym.Space,
        normalize_images: bool,
        second: BaseFeaturesExtractor | None = None,
        mixed_precision: bool = False,
        layers: Any = None,
        of_policy_only: bool = False,
    ) -> None:
        """
        Args:
            extractor: a features extractor.
            space: of observations.
            normalize_images: whether pixels are divided by 255.
            second: the value's extractor, if it has one of its own.
            mixed_precision: whether products and convolutions are of bfloat16 numbers. Parameters, their gradients and
                the features that come out are float32 all the same.
            layers: a policy's `mlp_extractor`; `None` for none.
            of_policy_only: whether the value's features are left out.
        """
        super().__init__()
        self.extractor = extractor
        self.second = second
        self.layers = layers
        self._mixed_precision, self._of_policy_only = mixed_precision, of_policy_only
        self.features = sum(widths_of(extractor, second, layers)[: 1 if of_policy_only else 2])
        self.preprocess = _preprocessing(space, normalize_images)
        self._recurrent = any(isinstance(module, nn.RNNBase) for module in self.modules())
        known = ("dgvf_agents", "torch", "stable_baselines3")
        self.is_own = any(type(module).__module__.partition(".")[0] not in known for module in self.modules())
        for module in self.modules():
            if isinstance(module, nn.RNNBase):
                module.register_forward_pre_hook(_take_weights)
                module.register_forward_hook(_release_weights)

    def forward(self, observations: Observations) -> Tensor:
        inputs: Any = self.preprocess(observations)
        with ExitStack() as stack:
            if self.is_own:  # kernels that PyTorch can differentiate twice
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if self._recurrent:
                set_flags = torch.backends.mkldnn.set_flags
                stack.callback(set_flags, set_flags(False)[0])
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            if not self._mixed_precision:
                return self._extract(inputs)
            some = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
            # without its cache: that would hand a cast made outside of a functional transform to the inside of it
            with torch.autocast(some.device.type, torch.bfloat16, cache_enabled=False):
                features = self._extract(inputs)
        return features.float()

    def _extract(self, inputs: Any) -> Tensor:
        features = self.extractor(inputs)
        if self.layers is None:
            return features if self.second is None else torch.cat([features, self.second(inputs)], -1)
        of_policy = self.layers.forward_actor(features)
        if self._of_policy_only:
            return of_policy
        return torch.cat(
            [of_policy, self.layers.forward_critic(features if self.second is None else self.second(inputs))], -1
        )


def widths_of(extractor: BaseFeaturesExtractor, second: BaseFeaturesExtractor | None, layers: Any) -> list[int]:
    """Widths of the features of the policy and of the value; one number where they are the same features."""
    if layers is not None:
        return [layers.latent_dim_pi, layers.latent_dim_vf]
    return [extractor.features_dim] if second is None else [extractor.features_dim, second.features_dim]


def _take_weights(module: nn.Module, inputs: Any) -> None:
    """`nn.LSTM` and the like read a list of their weights, which `torch.func.functional_call` does not replace."""
    module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]  # type: ignore


def _release_weights(module: nn.Module, inputs: Any, outputs: Any) -> None:
    """Weights of a call belong to its graph, which the module must not keep."""
    module._flat_weights = []  # type: ignore


def _preprocessing(space: gym.Space, normalize_images: bool) -> Callable[[Any], Any]:
    """Stable-Baselines3's `preprocess_obs` for one space, with its sizes as plain numbers: NumPy's do not compile."""
    if isinstance(space, gym.spaces.Dict):
        parts = {name: _preprocessing(inner, normalize_images) for name, inner in space.spaces.items()}
        return partial(_of_each, parts=parts)
    if isinstance(space, gym.spaces.Discrete):
        return partial(_one_hot, choices=(int(space.n),))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return partial(_one_hot, choices=tuple(int(n) for n in space.nvec))
    return partial(_as_numbers, divisor=255.0 if normalize_images and is_image_space(space) else None)


def _of_each(observations: dict[str, Tensor], parts: dict[str, Callable[[Any], Any]]) -> dict[str, Tensor]:
    return {name: part(observations[name]) for name, part in parts.items()}


def _as_numbers(observations: Tensor, divisor: float | None) -> Tensor:
    return observations.float() if divisor is None else observations.float() / divisor


def _one_hot(observations: Tensor, choices: tuple[int, ...]) -> Tensor:
    numbers = observations.long().reshape(len(observations), len(choices)).unbind(1)
    return torch.cat([one_hot(n, c, torch.float32) for n, c in zip(numbers, choices, strict=True)], 1)


def window_space(space: gym.Space, window: int) -> gym.Space:
    """The space of j observations joined along their first axis.

    Raises:
        ValueError: observations of this space cannot be joined.
    """
    if window == 1:
        return space
    if isinstance(space, gym.spaces.Dict):
        joined = ((name, window_space(inner, window)) for name, inner in space.spaces.items())
        return gym.spaces.Dict(OrderedDict(joined))  # Gymnasium sorts any other dict
    if isinstance(space, gym.spaces.Discrete):
        return gym.spaces.MultiDiscrete([int(space.n)] * window)
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return gym.spaces.MultiDiscrete(np.tile(space.nvec, window))
    if isinstance(space, gym.spaces.Box) and space.shape:
        return gym.spaces.Box(
            np.concatenate([space.low] * window), np.concatenate([space.high] * window), dtype=space.dtype
        )
    if isinstance(space, gym.spaces.MultiBinary):
        return gym.spaces.MultiBinary((window * space.shape[0], *space.shape[1:]))
    raise ValueError(f"question_window must be 1 for observations of {space}, got {window!r}")


def check_observation_space(space: gym.Space) -> None:
    """
    Raises:
        ValueError: observations of this space are not supported.
    """
    if isinstance(space, gym.spaces.Dict):
        if not space.spaces:
            raise ValueError(f"observation_space must have at least one part, got {space}")
        for name, inner in space.spaces.items():
            if isinstance(inner, gym.spaces.Dict):
                raise ValueError(
                    f"observation_space must not have a Dict within a Dict, got {inner} as {name!r}: flatten it"
                )
            check_observation_space(inner)
        return
    known = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
    if not isinstance(space, known):
        names = ", ".join(kind.__name__ for kind in known)
        raise ValueError(f"observation_space must be one of {names}, or a Dict of them, got {space}")
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim != 1:
        raise ValueError(f"observation_space must have one axis if it is a MultiDiscrete, got {space}")
    if isinstance(space, gym.spaces.Box) and 0 in (space.shape or (0,)):
        raise ValueError(
            f"observation_space must have at least one axis and none that is empty, got {space} of shape "
            f"{space.shape}: reshape observations in a wrapper"
        )
    if np.any(getattr(space, "start", 0)):
        raise ValueError(f"observation_space must count from 0, got {space}: shift observations in a wrapper")
