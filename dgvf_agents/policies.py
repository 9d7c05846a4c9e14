"""Stable-Baselines3 policies that hold the networks of the algorithm."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import gymnasium as gym
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space, preprocess_obs
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from dgvf_agents.networks import (
    RELU_GAIN,
    AtariCNNEncoder,
    Encoder,
    GridCNNEncoder,
    MLPEncoder,
    encode_with,
    inside,
    linear,
    split_encoder,
)
from dgvf_agents.types import Params


class EncoderExtractor(BaseFeaturesExtractor):
    """A features extractor around one of the paper's encoders, which come with their own initial values."""

    def __init__(self, observation_space: gym.Space, encoder: Encoder) -> None:
        super().__init__(observation_space, encoder.features)
        self.encoder = encoder

    def forward(self, observations: Tensor) -> Tensor:
        return self.encoder(observations)


@final
class MLPExtractor(EncoderExtractor):
    """Two layers of 128 ReLUs on the flattened observation (paper: Puddleworld)."""

    def __init__(self, observation_space: gym.Space, hidden: tuple[int, ...] = (128, 128)) -> None:
        inputs = get_flattened_obs_dim(observation_space)
        bounds: dict[str, Any] = {}
        if isinstance(observation_space, gym.spaces.Box) and not is_image_space(observation_space):
            bounds = {"low": observation_space.low.ravel().tolist(), "high": observation_space.high.ravel().tolist()}
        super().__init__(observation_space, MLPEncoder(inputs, hidden, **bounds))


@final
class GridCNNExtractor(EncoderExtractor):
    """Two 2x2 convolutions of 8 and 16 filters, then 512 ReLUs (paper: Collect-Objects)."""

    def __init__(self, observation_space: gym.Space, hidden: int = 512) -> None:
        shape = observation_space.shape
        if shape is None or len(shape) != 3:
            raise ValueError(f"observation_space must have planes (channels, rows, columns), got {observation_space}")
        super().__init__(observation_space, GridCNNEncoder(shape, hidden=hidden))


@final
class AtariCNNExtractor(EncoderExtractor):
    """Convolutions 32, 64, 64, then 512 ReLUs (paper: Atari)."""

    def __init__(self, observation_space: gym.Space, hidden: int = 512) -> None:
        shape = observation_space.shape
        if shape is None or len(shape) != 3 or shape[1] != shape[2] or shape[1] < 36:
            raise ValueError(f"observation_space must have square images of side >= 36, got {observation_space}")
        super().__init__(observation_space, AtariCNNEncoder(shape[0], shape[1], hidden))


@final
class PreprocessedEncoder(Encoder):
    """A features extractor behind Stable-Baselines3's preprocessing, as a function of raw observations."""

    def __init__(self, extractor: BaseFeaturesExtractor, space: gym.Space, normalize_images: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.features = extractor.features_dim
        self._preprocess = partial(preprocess_obs, observation_space=space, normalize_images=normalize_images)

    def forward(self, observations: Tensor) -> Tensor:
        return self.extractor(self._preprocess(observations))


class DGVFPolicy(ActorCriticPolicy):
    """An encoder, and policy, value and answers that are linear in its features unless `net_arch` says otherwise.

    The features extractor is what the paper calls the encoder; layers of `net_arch` belong to the heads.
    """

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
        activation_fn: type[nn.Module] = nn.ReLU,
        ortho_init: bool = True,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        answers: int = 0,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            observation_space: of one environment.
            action_space: of one environment.
            lr_schedule: learning rate by remaining progress.
            net_arch: layers between features and heads; none when left out.
            activation_fn: of these layers.
            ortho_init: whether weights are orthogonal at first; the paper's encoders always are.
            features_extractor_class: the encoder; the paper's for this kind of observation when left out.
            answers: width of the answer head, which the auxiliary task decides.
            kwargs: of Stable-Baselines3's `ActorCriticPolicy`.

        Raises:
            ValueError: the features extractor is not to be shared between policy and value.
        """
        if not kwargs.get("share_features_extractor", True):
            raise ValueError("share_features_extractor must be True: the encoder is what the answers train, got False")
        self.answers = answers
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[] if net_arch is None else net_arch,
            activation_fn=activation_fn,
            ortho_init=ortho_init,
            features_extractor_class=features_extractor_class or type(self).default_extractor(observation_space),
            **kwargs,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        wanted, self.ortho_init = self.ortho_init, False
        super()._build(lr_schedule)
        self.ortho_init = wanted
        if wanted:
            gains: dict[nn.Module, float] = {self.mlp_extractor: RELU_GAIN, self.action_net: 0.01, self.value_net: 1.0}
            if not isinstance(self.features_extractor, EncoderExtractor):
                gains[self.features_extractor] = RELU_GAIN
            for module, gain in gains.items():
                module.apply(partial(self.init_weights, gain=gain))
        self.answer_net = linear(self.features_dim, self.answers, 1.0) if self.answers else None

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "answers": self.answers}


@final
class MlpPolicy(DGVFPolicy):
    """For vectors: the paper's Puddleworld network."""


@final
class CnnPolicy(DGVFPolicy):
    """For planes and images: the paper's Collect-Objects or Atari network."""

    @staticmethod
    def default_extractor(observation_space: gym.Space) -> type[BaseFeaturesExtractor]:
        """The Atari network for images large enough for it, the gridworld network otherwise."""
        shape = observation_space.shape or ()
        return AtariCNNExtractor if len(shape) == 3 and min(shape[1:]) >= 36 else GridCNNExtractor


@final
class PolicyFunctions:
    """A `DGVFPolicy` as a `FunctionalAgent`."""

    def __init__(self, policy: DGVFPolicy) -> None:
        self._policy = policy
        self._encoder = PreprocessedEncoder(
            policy.features_extractor, policy.observation_space, policy.normalize_images
        )
        self._names = dict(policy.named_parameters())

    def params(self) -> Params:
        return {_to_functional(name): parameter.detach() for name, parameter in self._names.items()}

    def show(self, params: Params) -> None:
        """Let the policy's own parameters have these values, without copying them."""
        with torch.no_grad():
            for name, parameter in self._names.items():
                parameter.data = params[_to_functional(name)]

    def split(self, params: Params) -> tuple[Params, Params]:
        return split_encoder(params)

    def encode(self, params: Params, observations: Tensor, batch_dims: int = 2) -> Tensor:
        return encode_with(self._encoder, inside(params, "encoder."), observations, batch_dims)

    def policy_outputs(self, params: Params, features: Tensor) -> Tensor:
        latent = self._layers(params, self._policy.mlp_extractor.policy_net, "mlp_extractor.policy_net.", features)
        return nn.functional.linear(latent, params["action_net.weight"], params["action_net.bias"])

    def values(self, params: Params, features: Tensor) -> Tensor:
        latent = self._layers(params, self._policy.mlp_extractor.value_net, "mlp_extractor.value_net.", features)
        return nn.functional.linear(latent, params["value_net.weight"], params["value_net.bias"]).squeeze(-1)

    def answer(self, params: Params, features: Tensor) -> Tensor:
        if self._policy.answer_net is None:
            return features.new_zeros((*features.shape[:-1], 0))
        return nn.functional.linear(features, params["answers.weight"], params["answers.bias"])

    @staticmethod
    def _layers(params: Params, layers: nn.Module, prefix: str, features: Tensor) -> Tensor:
        own = inside(params, prefix)
        return torch.func.functional_call(layers, own, (features,)) if own else features


def _to_functional(name: str) -> str:
    """A policy's parameter name in the core's terms: those of `encoder.` and `answers.` have their prefixes."""
    for own, functional in (("features_extractor.", "encoder.extractor."), ("answer_net.", "answers.")):
        if name.startswith(own):
            return functional + name.removeprefix(own)
    return name
