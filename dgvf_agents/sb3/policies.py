"""Stable-Baselines3 policies with the paper's networks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, final

import gymnasium as gym
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, NatureCNN
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from dgvf_agents.core.argument_checks import is_integer
from dgvf_agents.core.networks import RELU_GAIN
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, RMSProp
from dgvf_agents.sb3.extractors import (
    AtariCNNExtractor,
    EncoderExtractor,
    GridCNNExtractor,
    MLPExtractor,
    MultiInputExtractor,
    ResNetExtractor,
    TanhExtractor,
    default_cnn,
)

__all__ = [
    "AtariCNNExtractor",
    "CnnPolicy",
    "DGVFPolicy",
    "GridCNNExtractor",
    "MLPExtractor",
    "MlpPolicy",
    "MultiInputExtractor",
    "MultiInputPolicy",
    "PaperMlpPolicy",
    "ResNetExtractor",
    "ResNetPolicy",
    "TanhExtractor",
]


class DGVFPolicy(ActorCriticPolicy):
    """An encoder, and policy and value that are linear in its features unless `net_arch` says otherwise.

    The features extractor is what the paper calls the encoder; layers of `net_arch` belong to the heads. Where it is
    not shared, the policy and the value have an encoder each.
    """

    shares_default_extractor: ClassVar[bool] = True
    """Whether policy and value have one encoder where neither the encoder nor this is chosen."""
    default_activation: ClassVar[type[nn.Module]] = nn.ReLU
    """Of the layers of `net_arch`."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """Which encoder an observation space gets."""
        return MLPExtractor

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        lr_schedule: Schedule,
        net_arch: list[int] | dict[str, list[int]] | None = None,
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
        **kwargs: Any,
    ) -> None:
        """
        Args:
            observation_space: of one environment.
            action_space: of one environment.
            lr_schedule: learning rate by remaining progress.
            net_arch: layers between features and heads; none when left out.
            activation_fn: of these layers; of the policy class when left out.
            ortho_init: whether weights are orthogonal at first; the paper's encoders always are.
            use_sde: whether exploration depends on the state (gSDE).
            log_std_init: logarithm of the standard deviation of continuous actions at first.
            full_std: with gSDE, whether every feature and action has a standard deviation of its own.
            use_expln: with gSDE, whether standard deviations grow slower than exponentially.
            squash_output: with gSDE, whether actions are squashed into their space rather than clipped.
            features_extractor_class: the encoder; that of the policy class for this kind of observation when left out.
            features_extractor_kwargs: its arguments.
            share_features_extractor: whether policy and value have one encoder. When left out they have, but with the
                default encoder of `MlpPolicy`.
            normalize_images: whether images are divided by 255.
            kwargs: `optimizer_class` and `optimizer_kwargs`.

        Raises:
            ValueError: `net_arch` does not describe layers.
        """
        check_net_arch(net_arch)
        extractor = features_extractor_class or type(self).default_extractor(observation_space)
        if share_features_extractor is None:
            share_features_extractor = features_extractor_class is not None or self.shares_default_extractor
        arguments = dict(features_extractor_kwargs or {})
        scaled = (AtariCNNExtractor, ResNetExtractor, MultiInputExtractor, NatureCNN, CombinedExtractor)
        if not normalize_images and issubclass(extractor, scaled):
            arguments["normalized_image"] = True
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[] if net_arch is None else net_arch,
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
        """What a policy saved alone is built with; Stable-Baselines3's leaves the sharing out."""
        return {
            **super()._get_constructor_parameters(),
            "share_features_extractor": self.share_features_extractor,
            "normalize_images": self.normalize_images,
        }

    def _build(self, lr_schedule: Schedule) -> None:
        wanted, self.ortho_init = self.ortho_init, False
        super()._build(lr_schedule)
        self.ortho_init = wanted
        if wanted:
            gains: dict[nn.Module, float] = {self.mlp_extractor: RELU_GAIN, self.action_net: 0.01, self.value_net: 1.0}
            for extractor in {self.pi_features_extractor: None, self.vf_features_extractor: None}:
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


def check_net_arch(net_arch: Any) -> None:
    """A list that holds one dict is Stable-Baselines3's former notation, about which Stable-Baselines3 warns.

    Raises:
        ValueError: it is neither None nor a list of sizes, or a dict of such lists for the policy and the value.
    """
    if isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], Mapping):
        return check_net_arch(net_arch[0])
    heads = net_arch.values() if isinstance(net_arch, Mapping) and net_arch.keys() <= {"pi", "vf"} else [net_arch]
    for sizes in () if net_arch is None else heads:
        if not (isinstance(sizes, list | tuple) and all(is_integer(size) and size >= 1 for size in sizes)):
            raise ValueError(
                "net_arch must be a list of integers >= 1, a dict with such lists as 'pi' and 'vf', or None, "
                f"got {net_arch!r}"
            )


def with_optimizer(
    policy_kwargs: Mapping[str, Any], use_rms_prop: bool, rms_prop_eps: float, inner_optimizer: Optimizer | None
) -> dict[str, Any]:
    """A policy's arguments with A2C's optimizer, unless they name another.

    Raises:
        ValueError: there is an inner optimizer beside the one that they name.
    """
    kwargs = dict(policy_kwargs)
    if "optimizer_class" in kwargs:
        if inner_optimizer is not None:
            raise ValueError(f"inner_optimizer must be None where optimizer_class is given, got {inner_optimizer}")
        return kwargs
    kind: type[torch.optim.Optimizer] = torch.optim.RMSprop if use_rms_prop else torch.optim.Adam
    usual = {"alpha": 0.99, "eps": rms_prop_eps} if use_rms_prop else {"eps": 1e-5}
    given = kwargs.get("optimizer_kwargs")
    return {**kwargs, "optimizer_class": kind, "optimizer_kwargs": usual if given is None else given}


_WITHOUT_EFFECT = {
    "momentum": 0,
    "dampening": 0,
    "nesterov": False,
    "centered": False,
    "weight_decay": 0,
    "amsgrad": False,
    "maximize": False,
}
"""Arguments that may be given these values only: others have no differentiable counterpart here."""

_ABOUT_SPEED = ("foreach", "fused", "capturable", "differentiable")
"""Arguments that change how PyTorch computes, not what."""


def inner_optimizer_for(
    optimizer_class: type[torch.optim.Optimizer], optimizer_kwargs: Mapping[str, Any] | None = None
) -> Optimizer:
    """The differentiable optimizer of the inner update for a policy's `optimizer_class` and `optimizer_kwargs`.

    Of `RMSprop`, `Adam` and `AdamW`, ε moves into the root, squared: √v + ε has an infinite derivative in v at 0, and
    √(v + ε²) is the same number for v far from ε² on either side.

    Raises:
        ValueError: there is none; the message says which there are.
    """
    given = dict(optimizer_kwargs or {})
    for name in _ABOUT_SPEED:
        given.pop(name, None)
    optimizer = _made(optimizer_class, given)
    for name, value in given.items():
        if name not in _WITHOUT_EFFECT:
            raise ValueError(f"optimizer_kwargs must be arguments of {optimizer_class.__name__}, got {name!r}")
        if value != _WITHOUT_EFFECT[name]:
            raise ValueError(
                f"optimizer_kwargs must have {name}={_WITHOUT_EFFECT[name]!r}, got {value!r}: the meta-gradient goes "
                f"through the optimizer, and its {name} is not implemented"
            )
    return optimizer


def _made(optimizer_class: type[torch.optim.Optimizer], given: dict[str, Any]) -> Optimizer:
    """The optimizer, its arguments taken out of `given`."""
    if optimizer_class is RMSpropTFLike:
        return RMSProp.tensorflow(given.pop("eps", 1e-8), given.pop("alpha", 0.99))
    if optimizer_class is torch.optim.RMSprop:
        return RMSProp.pytorch(given.pop("eps", 1e-8), given.pop("alpha", 0.99))
    if optimizer_class in (torch.optim.Adam, torch.optim.AdamW):
        beta1, beta2 = given.pop("betas", (0.9, 0.999))
        decoupled = optimizer_class is torch.optim.AdamW
        weight_decay = given.pop("weight_decay", 0.01) if decoupled else 0.0
        return Adam(beta1, beta2, given.pop("eps", 1e-8), weight_decay)
    if optimizer_class is torch.optim.SGD:
        return SGD()
    raise ValueError(
        "optimizer_class must be RMSpropTFLike, or RMSprop, Adam, AdamW or SGD of torch.optim: the meta-gradient goes "
        f"through the optimizer; got {getattr(optimizer_class, '__name__', optimizer_class)}. Pass inner_optimizer= a "
        "dgvf_agents.core.optimizers.Optimizer for one of your own"
    )
