"""The networks of the paper's appendix: encoders, the agent's linear heads, and the question network.

Modules hold the architecture and the initial values; the algorithm calls them as pure functions of named parameters
through `AgentNetwork.encode` and its fellows.

Initialization decides whether discovery starts: with PyTorch's default the cumulants of a fresh question network hardly
vary over states, and the meta-gradient has nothing to work on. Weights are therefore orthogonal, with gain √2 under
ReLUs (`docs/deviations.md`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dgvf_agents.core.types import Observations, Params, batch_shape, map_observations

RELU_GAIN = math.sqrt(2.0)


class Encoder(nn.Module):
    """Maps observations `[N, *obs]` of any dtype to features `[N, F]`."""

    features: int
    """F."""


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights and zero biases."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


@final
class MLPEncoder(Encoder):
    """Fully connected layers, by default with ReLUs (paper: 128, 128 on Puddleworld).

    Inputs are centered to [-1, 1] where their bounds are known, and the first layer's biases are spread over [-1, 1]:
    with zero biases a ReLU network is homogeneous, its values linear along every ray from the origin.
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
            low: smallest value of each input; `None` leaves the inputs as they are.
            high: largest value of each input.
            bias_spread: the first layer's biases are uniform in [-bias_spread, bias_spread].
            activation: class of the nonlinearity after each layer.

        Raises:
            ValueError: there is no layer, or one bound without the other.
        """
        if not hidden:
            raise ValueError(f"hidden must name at least one layer, got {hidden!r}")
        if (low is None) != (high is None):
            raise ValueError(f"low and high must be given together, got {low!r} and {high!r}")
        super().__init__()
        widths = (inputs, *hidden)
        layers: list[nn.Module] = []
        for width, following in pairwise(widths):
            layers += [linear(width, following, RELU_GAIN), activation()]
        nn.init.uniform_(layers[0].bias, -bias_spread, bias_spread)  # type: ignore[arg-type]
        self.layers = nn.Sequential(*layers)
        self.features = widths[-1]
        bounds = (
            torch.zeros(2, inputs)
            if low is None or high is None
            else torch.tensor([list(low), list(high)], dtype=torch.get_default_dtype())
        )
        span = bounds[1] - bounds[0]
        known = torch.isfinite(span) & (span > 0)
        self.center: Tensor
        self.scale: Tensor
        self.register_buffer("center", torch.where(known, bounds.mean(0), 0.0), persistent=False)
        self.register_buffer("scale", torch.where(known, 2.0 / span, 1.0), persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        inputs = observations.flatten(1).to(self.center.dtype)
        return self.layers((inputs - self.center) * self.scale)


@final
class GridCNNEncoder(Encoder):
    """Convolutions 8 and 16 of 2x2, then 512 fully connected, ReLUs throughout (paper: Collect-Objects)."""

    def __init__(
        self, shape: Sequence[int], filters: Sequence[int] = (8, 16), kernel: int = 2, hidden: int = 512
    ) -> None:
        """
        Args:
            shape: (channels, rows, columns) of an observation.
            filters: of each convolution.
            kernel: side of each filter.
            hidden: width of the fully connected layer.

        Raises:
            ValueError: an observation is smaller than what the filters need.
        """
        needed = len(filters) * (kernel - 1) + 1
        if min(shape[1:]) < needed:
            raise ValueError(f"shape must have at least {needed} rows and columns, got {tuple(shape)}")
        super().__init__()
        channels, rows, columns = shape
        layers: list[nn.Module] = []
        for count in filters:
            layers += [_convolution(channels, count, kernel), nn.ReLU()]
            channels, rows, columns = count, rows - kernel + 1, columns - kernel + 1
        layers += [nn.Flatten(), linear(channels * rows * columns, hidden, RELU_GAIN), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.features = hidden

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations.to(_dtype(self)))


@final
class AtariCNNEncoder(Encoder):
    """Convolutions 32 of 8x8/4, 64 of 4x4/2, 64 of 3x3/1, then 512 fully connected (paper: Atari; Mnih et al. 2015).

    Pixels come in scaled to [0, 1].
    """

    def __init__(self, channels: int = 4, side: int | tuple[int, int] = 84, hidden: int = 512) -> None:
        """
        Args:
            channels: stacked frames.
            side: height and width of a frame in pixels, at least 36; one number where they are the same.
            hidden: width of the fully connected layer.

        Raises:
            ValueError: a frame is smaller than what the filters need.
        """
        height, width = side if isinstance(side, tuple) else (side, side)
        if min(height, width) < 36:
            raise ValueError(f"side must be >= 36, got {side!r}")
        super().__init__()
        layers: list[nn.Module] = []
        for count, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            layers += [_convolution(channels, count, kernel, stride), nn.ReLU()]
            channels, height, width = count, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        layers += [nn.Flatten(), linear(channels * height * width, hidden, RELU_GAIN), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.features = hidden

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations.to(_dtype(self)))


def _convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels, filters, kernel, stride)
    nn.init.orthogonal_(layer.weight, RELU_GAIN)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


class FunctionalAgent(Protocol):
    """The agent's network as pure functions of named parameters θ; what the core works with."""

    def params(self) -> Params:
        """θ: the parameters by name, outside any graph."""

    @property
    def encoder_widths(self) -> list[int]:
        """The widths of the parts of x that come from separate encoders; their sum is F."""

    def split(self, params: Params) -> tuple[Params, Params]:
        """The parameters of the encoder, and those of the heads; names of the answer head start with `answers.`."""

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        """x: features `[T, B, F]` of observations `[T, B, *obs]`, or `[B, F]` of `[B, *obs]` with one batch axis.

        Args:
            params: θ; running statistics among them replace the network's own.
            observations: of one space or a Dict space.
            batch_dims: how many axes come before an observation's own.
            training: whether parts that act differently in training do (dropout, batch normalization).
        """

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        """`[..., A]`: what the action distribution needs, logits for a softmax.

        Args:
            params: of the heads.
            features: x.
            held: parameters and features in place of these where the amount of exploration depends on the state, which
                a gradient is not to shape for its sake; the same ones when left out.
        """

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        """What the distribution samples with; `drawn` itself unless exploration depends on the state."""

    def values(self, params: Params, features: Tensor) -> Tensor:
        """`[...]`: v(x)."""

    def answer(self, params: Params, features: Tensor) -> Tensor:
        """`[..., D]`: y(x)."""


@final
class AgentNetwork(nn.Module):
    """The left network of the paper's figure 1: an encoder, and policy, value and answers linear in its features."""

    def __init__(self, encoder: nn.Module, features: int, policy_outputs: int, answers: int) -> None:
        """
        Args:
            encoder: maps `[N, *obs]` to `[N, features]`.
            features: F.
            policy_outputs: what the action distribution needs, the number of actions for a softmax.
            answers: D, the width of the answer head; 0 for none.
        """
        super().__init__()
        self.encoder = encoder
        self.policy = linear(features, policy_outputs, 0.01)
        self.value = linear(features, 1, 1.0)
        self.answers = linear(features, answers, 1.0) if answers else None

    def params(self) -> Params:
        return _detached_copies(self)

    @property
    def encoder_widths(self) -> list[int]:
        return [self.value.in_features]

    def split(self, params: Params) -> tuple[Params, Params]:
        return split_encoder(params)

    def encode(self, params: Params, observations: Observations, batch_dims: int = 2, training: bool = False) -> Tensor:
        return encode_with(self.encoder, inside(params, "encoder."), observations, batch_dims)

    def policy_outputs(self, params: Params, features: Tensor, held: tuple[Params, Tensor] | None = None) -> Tensor:
        return nn.functional.linear(features, params["policy.weight"], params["policy.bias"])

    def noise(self, params: Params, features: Tensor, drawn: Tensor) -> Tensor:
        return drawn

    def values(self, params: Params, features: Tensor) -> Tensor:
        return nn.functional.linear(features, params["value.weight"], params["value.bias"]).squeeze(-1)

    def answer(self, params: Params, features: Tensor) -> Tensor:
        if self.answers is None:
            return features.new_zeros((*features.shape[:-1], 0))
        return nn.functional.linear(features, params["answers.weight"], params["answers.bias"])


@final
class QuestionNetwork(nn.Module):
    """The right network of the paper's figure 1: cumulants, and optionally discounts, of future observations.

    Cumulants pass through arctan and discounts through a sigmoid (paper, appendix).
    """

    def __init__(self, encoder: nn.Module, features: int, questions: int, learned_discounts: bool) -> None:
        """
        Args:
            encoder: independent of the agent's; maps `[N, *window]` to `[N, features]`.
            features: F.
            questions: D ≥ 1.
            learned_discounts: whether there is a head for discounts.

        Raises:
            ValueError: there are no questions.
        """
        if questions < 1:
            raise ValueError(f"questions must be >= 1, got {questions!r}")
        super().__init__()
        self.encoder = encoder
        self.cumulants = linear(features, questions, 1.0)
        self.discounts = linear(features, questions, 1.0) if learned_discounts else None

    def params(self) -> Params:
        """η: the parameters by name, outside any graph."""
        return _detached_copies(self)

    def ask(self, eta: Params, windows: Observations) -> tuple[Tensor, Tensor | None]:
        """Cumulants u `[T, B, D]` and discounts γ `[T, B, D]`, if they are learned, of windows `[T, B, *window]`."""
        features = encode_with(self.encoder, inside(eta, "encoder."), windows, 2)
        head = nn.functional.linear
        cumulants = torch.arctan(head(features, eta["cumulants.weight"], eta["cumulants.bias"]))
        if self.discounts is None:
            return cumulants, None
        return cumulants, torch.sigmoid(head(features, eta["discounts.weight"], eta["discounts.bias"]))


def encode_with(encoder: nn.Module, params: Params, observations: Observations, batch_dims: int) -> Tensor:
    """Features `[*batch, F]` of observations `[*batch, *obs]`, by an encoder with these parameters."""
    flat = map_observations(lambda tensor: tensor.flatten(0, batch_dims - 1), observations)
    return functional_call(encoder, params, (flat,)).unflatten(0, batch_shape(observations, batch_dims))


def split_encoder(params: Params) -> tuple[Params, Params]:
    """The parameters whose names start with `encoder.`, and the others."""
    encoder = {name: value for name, value in params.items() if name.startswith("encoder.")}
    return encoder, {name: value for name, value in params.items() if name not in encoder}


def inside(params: Params, prefix: str) -> Params:
    """The parameters whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def _dtype(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype


def _detached_copies(module: nn.Module) -> Params:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
