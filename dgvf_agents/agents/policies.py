"""Stable-Baselines3 policies with the paper's networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, final

import gymnasium as gym
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    MlpExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from dgvf_agents.agents.extractors import (
    AtariCNNExtractor,
    EncoderExtractor,
    ExtendedExtractor,
    GridCNNExtractor,
    MLPExtractor,
    MultiInputExtractor,
    ResNetExtractor,
    TanhExtractor,
    default_cnn,
)
from dgvf_agents.core.argument_checks import check_flags, is_finite_number, is_integer
from dgvf_agents.core.networks import RELU_GAIN

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
    "TanhExtractor",
]


NetArch = Sequence[int] | Mapping[str, Sequence[int]]
"""Widths of layers; by `"pi"` and `"vf"` if they differ between policy and value."""


def check_net_arch(name: str, net_arch: Any) -> None:
    """Check widths of layers. A list that holds one dict is Stable-Baselines3's former notation, about which it warns.

    Raises:
        ValueError: they are neither None nor a list of integers >= 1, or a dict of such lists.
    """
    net_arch = _in_current_notation(net_arch)
    parts = net_arch.values() if isinstance(net_arch, Mapping) and net_arch.keys() <= {"pi", "vf"} else [net_arch]
    for sizes in () if net_arch is None else parts:
        if not (isinstance(sizes, list | tuple) and all(is_integer(size) and size >= 1 for size in sizes)):
            raise ValueError(
                f"{name} must be a list of integers >= 1, a dict with such lists as 'pi' and 'vf', or None, "
                f"got {net_arch!r}"
            )


def layers_of(net_arch: Any) -> dict[str, list[int]] | None:
    """Widths of the layers of policy and value, by `"pi"` and `"vf"`; `None` if none are given."""
    if net_arch is None:
        return None
    net_arch = _in_current_notation(net_arch)
    separate = isinstance(net_arch, Mapping)
    return {part: [int(n) for n in (net_arch.get(part, []) if separate else net_arch)] for part in ("pi", "vf")}


def _in_current_notation(net_arch: Any) -> Any:
    """The meaning of a list that holds one dict."""
    former = isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], Mapping)
    return net_arch[0] if former else net_arch


class DGVFPolicy(ActorCriticPolicy):
    """An encoder, and policy and value that are linear in its features unless `head_arch` says otherwise.

    The features extractor, with the layers of `net_arch`, is what the paper calls the encoder. Where it is not shared,
    the policy and the value have an encoder each.
    """

    shares_default_extractor: ClassVar[bool] = True
    """Whether policy and value have one encoder where neither the encoder nor this is chosen."""
    default_activation: ClassVar[type[nn.Module]] = nn.ReLU
    """Of the default encoders for vectors, and of the layers of `net_arch` and `head_arch`."""

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
        ortho_init: bool = True,
        use_sde: bool = False,
        log_std_init: float = 0.0,
        full_std: bool = True,
        use_expln: bool = False,
        squash_output: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: dict[str, Any] | None = None,
        share_features_extractor: bool | None = None,
        normalize_images: bool = True,
        head_arch: NetArch | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            observation_space: of one environment.
            action_space: of one environment.
            lr_schedule: learning rate by remaining progress.
            net_arch: layers of the encoder: in place of `MLPExtractor`'s and `TanhExtractor`'s, the default
                encoders for vectors, and after any other features extractor. A dict, with `"pi"` and `"vf"`, is for
                policies whose encoder is not shared.
            activation_fn: of the default encoders for vectors, and of the layers of `net_arch` and `head_arch`; of the
                policy class when left out.
            ortho_init: whether weights are orthogonal at first; the paper's encoders always are.
            use_sde: whether exploration depends on the state (gSDE).
            log_std_init: logarithm of the standard deviation of continuous actions at first.
            full_std: with gSDE, whether every feature and action has a standard deviation of its own.
            use_expln: with gSDE, whether standard deviations grow slower than exponentially.
            squash_output: with gSDE, whether actions are squashed into their space rather than clipped.
            features_extractor_class: the encoder; by default the policy class's encoder for this kind of observation.
            features_extractor_kwargs: its arguments.
            share_features_extractor: whether policy and value have one encoder. When left out they have, but with the
                default encoder of `MlpPolicy`.
            normalize_images: whether images are divided by 255.
            head_arch: layers between features and heads; none when left out.
            kwargs: `optimizer_class` and `optimizer_kwargs`.

        Raises:
            ValueError: an argument is out of its range, `net_arch` or `head_arch` does not describe layers, or
                `net_arch` describes two encoders where there is one.
        """
        check_net_arch("net_arch", net_arch)
        check_net_arch("head_arch", head_arch)
        check_flags(ortho_init=ortho_init, use_sde=use_sde, normalize_images=normalize_images)
        if not (activation_fn is None or callable(activation_fn)):
            raise ValueError(
                f"activation_fn must be a class of modules, such as nn.Tanh, or None, got {activation_fn!r}"
            )
        if not is_finite_number(log_std_init):
            raise ValueError(f"log_std_init must be a finite number, got {log_std_init!r}")
        extractor = features_extractor_class or type(self).default_extractor(observation_space)
        if share_features_extractor is None:
            share_features_extractor = features_extractor_class is not None or self.shares_default_extractor
        self._layers = layers_of(net_arch)
        self.head_arch: dict[str, list[int]] = layers_of(head_arch) or {}
        if share_features_extractor and self._layers and self._layers["pi"] != self._layers["vf"]:
            raise ValueError(
                f"net_arch must be a list, since policy and value share one encoder, got {net_arch!r}: pass "
                "share_features_extractor=False for two, or head_arch for layers of the heads"
            )
        arguments = dict(features_extractor_kwargs or {})
        scaled = (AtariCNNExtractor, ResNetExtractor, MultiInputExtractor, NatureCNN, CombinedExtractor)
        if not normalize_images and issubclass(extractor, scaled):
            arguments["normalized_image"] = True
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[] if net_arch is None else net_arch,  # type: ignore[arg-type]
            activation_fn=activation_fn or self.default_activation,
            ortho_init=ortho_init,
            use_sde=use_sde,
            log_std_init=log_std_init,
            full_std=full_std,
            use_expln=use_expln,
            squash_output=squash_output,
            features_extractor_class=extractor,
            features_extractor_kwargs=arguments,
            share_features_extractor=share_features_extractor,
            normalize_images=normalize_images,
            **kwargs,
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Constructor arguments of a policy saved alone; Stable-Baselines3's omit the sharing."""
        return {
            **super()._get_constructor_parameters(),
            "net_arch": self._layers,
            "head_arch": self.head_arch,
            "share_features_extractor": self.share_features_extractor,
            "normalize_images": self.normalize_images,
        }

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """An encoder: the policy's first, then the value's if it has its own."""
        made = getattr(self, "pi_features_extractor", None) is not None
        return self.make_encoder(self.observation_space, "vf" if made else "pi")

    def make_encoder(self, observation_space: gym.Space, part: str = "pi") -> BaseFeaturesExtractor:
        """A new encoder like the policy's (`"pi"`) or the value's (`"vf"`), for observations of any space."""
        kind, arguments = self.features_extractor_class, dict(self.features_extractor_kwargs)
        if kind in (MLPExtractor, TanhExtractor) and kind is type(self).default_extractor(observation_space):
            arguments.setdefault("activation_fn", self.activation_fn)
        layers = None if self._layers is None else self._layers[part]
        if layers is not None and kind in (MLPExtractor, TanhExtractor) and "hidden" not in arguments:
            if not layers:
                return FlattenExtractor(observation_space)
            return kind(
                observation_space, **{"activation_fn": self.activation_fn, **arguments, "hidden": tuple(layers)}
            )
        extractor = kind(observation_space, **arguments)
        return ExtendedExtractor(extractor, layers, self.activation_fn) if layers else extractor

    def _build_mlp_extractor(self) -> None:
        pi, vf = (
            MlpExtractor(width, self.head_arch, self.activation_fn, self.device)
            for width in (self.features_dim, self.vf_features_extractor.features_dim)
        )
        pi.value_net, pi.latent_dim_vf = vf.value_net, vf.latent_dim_vf
        self.mlp_extractor = pi

    def _build(self, lr_schedule: Schedule) -> None:
        wanted, self.ortho_init = self.ortho_init, False
        super()._build(lr_schedule)
        self.ortho_init = wanted
        if wanted:
            gains: dict[nn.Module, float] = {self.mlp_extractor: RELU_GAIN, self.action_net: 0.01, self.value_net: 1.0}
            for extractor in {self.pi_features_extractor: None, self.vf_features_extractor: None}:
                if isinstance(extractor, ExtendedExtractor):
                    extractor = extractor.extractor
                if not isinstance(extractor, EncoderExtractor | MultiInputExtractor):
                    gains[extractor] = RELU_GAIN
            for module, gain in gains.items():
                module.apply(partial(self.init_weights, gain=gain))


@final
class MlpPolicy(DGVFPolicy):
    """For vectors: the networks of Stable-Baselines3's `MlpPolicy`, one for the policy and one for the value.

    Their last hidden layers are the features that answers are linear in. One shared network learns CartPole-v1 much
    more slowly, with or without questions: the value's gradient drowns the policy's.
    """

    shares_default_extractor = False
    default_activation = nn.Tanh

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """Two layers of 64 tanh units."""
        return TanhExtractor


@final
class PaperMlpPolicy(DGVFPolicy):
    """For vectors: the paper's Puddleworld network, one encoder of 128, 128 ReLUs under linear heads."""


@final
class CnnPolicy(DGVFPolicy):
    """For planes and images: the paper's Collect-Objects or Atari network."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """The Atari network for images large enough for it, the gridworld network otherwise."""
        return default_cnn(observation_space)


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


@final
class MultiInputPolicy(DGVFPolicy):
    """For Dict observations: convolutions for each image, fully connected layers for all else."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """One network for all of a Dict."""
        return MultiInputExtractor


ALIASES: dict[str, type[BasePolicy]] = {
    kind.__name__: kind
    for kind in (MlpPolicy, CnnPolicy, MultiInputPolicy, PaperMlpPolicy, PaperCnnPolicy, ResNetPolicy)
}
"""Policies by name."""
