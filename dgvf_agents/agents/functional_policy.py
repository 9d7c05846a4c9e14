"""A Stable-Baselines3 policy, and the answer head beside it, as pure functions of named parameters."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import gymnasium as gym
import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution, make_proba_distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from torch import Tensor, nn

from dgvf_agents.agents.extractors import PreprocessedEncoder, widths_of
from dgvf_agents.core.networks import RELU_GAIN, call, encode_with, inside, linear, split_encoder
from dgvf_agents.core.types import Observations, Params, Rollout, map_observations
from dgvf_agents.execution.packing import KEY, Packing
from dgvf_agents.learner import like

_ENCODERS = (
    ("vf_features_extractor.", "encoder.second."),
    ("features_extractor.", "encoder.extractor."),
    ("mlp_extractor.", "encoder.layers."),
)
"""Beginnings of names in a policy, and in θ."""

_CLOSED = (
    *("forward", "evaluate_actions", "get_distribution", "predict_values", "extract_features"),
    *("_get_action_dist_from_latent", "reset_noise"),
)
"""Methods of a policy that updates do without, so that a subclass must not override them."""

_UNREAD = ("optimizer", "lr_schedule", "optimizer_class", "optimizer_kwargs")
"""Attributes of a policy that acting and updates do without."""


@final
class PolicyFunctions:
    """An `ActorCriticPolicy` with an answer head as a `FunctionalAgent`.

    θ has the policy's own names, except features extractors and the layers after them, which begin with `encoder.`, and
    the answer head's, which begin with `answers.`. Acting and updates go through the policy's modules (features
    extractors, `mlp_extractor`, `action_net`, `value_net`) rather than its methods.
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
            ValueError: the policy has methods, heads or a distribution of its own that updates would not use.
        """
        _check_policy(policy)
        policy.set_training_mode(False)
        self._policy, self._answers = policy, answers
        self._encoder = PreprocessedEncoder(
            policy.features_extractor,
            policy.observation_space,
            policy.normalize_images,
            _second(policy),
            mixed_precision,
            hidden_layers(policy),
        )
        self._training_encoder = copy.deepcopy(self._encoder).train()
        modules = list(self._training_encoder.modules())
        self.random_in_training = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in modules)
        """Whether features in training differ from call to call, as dropout makes them."""
        self.faster_eagerly = any(getattr(module, "faster_eagerly", False) for module in modules)
        """Whether updates on the CPU are slower if they are compiled."""
        self._widths = encoder_widths(policy)
        self._gaussian_noise = not isinstance(policy.action_dist, StateDependentNoiseDistribution)
        self._parameters = {theta_name(name): parameter for name, parameter in policy.named_parameters()}
        if answers is not None:
            self._parameters |= {f"answers.{name}": parameter for name, parameter in answers.named_parameters()}
        self._packing = Packing(self.params())
        self._shown: Tensor | None = None  # packed θ, which the policy's own parameters are views of
        self._views: list[tuple[int, Tensor]] = []  # these, and where they are in memory
        persistent = policy.state_dict().keys()
        self._buffers = {theta_name(name): name for name, _ in policy.named_buffers() if name in persistent}

    def __getstate__(self) -> dict[str, Any]:
        """Without what the functions do not read, so that models of one architecture share compiled functions."""
        policy = copy.copy(self._policy)
        own = {name: value for name, value in vars(policy).items() if name not in _UNREAD}
        policy.__dict__ = own
        return {**vars(self), "_policy": policy, "_shown": None, "_views": []}

    @property
    def is_own(self) -> bool:
        """Whether the encoder has modules of the user's own."""
        return self._encoder.is_own

    def zeros(self) -> Observations:
        """Two observations `[1, 2, *obs]` of zeros."""
        space, device = self._policy.observation_space, self._policy.device
        if isinstance(space, gym.spaces.Dict):
            return {name: torch.zeros(1, 2, *part.shape, device=device) for name, part in space.spaces.items()}  # type: ignore[misc]
        return torch.zeros(1, 2, *space.shape, device=device)  # type: ignore[misc]

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
            views = self._packing.unpack({KEY: self._shown}).values()
            self._views = [(view.data_ptr(), view) for view in views]
        with torch.no_grad():
            self._shown.copy_(theta)
            for parameter, (pointer, view) in zip(self._parameters.values(), self._views, strict=True):
                if parameter.data_ptr() != pointer:
                    parameter.data = view

    def check_policy(self) -> None:
        """
        Raises:
            ValueError: methods, the distribution or modules of the policy were replaced after the model was made.
        """
        _check_policy(self._policy)
        found = {theta_name(name): parameter for name, parameter in self._policy.named_parameters()}
        own = {name: each for name, each in self._parameters.items() if not name.startswith("answers.")}
        if replaced := sorted(name for name in found.keys() | own.keys() if found.get(name) is not own.get(name)):
            raise ValueError(
                f"policy must keep the parameters that it was made with, got others as {', '.join(replaced)}: copy "
                "weights into them, with load_state_dict(), and make other modules in _build() of a policy class"
            )

    def shows(self, theta: Tensor) -> bool:
        """Whether the policy's own parameters are still packed θ, which `show` copied to them."""
        kept = all(one.data_ptr() == to for one, (to, _) in zip(self._parameters.values(), self._views, strict=True))
        return kept and self._shown is not None and torch.equal(self._shown, theta)

    @property
    def _statistics(self) -> Params:
        """The encoder's running statistics themselves; a forward pass may put others in their place."""
        return {name: self._policy.get_buffer(buffer) for name, buffer in self._buffers.items()}

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
        if not self._buffers:
            return
        self._encoder.train()
        with torch.no_grad():
            encode_with(self._encoder, {}, observations, 2)
        self._encoder.eval()

    @property
    def encoder_widths(self) -> list[int]:
        return self._widths

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset(name for name, parameter in self._parameters.items() if not parameter.requires_grad)

    def split(self, params: Params) -> tuple[Params, Params]:
        return split_encoder(params)

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        own = inside(params, "encoder.")
        if training:  # in training they change in place: copies, which are thrown away
            own |= {name: value.clone() for name, value in own.items() if f"encoder.{name}" in self._buffers}
        return encode_with(self._training_encoder if training else self._encoder, own, observations, batch_dims)

    def with_features(self, rollout: Rollout) -> Rollout:
        """The rollout with the policy's features of o_{t+1} in place of the observations."""
        with torch.no_grad():
            features = self.encode({**self.params(), **rollout.statistics}, rollout.next_observations)
        return rollout._replace(next_observations=features)

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        latent = self._part(features, 0)
        outputs = _apply(self._policy.action_net, params, "action_net.", latent)
        if "log_std" not in params:
            return outputs
        if self._gaussian_noise:
            return torch.cat([outputs, params["log_std"].expand_as(outputs)], -1)
        variance = self._variance(params, latent if held is None else self._part(held[1], 0))
        return torch.cat([outputs, 0.5 * torch.log(variance)], -1)

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        """Noise of a Gaussian sample: `drawn` `[B, A]`; with gSDE of exploration matrices `[B, latent, A]`."""
        if self._gaussian_noise:
            return drawn
        latent = self._part(features, 0)
        return (latent[:, None] @ drawn)[:, 0] * torch.rsqrt(self._variance(params, latent))

    def values(self, params: Params, features: Tensor) -> Tensor:
        return _apply(self._policy.value_net, params, "value_net.", self._part(features, -1)).squeeze(-1)

    def answer(self, params: Params, features: Tensor) -> Tensor:
        if self._answers is None:
            return features.new_zeros((*features.shape[:-1], 0))
        return nn.functional.linear(features, params["answers.weight"], params["answers.bias"])

    def _part(self, features: Tensor, of: int) -> Tensor:
        """The features of the policy (0) or of the value (-1)."""
        return features if len(self._widths) == 1 else features.split(self._widths, -1)[of]

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


def _apply(module: nn.Module, params: Params, prefix: str, inputs: Tensor) -> Tensor:
    if type(module) is nn.Linear:  # without the cost of a functional call
        return nn.functional.linear(inputs, params[f"{prefix}weight"], params.get(f"{prefix}bias"))
    return call(module, inside(params, prefix), inputs)


def hidden_layers(policy: ActorCriticPolicy) -> nn.Module | None:
    """The layers between features extractors and heads, which are a part of the encoder; `None` if there are none."""
    layers = policy.mlp_extractor
    return None if type(layers) is MlpExtractor and not list(layers.parameters()) else layers


def _second(policy: ActorCriticPolicy) -> BaseFeaturesExtractor | None:
    return None if policy.share_features_extractor else policy.vf_features_extractor


def encoder_widths(policy: ActorCriticPolicy) -> list[int]:
    """Widths of the features of the policy and of the value; one number if they are the same features."""
    return widths_of(policy.features_extractor, _second(policy), hidden_layers(policy))


def encoder_like(policy: ActorCriticPolicy, space: gym.Space, mixed_precision: bool = False) -> PreprocessedEncoder:
    """A new encoder, for observations of any space, with the architecture and initial scale of the policy's own."""
    extractor = policy.features_extractor_class(space, **policy.features_extractor_kwargs)
    layers = None
    if hidden_layers(policy) is not None:
        kept = policy.mlp_extractor, policy.features_dim
        policy.features_dim = extractor.features_dim
        policy._build_mlp_extractor()  # which subclasses may override
        layers = policy.mlp_extractor
        policy.mlp_extractor, policy.features_dim = kept
        if type(layers) is MlpExtractor:
            layers.value_net = nn.Sequential()
        if policy.ortho_init:
            for module in (extractor, layers):
                module.apply(partial(policy.init_weights, gain=RELU_GAIN))
    normalized = policy.normalize_images
    return PreprocessedEncoder(extractor, space, normalized, None, mixed_precision, layers, of_policy_only=True).eval()


def theta_name(name: str) -> str:
    """The name in θ of a parameter of a policy."""
    for own, functional in _ENCODERS:
        if name.startswith(own):
            return functional + name.removeprefix(own)
    return name


def _shared_name(name: str) -> str:
    """The name in θ of a parameter of an extractor that policy and value share, which a policy lists three times."""
    return theta_name(name.removeprefix("pi_").removeprefix("vf_"))


def _check_policy(policy: ActorCriticPolicy) -> None:
    """
    Raises:
        ValueError: a subclass overrides what updates do without, or has heads or a distribution of another kind.
    """
    kind = type(policy).__name__
    own = [
        name
        for name in _CLOSED  # of the class, or assigned to the policy
        if getattr(getattr(policy, name), "__func__", None) is not getattr(ActorCriticPolicy, name)
    ]
    if own:
        raise ValueError(
            f"policy must not override {', '.join(own)}, got {kind}: updates use its features_extractor, "
            "mlp_extractor, action_net and value_net. Override _build_mlp_extractor or _build, or pass a "
            "features_extractor_class"
        )
    usual = make_proba_distribution(policy.action_space, policy.use_sde, policy.dist_kwargs)
    found = policy.action_dist
    if type(found) is not type(usual) or getattr(found, "learn_features", False):
        raise ValueError(
            f"policy must have the action_dist of ActorCriticPolicy, {type(usual).__name__}, got {found} of {kind}"
        )
    if isinstance(policy.action_space, gym.spaces.Box) and "log_std" not in dict(policy.named_parameters()):
        raise ValueError(f"policy must have a parameter log_std for continuous actions, got {kind} without it")
    kinds: tuple[Any, ...] = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    for name, module in policy.named_modules():
        if isinstance(module, kinds) and not theta_name(f"{name}.").startswith("encoder."):
            raise ValueError(
                "policy must have dropout and batch normalization in its features_extractor or mlp_extractor only, "
                f"got {name}: {module}"
            )


def _check_differentiable(functions: PolicyFunctions, kind: str, twice: bool) -> None:
    """
    Raises:
        ValueError: PyTorch does not differentiate the encoder, or not as often as updates do.
    """
    observations = functions.zeros()
    params = {name: value.clone().requires_grad_(twice) for name, value in functions.params().items()}

    def encode(encoder: Params) -> Tensor:
        return functions.encode({**encoder, **functions.statistics()}, observations, training=True)

    encoder, _ = functions.split(params)
    with torch.random.fork_rng(devices=[]), _naming(kind, twice):
        features, pull_back, *_ = torch.func.vjp(encode, encoder)
        total = sum(product.sum() for product in pull_back(torch.ones_like(features))[0].values())
        if isinstance(total, Tensor) and total.requires_grad:
            torch.autograd.grad(total, list(encoder.values()), allow_unused=True)


@contextmanager
def _naming(kind: str, twice: bool) -> Iterator[None]:
    """Name the encoder in what PyTorch says of operations that `torch.func` does not take."""
    try:
        yield
    except RuntimeError as error:
        raise ValueError(
            f"features_extractor_class must be differentiable {'twice ' if twice else ''}by torch.func, got {kind}: "
            f"{str(error).splitlines()[0]} For torch.nn.utils.weight_norm take torch.nn.utils.parametrizations, for "
            "torch.utils.checkpoint storage='recompute'; an autograd.Function needs setup_context() and a backward() "
            "of differentiable operations"
        ) from error


def answer_head(policy: ActorCriticPolicy, num_answers: int) -> nn.Linear | None:
    """A new linear head of the answers on a policy's features; `None` for no answers."""
    return linear(sum(encoder_widths(policy)), num_answers, 1.0) if num_answers else None


def functional_policy(
    policy: ActorCriticPolicy, num_answers: int, mixed_precision: bool, discovers: bool, recomputes: bool, learners: int
) -> tuple[PolicyFunctions, nn.Linear | None]:
    """A policy with a new answer head as pure functions, and the head; `None` without answers.

    Args:
        policy: any actor-critic policy.
        num_answers: number of answers.
        mixed_precision: see `PolicyFunctions`.
        discovers: whether there are meta-gradients.
        recomputes: whether the graph of an unroll is not stored.
        learners: number of learners that train together.

    Raises:
        ValueError: the encoder is random in training, or has running statistics, where it must not; or it cannot be
            differentiated.
    """
    head = answer_head(policy, num_answers)
    head = None if head is None else head.to(policy.device)
    kind = policy.features_extractor_class.__name__
    with _naming(kind, discovers):
        functions = PolicyFunctions(policy, head, mixed_precision)
    if functions.is_own:
        _check_differentiable(functions, kind, discovers)
    if discovers and recomputes and functions.random_in_training:
        raise ValueError("storage must be 'graph' where features extractors drop units at random, got 'recompute'")
    if learners > 1 and (statistics := sorted(functions.statistics())):
        raise ValueError(
            f"learners must be 1 for features extractors with running statistics, got {learners}: each learner would "
            f"have its own {', '.join(statistics)}"
        )
    if head is not None and not functions.split(functions.params())[0]:
        warnings.warn(
            f"features_extractor_class {kind} has no parameters, and net_arch no layers: answers cannot shape the "
            "features. Pass layers of net_arch, or an extractor that learns",
            stacklevel=3,
        )
    return functions, head
