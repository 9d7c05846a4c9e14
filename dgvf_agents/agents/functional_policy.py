"""A Stable-Baselines3 policy, and the answer head beside it, as pure functions of named parameters."""

from __future__ import annotations

import copy
import warnings
from typing import Any, final

import gymnasium as gym
import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from torch import Tensor, nn
from torch.func import functional_call

from dgvf_agents.agents.extractors import PreprocessedEncoder
from dgvf_agents.core.networks import encode_with, inside, linear, split_encoder
from dgvf_agents.core.types import Observations, Params, Rollout, map_observations
from dgvf_agents.execution.packing import KEY, Packing
from dgvf_agents.learner import like

_ENCODERS = (("vf_features_extractor.", "encoder.second."), ("features_extractor.", "encoder.extractor."))
"""Beginnings of names in a policy, and in θ."""

_OWN = ("forward", "evaluate_actions", "get_distribution", "predict_values", "extract_features")
"""Methods of a policy that updates do without."""


_UNREAD = ("optimizer", "lr_schedule", "optimizer_class", "optimizer_kwargs")
"""Attributes of a policy that acting and updates do without."""


@final
class PolicyFunctions:
    """An `ActorCriticPolicy` with an answer head as a `FunctionalAgent`.

    θ has the policy's own names, except features extractors, which begin with `encoder.`, and the answer
    head's, which begin with `answers.`. Acting and updates go through the policy's modules (features extractors,
    `mlp_extractor`, `action_net`, `value_net`) rather than its methods.
    """

    def __init__(
        self, policy: ActorCriticPolicy, answers: nn.Linear | None = None, mixed_precision: bool = False
    ) -> None:
        """
        Args:
            policy: any actor-critic policy.
            answers: the answer head; `None` for no answers.
            mixed_precision: whether the encoder's matrix products use bfloat16; the heads' never do.

        Raises:
            ValueError: parts outside the features extractors act differently in training.
        """
        policy.set_training_mode(False)
        shared = policy.share_features_extractor
        self._policy, self._answers = policy, answers
        self._encoder = PreprocessedEncoder(
            policy.features_extractor,
            policy.observation_space,
            policy.normalize_images,
            None if shared else policy.vf_features_extractor,
            mixed_precision,
        )
        self._training_encoder = copy.deepcopy(self._encoder).train()
        self._actor = _Method(policy.mlp_extractor, "forward_actor")
        self._critic = _Method(policy.mlp_extractor, "forward_critic")
        self._parameters = {theta_name(name): parameter for name, parameter in policy.named_parameters()}
        if answers is not None:
            self._parameters |= {f"answers.{name}": parameter for name, parameter in answers.named_parameters()}
        self._packing = Packing(self.params())
        self._shown: Tensor | None = None  # packed θ, which the policy's own parameters are views of
        self._views: list[tuple[int, Tensor]] = []  # these, and where they are in memory
        persistent = policy.state_dict().keys()
        self._statistics = {theta_name(name): buffer for name, buffer in policy.named_buffers() if name in persistent}
        _check_heads(policy)
        _warn_of_own_methods(policy)

    def __getstate__(self) -> dict[str, Any]:
        """Without what the functions do not read, so that models of one architecture share compiled functions."""
        policy = copy.copy(self._policy)
        own = {name: value for name, value in vars(policy).items() if name not in _UNREAD}
        policy.__dict__ = own
        return {**vars(self), "_policy": policy, "_shown": None, "_views": []}

    @property
    def features(self) -> int:
        """F: width of the features."""
        return self._encoder.features

    @property
    def random_in_training(self) -> bool:
        """Whether features in training differ from call to call, as dropout makes them."""
        return any(isinstance(module, nn.modules.dropout._DropoutNd) for module in self._encoder.modules())

    @property
    def faster_eagerly(self) -> bool:
        """Whether updates on the CPU are slower if they are compiled."""
        return any(getattr(module, "faster_eagerly", False) for module in self._encoder.modules())

    def inputs(self, observations: Observations) -> tuple[Observations, bool]:
        """Preprocessed observations, of one batch axis, and whether preprocessing divided integers by 255.

        Args:
            observations: `[T, B, *obs]`.
        """
        flat = map_observations(lambda tensor: tensor.flatten(0, 1), observations)
        space = self._policy.observation_space
        spaces = space.spaces.values() if isinstance(space, gym.spaces.Dict) else [space]
        return self._encoder.preprocess(flat), self._policy.normalize_images and any(map(is_image_space, spaces))

    def params(self) -> Params:
        return {name: parameter.detach() for name, parameter in self._parameters.items()}

    def show(self, theta: Tensor) -> None:
        """Copy packed θ, in the order of `params`, to the policy's own parameters."""
        if self._shown is None:
            self._shown = torch.empty_like(theta)
            self._views = [(view.data_ptr(), view) for view in self._packing.views({KEY: self._shown})]
        with torch.no_grad():
            self._shown.copy_(theta)
            for parameter, (pointer, view) in zip(self._parameters.values(), self._views, strict=True):
                if parameter.data_ptr() != pointer:
                    parameter.data = view

    def versions(self) -> list[int]:
        """How often each parameter was written to in place; writes to its `.data` do not count."""
        return [parameter._version for parameter in self._parameters.values()]

    def statistics(self) -> Params:
        """Copies of the encoder's running statistics, by name; empty for most."""
        return {name: buffer.clone() for name, buffer in self._statistics.items()}

    def set_statistics(self, statistics: Params) -> None:
        """Restore what `statistics` returned.

        Raises:
            ValueError: names or shapes differ.
        """
        with torch.no_grad():
            for name, value in like("statistics", statistics, self.statistics()).items():
                self._statistics[name].copy_(value)

    def state_dicts(self, theta: Params, statistics: Params) -> dict[str, Params]:
        """θ and running statistics as state dicts of the policy and of the answer head."""
        own = {**theta, **statistics}
        named = {name: own.get(theta_name(name), own.get(_shared_name(name))) for name in self._policy.state_dict()}
        policy = {name: value for name, value in named.items() if value is not None}
        answers = {name.removeprefix("answers."): value for name, value in own.items() if name.startswith("answers.")}
        return {"policy": policy, **({"answer_net": answers} if self._answers is not None else {})}

    def update_statistics(self, observations: Observations) -> None:
        """Let running statistics take a batch `[T, B, *obs]` in; nothing where there are none."""
        if not self._statistics:
            return
        self._encoder.train()
        with torch.no_grad():
            encode_with(self._encoder, {}, observations, 2)
        self._encoder.eval()

    @property
    def encoder_widths(self) -> list[int]:
        return encoder_widths(self._policy)

    def split(self, params: Params) -> tuple[Params, Params]:
        return split_encoder(params)

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        own = inside(params, "encoder.")
        if training:  # in training they change in place: copies, which are thrown away
            own |= {name: value.clone() for name, value in own.items() if f"encoder.{name}" in self._statistics}
        return encode_with(self._training_encoder if training else self._encoder, own, observations, batch_dims)

    def with_features(self, rollout: Rollout) -> Rollout:
        """The rollout with the policy's features of o_{t+1} in place of the observations."""
        with torch.no_grad():
            features = self.encode({**self.params(), **rollout.statistics}, rollout.next_observations)
        return rollout._replace(next_observations=features)

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        latent = self._latent(params, features)
        outputs = _apply(self._policy.action_net, params, "action_net.", latent)
        if "log_std" not in params:
            return outputs
        if self._exploring:
            variance = self._variance(params, latent if held is None else self._latent(*held))
            return torch.cat([outputs, 0.5 * torch.log(variance)], -1)
        return torch.cat([outputs, params["log_std"].expand_as(outputs)], -1)

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        """Noise of a Gaussian sample: `drawn` `[B, A]`; with gSDE of exploration matrices `[B, latent, A]`."""
        if not self._exploring:
            return drawn
        latent = self._latent(params, features)
        return (latent[:, None] @ drawn)[:, 0] * torch.rsqrt(self._variance(params, latent))

    def values(self, params: Params, features: Tensor) -> Tensor:
        size = 0 if self._policy.share_features_extractor else self._policy.features_dim
        latent = functional_call(self._critic, _under("module.", params), (features[..., size:],))
        return _apply(self._policy.value_net, params, "value_net.", latent).squeeze(-1)

    def answer(self, params: Params, features: Tensor) -> Tensor:
        if self._answers is None:
            return features.new_zeros((*features.shape[:-1], 0))
        return nn.functional.linear(features, params["answers.weight"], params["answers.bias"])

    @property
    def _exploring(self) -> bool:
        return isinstance(self._policy.action_dist, StateDependentNoiseDistribution)

    def _latent(self, params: Params, features: Tensor) -> Tensor:
        """Input of the policy head."""
        own = features if self._policy.share_features_extractor else features[..., : self._policy.features_dim]
        return functional_call(self._actor, _under("module.", params), (own,))

    def _variance(self, params: Params, latent: Tensor) -> Tensor:
        """Of actions under gSDE (Raffin et al. 2022, section 3.1)."""
        log_std, distribution = params["log_std"], self._policy.action_dist
        assert isinstance(distribution, StateDependentNoiseDistribution)
        if distribution.use_expln:  # the branch not taken is kept from overflowing, so that its gradient is 0, not NaN
            above = torch.log1p(log_std.clamp(min=0.0) + distribution.epsilon) + 1.0
            std = torch.where(log_std > 0.0, above, torch.exp(log_std.clamp(max=0.0)))
        else:
            std = torch.exp(log_std)
        if not distribution.full_std:
            std = std.expand(-1, distribution.action_dim)
        return (latent * latent) @ (std * std) + distribution.epsilon


@final
class _Method(nn.Module):
    """A module whose call is a method of another's."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self._method = module, method

    def forward(self, inputs: Tensor) -> Tensor:
        return getattr(self.module, self._method)(inputs)


def _under(prefix: str, params: Params) -> Params:
    """Parameters of the layers between features and heads, under another prefix."""
    return {f"{prefix}{name}": value for name, value in inside(params, "mlp_extractor.").items()}


def _apply(module: nn.Module, params: Params, prefix: str, inputs: Tensor) -> Tensor:
    if type(module) is nn.Linear:  # without the cost of a functional call
        return nn.functional.linear(inputs, params[f"{prefix}weight"], params.get(f"{prefix}bias"))
    return functional_call(module, inside(params, prefix), (inputs,))


def encoder_widths(policy: ActorCriticPolicy) -> list[int]:
    """Widths of the features of the policy and of the value; one number if they share an encoder."""
    extractors = [policy.pi_features_extractor, policy.vf_features_extractor]
    return [extractor.features_dim for extractor in extractors[: 1 if policy.share_features_extractor else 2]]


def theta_name(name: str) -> str:
    """The name in θ of a parameter of a policy."""
    for own, functional in _ENCODERS:
        if name.startswith(own):
            return functional + name.removeprefix(own)
    return name


def _shared_name(name: str) -> str:
    """The name in θ of a parameter of an extractor that policy and value share, which a policy lists three times."""
    return theta_name(name.removeprefix("pi_").removeprefix("vf_"))


def _check_heads(policy: ActorCriticPolicy) -> None:
    kinds: tuple[Any, ...] = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    for name, module in policy.named_modules():
        if isinstance(module, kinds) and not theta_name(f"{name}.").startswith("encoder."):
            raise ValueError(
                f"policy must have dropout and batch normalization in its features extractor only, got {name}: {module}"
            )


def _warn_of_own_methods(policy: ActorCriticPolicy) -> None:
    own = [name for name in _OWN if getattr(type(policy), name) is not getattr(ActorCriticPolicy, name)]
    if own:
        warnings.warn(
            f"{type(policy).__name__} has its own {', '.join(own)}: predict() and rollout_buffer use it, updates go "
            "through the policy's modules (features_extractor, mlp_extractor, action_net, value_net) and do not",
            stacklevel=2,
        )


def exploration_matrices(policy: ActorCriticPolicy) -> Tensor:
    """Those of a policy with gSDE, as drawn last."""
    assert isinstance(policy.action_dist, StateDependentNoiseDistribution)
    return policy.action_dist.exploration_matrices


def answer_head(policy: ActorCriticPolicy, num_answers: int) -> nn.Linear | None:
    """A new linear head of the answers on a policy's features; `None` for no answers."""
    return linear(sum(encoder_widths(policy)), num_answers, 1.0) if num_answers else None


def functional_policy(
    policy: ActorCriticPolicy, num_answers: int, mixed_precision: bool, recomputes: bool, learners: int
) -> tuple[PolicyFunctions, nn.Linear | None]:
    """A policy with a new answer head as pure functions, and the head; `None` without answers.

    Args:
        policy: any actor-critic policy.
        num_answers: number of answers.
        mixed_precision: see `PolicyFunctions`.
        recomputes: whether the graph of an unroll is not stored.
        learners: number of learners that train together.

    Raises:
        ValueError: the encoder is random in training, or has running statistics, where it must not.
    """
    head = answer_head(policy, num_answers)
    head = None if head is None else head.to(policy.device)
    functions = PolicyFunctions(policy, head, mixed_precision)
    if recomputes and functions.random_in_training:
        raise ValueError("storage must be 'graph' where features extractors drop units at random, got 'recompute'")
    if learners > 1 and (statistics := sorted(functions.statistics())):
        raise ValueError(
            f"learners must be 1 for features extractors with running statistics, got {learners}: each learner would "
            f"have its own {', '.join(statistics)}"
        )
    if head is not None and not functions.split(functions.params())[0]:
        warnings.warn(
            f"features_extractor_class {type(policy.features_extractor).__name__} has no parameters: answers cannot "
            "shape it. Use MlpPolicy, CnnPolicy or MultiInputPolicy, layers of net_arch, or an extractor that learns",
            stacklevel=3,
        )
    return functions, head
