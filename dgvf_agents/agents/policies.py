"""Policies by name: Stable-Baselines3's own, and the paper's networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import gymnasium as gym
from stable_baselines3.a2c.policies import CnnPolicy, MlpPolicy, MultiInputPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from dgvf_agents.agents.extractors import (
    SMALLEST_IMAGE,
    AtariCNNExtractor,
    GridCNNExtractor,
    MLPExtractor,
    MultiInputExtractor,
    ResNetExtractor,
    default_cnn,
)
from dgvf_agents.core.argument_checks import UnsupportedSpaceError, check_flags, is_finite_number, is_integer

__all__ = [
    "AtariCNNExtractor",
    "CnnPolicy",
    "DGVFPolicy",
    "GridCNNExtractor",
    "MLPExtractor",
    "MlpPolicy",
    "MultiInputExtractor",
    "MultiInputPolicy",
    "PaperCnnPolicy",
    "PaperMlpPolicy",
    "ResNetExtractor",
    "ResNetPolicy",
]


NetArch = Sequence[int] | Mapping[str, Sequence[int]]
"""Widths of layers; by `"pi"` and `"vf"` if they differ between policy and value."""


def check_policy_kwargs(kwargs: Mapping[str, Any]) -> None:
    """Check the arguments of a policy whose mistakes would show late, or never.

    Raises:
        ValueError: one is out of its range.
    """
    _check_net_arch(kwargs.get("net_arch"))
    flags = ("ortho_init", "full_std", "use_expln", "squash_output", "share_features_extractor", "normalize_images")
    check_flags(**{name: kwargs[name] for name in flags if name in kwargs})
    if not _makes_modules(kwargs.get("activation_fn", nn.Tanh)):
        raise ValueError(f"activation_fn must be a class of modules, such as nn.Tanh, got {kwargs['activation_fn']!r}")
    if not is_finite_number(kwargs.get("log_std_init", 0.0)):
        raise ValueError(f"log_std_init must be a finite number, got {kwargs['log_std_init']!r}")


def _makes_modules(activation_fn: Any) -> bool:
    try:
        return isinstance(activation_fn(), nn.Module)
    except Exception:
        return False


def _check_net_arch(net_arch: Any) -> None:
    if isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], Mapping):
        net_arch = net_arch[0]  # the former notation, about which Stable-Baselines3 warns
    parts = net_arch.values() if isinstance(net_arch, Mapping) and net_arch.keys() <= {"pi", "vf"} else [net_arch]
    for sizes in () if net_arch is None else parts:
        if not (isinstance(sizes, list | tuple) and all(is_integer(size) and size >= 1 for size in sizes)):
            raise ValueError(
                f"net_arch must be a list of integers >= 1, a dict with such lists as 'pi' and 'vf', or None, "
                f"got {net_arch!r}"
            )


def check_observations(kind: type[BasePolicy], space: gym.Space, kwargs: Mapping[str, Any]) -> None:
    """Check that Stable-Baselines3's default features extractor takes a policy's observations.

    Raises:
        UnsupportedSpaceError: it does not; the message names a policy or an extractor that does.
    """
    if "features_extractor_class" in kwargs:
        return
    scaled = not kwargs.get("normalize_images", True)
    if issubclass(kind, CnnPolicy):
        image = is_image_space(space, check_channels=False, normalized_image=scaled)
        if not (image and min(space.shape[1:]) >= SMALLEST_IMAGE):  # type: ignore[index]
            raise UnsupportedSpaceError(
                f"observation_space must have images of side >= {SMALLEST_IMAGE}, uint8 in [0, 255] unless "
                f"policy_kwargs={{'normalize_images': False}}, for CnnPolicy, got {space}: use PaperCnnPolicy for "
                "planes and small images, MlpPolicy for vectors"
            )
    if issubclass(kind, MultiInputPolicy):
        if not isinstance(space, gym.spaces.Dict):
            raise UnsupportedSpaceError(f"observation_space must be a Dict for several inputs, got {space}")
        for name, part in space.spaces.items():
            if is_image_space(part, normalized_image=scaled) and min(part.shape[1:]) < SMALLEST_IMAGE:  # type: ignore[index]
                raise UnsupportedSpaceError(
                    f"observation_space must have images of side >= {SMALLEST_IMAGE} for MultiInputPolicy, got {part} "
                    f"as {name!r}: pass policy_kwargs={{'features_extractor_class': MultiInputExtractor}} of "
                    "dgvf_agents.agents.policies"
                )


class DGVFPolicy(ActorCriticPolicy):
    """One of the paper's encoders, under heads that are linear unless `net_arch` says otherwise."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """Which encoder an observation space gets."""
        return MLPExtractor

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        lr_schedule: Schedule,
        net_arch: NetArch | None = None,
        activation_fn: type[nn.Module] | None = None,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            observation_space: of one environment.
            action_space: of one environment.
            lr_schedule: learning rate by remaining progress.
            net_arch: layers after the encoder, of the policy and of the value; none when left out.
            activation_fn: of these layers and of `MLPExtractor`; ReLU when left out.
            features_extractor_class: the encoder; by default the policy class's encoder for this kind of observation.
            features_extractor_kwargs: its arguments.
            normalize_images: whether images are divided by 255.
            kwargs: the other arguments of Stable-Baselines3's `ActorCriticPolicy`. The initial weights of the paper's
                encoders are orthogonal whatever `ortho_init` says.

        Raises:
            ValueError: there is nothing that `activation_fn` could apply to.
        """
        extractor = features_extractor_class or self.default_extractor(observation_space)
        arguments = dict(features_extractor_kwargs or {})
        if activation_fn is not None and extractor is MLPExtractor:
            arguments.setdefault("activation_fn", activation_fn)
        elif activation_fn is not None and not net_arch:
            raise ValueError(f"activation_fn must be left out without layers of net_arch, got {activation_fn!r}")
        if not normalize_images and extractor in (AtariCNNExtractor, ResNetExtractor):
            arguments["normalized_image"] = True
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[] if net_arch is None else net_arch,  # type: ignore[arg-type]
            activation_fn=activation_fn or nn.ReLU,
            features_extractor_class=extractor,
            features_extractor_kwargs=arguments,
            normalize_images=normalize_images,
            **kwargs,
        )


@final
class PaperMlpPolicy(DGVFPolicy):
    """For vectors: the paper's Puddleworld network, one encoder of 128, 128 ReLUs under linear heads."""


@final
class PaperCnnPolicy(DGVFPolicy):
    """For planes and images: the paper's Collect-Objects or Atari network."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """The Atari network for images large enough for it, the gridworld network otherwise."""
        return default_cnn(observation_space)


@final
class ResNetPolicy(DGVFPolicy):
    """For planes and images: the deep residual network of IMPALA (paper: joint learning on Atari)."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """The residual network, whatever the size of images."""
        return ResNetExtractor


ALIASES: dict[str, type[BasePolicy]] = {
    "MlpPolicy": MlpPolicy,
    "CnnPolicy": CnnPolicy,
    "MultiInputPolicy": MultiInputPolicy,
    "PaperMlpPolicy": PaperMlpPolicy,
    "PaperCnnPolicy": PaperCnnPolicy,
    "ResNetPolicy": ResNetPolicy,
}
"""Policies by name; the first three are Stable-Baselines3's."""
