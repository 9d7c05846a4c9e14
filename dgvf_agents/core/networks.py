"""The networks of the paper's appendix: encoders, the agent's linear heads, the question network; and acting.

Modules hold the architecture and the initial parameters. The algorithm calls them as pure functions of named
parameters, such as `AgentNetwork.encode`.

Weights are orthogonal, with gain √2 under ReLUs (`docs/deviations.md`). With PyTorch's default initialization the
cumulants of a new question network hardly vary over states, and discovery does not start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol, final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.types import Observations, Params, SampledActions, batch_shape, map_observations

RELU_GAIN = math.sqrt(2.0)

LARGEST_SPAN = 1e4
"""Between the bounds of an input that is scaled by them; farther ones are limits of its data type, or say little."""


class Encoder(nn.Module):
    """Maps observations `[N, *obs]` of any dtype to features `[N, F]`."""

    features: int
    """F."""
    faster_eagerly: ClassVar[bool] = False
    """Whether updates on the CPU are slower if they are compiled."""


def linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights and zero biases."""
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


@final
class MLPEncoder(Encoder):
    """Fully connected layers, by default with ReLUs (paper: layers of 128 units on Puddleworld).

    Inputs with bounds at most `LARGEST_SPAN` apart are scaled to [-1, 1]. The first layer's biases are uniform in
    [-1, 1], because a ReLU network with zero biases is homogeneous: its outputs are linear along every ray from the
    origin.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (128, 128),
        low: Sequence[float] | None = None,
        high: Sequence[float] | None = None,
        bias_spread: float = 1.0,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        """
        Args:
            inputs: number of inputs after flattening.
            hidden: widths of the layers, at least one.
            low: lower bound of each input; `None`: inputs are not scaled.
            high: upper bound of each input.
            bias_spread: the first layer's biases are uniform in [-bias_spread, bias_spread].
            activation: class of the nonlinearity after each layer.

        Raises:
            ValueError: there is no layer, a width is not an integer >= 1, or only one of the bounds is given.
        """
        if not hidden:
            raise ValueError(f"hidden must name at least one layer, got {hidden!r}")
        for width in hidden:
            check_counts(hidden=width)
        if (low is None) != (high is None):
            raise ValueError(f"low and high must be given together, got {low!r} and {high!r}")
        super().__init__()
        widths = (inputs, *hidden)
        layers: list[nn.Module] = []
        for in_features, out_features in pairwise(widths):
            layers += [linear(in_features, out_features, RELU_GAIN), activation()]
        nn.init.uniform_(layers[0].bias, -bias_spread, bias_spread)  # type: ignore[arg-type]
        self.layers = nn.Sequential(*layers)
        self.features = widths[-1]
        bounds = (
            torch.zeros(2, inputs)
            if low is None or high is None
            else torch.tensor([list(low), list(high)], dtype=torch.get_default_dtype())
        )
        span = bounds[1] - bounds[0]
        known = (span > 0) & (span <= LARGEST_SPAN)
        self.center: Tensor
        self.scale: Tensor
        self.register_buffer("center", torch.where(known, bounds.mean(0), 0.0), persistent=False)
        self.register_buffer("scale", torch.where(known, 2.0 / span, 1.0), persistent=False)

    def forward(self, observations: Shaped[Tensor, " N *obs"]) -> Float[Tensor, "N F"]:
        inputs = observations.flatten(1).to(self.center.dtype)
        return self.layers((inputs - self.center) * self.scale)


class CNNEncoder(Encoder):
    """Convolutions, then a fully connected layer; all with ReLUs."""

    def __init__(self, shape: Sequence[int], convolutions: Sequence[tuple[int, int, int]], hidden: int) -> None:
        """
        Args:
            shape: (channels, height, width) of an observation.
            convolutions: number of filters, their side, and the stride of each.
            hidden: width of the fully connected layer.

        Raises:
            ValueError: observations are smaller than the filters' receptive field.
        """
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        smallest, step = 1, 1
        for filters, kernel, stride in convolutions:
            layers += [convolution(channels, filters, kernel, stride), nn.ReLU()]
            channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            smallest, step = smallest + (kernel - 1) * step, step * stride
        if min(shape[1:]) < smallest:
            raise ValueError(f"shape must have at least {smallest} rows and columns, got {tuple(shape)}")
        layers += [nn.Flatten(), linear(channels * height * width, hidden, RELU_GAIN), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.features = hidden

    def forward(self, observations: Shaped[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        return self.layers(observations.to(next(self.parameters()).dtype))


@final
class GridCNNEncoder(CNNEncoder):
    """Convolutions of 8 and 16 filters of 2x2, then 512 fully connected units (paper: Collect-Objects)."""

    def __init__(self, shape: Sequence[int], hidden: int = 512) -> None:
        super().__init__(shape, ((8, 2, 1), (16, 2, 1)), hidden)


@final
class AtariCNNEncoder(CNNEncoder):
    """Convolutions of 32 8x8, 64 4x4 and 64 3x3 filters with strides 4, 2 and 1, then 512 fully connected units.

    The convolutions are the paper's, the fully connected layer is from Mnih et al. (2015). Inputs are pixels scaled
    to [0, 1], of images of at least 36 x 36.
    """

    def __init__(self, shape: Sequence[int] = (4, 84, 84), hidden: int = 512) -> None:
        super().__init__(shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden)


def convolution(
    channels: int, filters: int, kernel: int, stride: int = 1, padding: int = 0, gain: float = RELU_GAIN
) -> nn.Conv2d:
    """A convolution with orthogonal weights and zero biases."""
    layer = nn.Conv2d(channels, filters, kernel, stride, padding)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


class FunctionalAgent(Protocol):
    """The agent's network as pure functions of named parameters θ."""

    def params(self) -> Params:
        """θ: the parameters by name, detached."""

    @property
    def encoder_widths(self) -> list[int]:
        """The widths of the features of each separate encoder; their sum is F."""

    @property
    def frozen(self) -> frozenset[str]:
        """Names of the parameters that updates leave as they are."""

    def split(self, params: Params) -> tuple[Params, Params]:
        """The parameters of the encoder and of the heads. Names of the answer head start with `answers.`."""

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        """x: features `[T, B, F]` of observations `[T, B, *obs]`, or `[B, F]` of `[B, *obs]` with one batch axis.

        Args:
            params: θ; running statistics among them replace the network's own.
            observations: of one space or a Dict space.
            batch_dims: number of batch axes.
            training: whether modules run in training mode (dropout, batch normalization).
        """

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        """`[..., A]`: the parameters of the action distribution; logits for a softmax.

        Args:
            params: of the heads.
            features: x.
            held: parameters and features as stop-gradient inputs of state-dependent exploration (gSDE), so that its
                amount does not train the features; `None`: `params` and `features`.
        """

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        """The noise that the distribution samples with; `drawn` itself without state-dependent exploration."""

    def values(self, params: Params, features: Tensor) -> Tensor:
        """`[...]`: v(x)."""

    def answer(self, params: Params, features: Tensor) -> Tensor:
        """`[..., D]`: y(x)."""


@final
class AgentNetwork(nn.Module):
    """The left network of the paper's figure 1: an encoder, with linear policy, value and answer heads."""

    def __init__(self, encoder: nn.Module, features: int, num_policy_outputs: int, num_answers: int) -> None:
        """
        Args:
            encoder: maps `[N, *obs]` to `[N, features]`.
            features: F.
            num_policy_outputs: A, the number of parameters of the action distribution.
            num_answers: D, the width of the answer head; 0 for none.
        """
        super().__init__()
        self.encoder = encoder
        self.policy = linear(features, num_policy_outputs, 0.01)
        self.value = linear(features, 1, 1.0)
        self.answers = linear(features, num_answers, 1.0) if num_answers else None

    def params(self) -> Params:
        return _detached_copies(self)

    @property
    def encoder_widths(self) -> list[int]:
        return [self.value.in_features]

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset()

    def split(self, params: Params) -> tuple[Params, Params]:
        return split_encoder(params)

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        return encode_with(self.encoder, inside(params, "encoder."), observations, batch_dims)

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        return nn.functional.linear(features, params["policy.weight"], params["policy.bias"])

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        return drawn

    def values(self, params: Params, features: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch"]:
        return nn.functional.linear(features, params["value.weight"], params["value.bias"]).squeeze(-1)

    def answer(self, params: Params, features: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D"]:
        if self.answers is None:
            return features.new_zeros((*features.shape[:-1], 0))
        return nn.functional.linear(features, params["answers.weight"], params["answers.bias"])


class QuestionFunctions(nn.Module, ABC):
    """A question network as pure functions of named meta-parameters η."""

    shares_encoder: ClassVar[bool] = False
    """Whether its inputs are the agent's features of o_{t+1} instead of observations."""
    num_questions: int
    """D."""
    discounts: Any
    """The module of the discount head, whose parameters have names that start with `discounts.`; `None` without one."""

    @property
    def learns_discounts(self) -> bool:
        """Whether there is a discount head."""
        return self.discounts is not None

    def params(self) -> Params:
        """Initial η by name, detached."""
        return _detached_copies(self)

    @abstractmethod
    def ask(self, eta: Params, windows: Observations) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"] | None]:
        """Cumulants u `[T, B, D]` and discounts γ `[T, B, D]` of windows `[T, B, *window]`.

        Discounts are `None` without a discount head.
        """


@final
class QuestionNetwork(QuestionFunctions):
    """The right network of the paper's figure 1: cumulants, and optionally discounts, of future observations.

    Cumulants pass through an arctan and discounts through a sigmoid (paper, appendix).
    """

    def __init__(self, encoder: nn.Module, features: int, num_questions: int, learned_discounts: bool) -> None:
        """
        Args:
            encoder: separate from the agent's; maps `[N, *window]` to `[N, features]`.
            features: F.
            num_questions: D ≥ 1.
            learned_discounts: whether there is a discount head.

        Raises:
            ValueError: there are no questions.
        """
        check_counts(num_questions=num_questions)
        super().__init__()
        self.encoder, self.num_questions = encoder, num_questions
        self.cumulants = linear(features, num_questions, 1.0)
        self.discounts = linear(features, num_questions, 1.0) if learned_discounts else None

    def ask(self, eta: Params, windows: Observations) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"] | None]:
        features = encode_with(self.encoder, inside(eta, "encoder."), windows, 2)
        head = nn.functional.linear
        cumulants = torch.arctan(head(features, eta["cumulants.weight"], eta["cumulants.bias"]))
        if self.discounts is None:
            return cumulants, None
        return cumulants, torch.sigmoid(head(features, eta["discounts.weight"], eta["discounts.bias"]))


def encode_with(encoder: nn.Module, params: Params, observations: Observations, batch_dims: int) -> Tensor:
    """Features `[*batch, F]` of observations `[*batch, *obs]` under the given parameters."""
    flat = map_observations(lambda tensor: tensor.flatten(0, batch_dims - 1), observations)
    return call(encoder, params, flat).unflatten(0, batch_shape(observations, batch_dims))


def call(module: nn.Module, params: Params, inputs: Any) -> Tensor:
    """`torch.func.functional_call`, also where a module or a parameter occurs at several places.

    PyTorch's own `tie_weights` leaves a plain tensor in the place of a parameter of a module that occurs twice.
    """
    places: dict[nn.Parameter, list[str]] = {}
    for prefix, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                places.setdefault(parameter, []).append(f"{prefix}.{name}".removeprefix("."))
    tied = {name: params[names[0]] for names in places.values() for name in names[1:] if names[0] in params}
    return functional_call(module, {**params, **tied}, (inputs,), tie_weights=False)


def split_encoder(params: Params) -> tuple[Params, Params]:
    """The parameters whose names start with `encoder.`, and all others."""
    encoder = {name: value for name, value in params.items() if name.startswith("encoder.")}
    return encoder, {name: value for name, value in params.items() if name not in encoder}


def inside(params: Params, prefix: str) -> Params:
    """The parameters whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def _detached_copies(module: nn.Module) -> Params:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


Act = Callable[[Params, Observations, Tensor], SampledActions]
"""`(θ, observations, noise) -> actions`: samples actions `[B, ...]` for observations `[B, *obs]`."""


def sample_actions(
    network: FunctionalAgent,
    distribution: ActionDistribution,
    theta: Params,
    observations: Observations,
    drawn: Tensor,
    with_log_probs: bool,
) -> SampledActions:
    """Sample actions `[B, ...]` from π(·|x; θ).

    Args:
        network: the agent's architecture.
        distribution: distribution of the actions.
        theta: θ by name.
        observations: `[B, *obs]`.
        drawn: noise `[B, ...]` of `ActionDistribution.draw_noise`, one step of it.
        with_log_probs: whether to return log π(a|x) too.
    """
    features = network.encode(theta, observations, batch_dims=1)
    noise = network.noise(theta, features, drawn)
    outputs = network.policy_outputs(theta, features)
    actions = distribution.sample(outputs, noise)
    return SampledActions(actions, distribution.log_prob(outputs, actions) if with_log_probs else None)
