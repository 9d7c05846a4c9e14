from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dgvf_agents.core.networks import (
    RELU_GAIN,
    AgentNetwork,
    AtariCNNEncoder,
    CNNEncoder,
    Encoder,
    GridCNNEncoder,
    MLPEncoder,
    QuestionNetwork,
    linear,
)
from tests.core_oracles import encode, head

pytestmark = pytest.mark.usefixtures("double_precision")

ENCODERS: dict[str, tuple[Callable[[], Encoder], tuple[int, ...]]] = {
    "mlp": (lambda: MLPEncoder(2), (2,)),
    "mlp_of_planes": (lambda: MLPEncoder(12, (6,)), (3, 2, 2)),
    "grid": (lambda: GridCNNEncoder((3, 13, 13)), (3, 13, 13)),
    "small_grid": (lambda: CNNEncoder((3, 9, 9), ((4, 3, 1),), 10), (3, 9, 9)),
    "atari": (AtariCNNEncoder, (4, 84, 84)),
}
"""Constructors of encoders, and the shapes of their observations."""

every_encoder = pytest.mark.parametrize("name", ENCODERS)


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# --- the paper's architectures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "features", "parameters"),
    [
        ("mlp", 128, (2 * 128 + 128) + (128 * 128 + 128)),
        ("grid", 512, (8 * 3 * 4 + 8) + (16 * 8 * 4 + 16) + (16 * 11 * 11 * 512 + 512)),
        ("atari", 512, (32 * 4 * 64 + 32) + (64 * 32 * 16 + 64) + (64 * 64 * 9 + 64) + (64 * 7 * 7 * 512 + 512)),
    ],
)
def test_the_encoders_of_the_paper(name: str, features: int, parameters: int) -> None:
    make, _ = ENCODERS[name]
    encoder = make()
    assert encoder.features == features
    assert parameter_count(encoder) == parameters


@every_encoder
def test_rectified_outputs_of_any_dtype_of_input(name: str) -> None:
    make, shape = ENCODERS[name]
    encoder = make()
    integers = torch.randint(0, 2, (3, *shape))
    features = encoder(integers.double())
    assert features.shape == (3, encoder.features)
    assert (features >= 0).all()
    assert features.any()
    for dtype in (torch.uint8, torch.bool, torch.float32, torch.int64):
        torch.testing.assert_close(encoder(integers.to(dtype)), features)


# --- initial values ---------------------------------------------------------------------------------------------------


def assert_orthogonal(weight: Tensor, gain: float) -> None:
    """The shorter of rows and columns are orthogonal and of length `gain`."""
    matrix = weight.flatten(1)
    square = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
    torch.testing.assert_close(square, gain**2 * torch.eye(len(square)))


@every_encoder
def test_weights_of_encoders_are_orthogonal_under_relus(name: str) -> None:
    make, _ = ENCODERS[name]
    assert math.isclose(RELU_GAIN, math.sqrt(2))
    for parameter in make().parameters():
        if parameter.dim() > 1:
            assert_orthogonal(parameter, RELU_GAIN)


def test_weights_of_heads_are_orthogonal() -> None:
    agent, questions = AgentNetwork(MLPEncoder(2), 128, 5, 16), QuestionNetwork(MLPEncoder(2), 128, 16, True)
    heads = [
        (agent.policy, 0.01),
        (agent.value, 1.0),
        (agent.answers, 1.0),
        (questions.cumulants, 1.0),
        (questions.discounts, 1.0),
        (linear(7, 3, 2.5), 2.5),
    ]
    for layer, gain in heads:
        assert_orthogonal(layer.weight, gain)
        assert not layer.bias.any()


def test_biases_of_the_first_fully_connected_layer_are_spread() -> None:
    biases = {name: p for name, p in MLPEncoder(2, (500, 8)).named_parameters() if name.endswith("bias")}
    first, second = biases.values()
    assert first.abs().max() <= 1.0
    assert first.min() < -0.9 < 0.9 < first.max()
    assert not second.any()
    assert not MLPEncoder(2, (5,), bias_spread=0.0).layers[0].bias.any()
    assert not any(p.any() for name, p in GridCNNEncoder((3, 9, 9)).named_parameters() if name.endswith("bias"))


# --- centering --------------------------------------------------------------------------------------------------------


def plain_copy(encoder: MLPEncoder, inputs: int, hidden: tuple[int, ...]) -> MLPEncoder:
    """The same weights without bounds."""
    copy = MLPEncoder(inputs, hidden)
    copy.load_state_dict(encoder.state_dict())
    return copy


def test_bounds_are_mapped_to_one_and_minus_one() -> None:
    low, high = [0.0, -3.0, 10.0], [1.0, 5.0, 10.5]
    encoder = MLPEncoder(3, (6,), low, high)
    plain = plain_copy(encoder, 3, (6,))
    for share in (0.0, 0.25, 0.5, 1.0):
        inputs = torch.tensor([[a + share * (b - a) for a, b in zip(low, high, strict=True)]])
        torch.testing.assert_close(encoder(inputs), plain(torch.full((1, 3), 2 * share - 1)))


@pytest.mark.parametrize("bounds", [(-math.inf, math.inf), (0.0, math.inf), (2.0, 2.0), (-1.5e308, 1.5e308)])
def test_inputs_without_two_useful_bounds_stay_as_they_are(bounds: tuple[float, float]) -> None:
    """Bounds at the ends of what floats can hold, too: they say that nothing is known."""
    encoder = MLPEncoder(2, (6,), [0.0, bounds[0]], [1.0, bounds[1]])
    inputs = torch.tensor([[0.25, 7.0], [1.0, -2.0]])
    expected = plain_copy(encoder, 2, (6,))(torch.stack([2 * inputs[:, 0] - 1, inputs[:, 1]], -1))
    torch.testing.assert_close(encoder(inputs), expected)


# --- pure functions of parameters -------------------------------------------------------------------------------------


def agent_for(name: str, answers: int = 6) -> tuple[AgentNetwork, tuple[int, ...]]:
    make, shape = ENCODERS[name]
    encoder = make()
    return AgentNetwork(encoder, encoder.features, 5, answers), shape


@every_encoder
def test_batches_may_have_any_number_of_dimensions(name: str) -> None:
    network, shape = agent_for(name)
    observations = torch.rand(2, 3, *shape)
    features = network.encode(network.params(), observations)
    torch.testing.assert_close(features.flatten(0, 1), network.encoder(observations.flatten(0, 1)))
    assert features.shape == (2, 3, network.encoder.features)
    torch.testing.assert_close(network.encode(network.params(), observations[0], batch_dims=1), features[0])


def test_the_functions_read_their_argument_not_the_module() -> None:
    network, _ = agent_for("mlp")
    params = {name: p + torch.randn_like(p) for name, p in network.params().items()}
    observations = torch.rand(2, 3, 2)
    x = network.encode(params, observations)
    torch.testing.assert_close(x, encode(params, observations))
    torch.testing.assert_close(network.policy_outputs(params, x), head(params, "policy", x))
    torch.testing.assert_close(network.values(params, x), head(params, "value", x)[..., 0])
    torch.testing.assert_close(network.answer(params, x), head(params, "answers", x))


def test_without_answers_there_is_no_head() -> None:
    network, _ = agent_for("mlp", answers=0)
    assert not any(name.startswith("answers.") for name in network.params())
    assert network.answer(network.params(), torch.randn(2, 3, 128)).shape == (2, 3, 0)


def test_params_are_copies_outside_any_graph() -> None:
    for network in (agent_for("mlp")[0], QuestionNetwork(MLPEncoder(2), 128, 6, True)):
        params, own = network.params(), dict(network.named_parameters())
        assert list(params) == list(own)
        for name, value in params.items():
            assert not value.requires_grad
            assert value.data_ptr() != own[name].data_ptr()
            assert torch.equal(value, own[name])


# --- the question network ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [True, False])
def test_questions_equal_their_formulas(learned: bool) -> None:
    network = QuestionNetwork(MLPEncoder(2, (6, 5)), 5, 4, learned)
    eta, windows = {name: p + torch.randn_like(p) for name, p in network.params().items()}, torch.randn(4, 3, 2)
    cumulants, discounts = network.ask(eta, windows)
    x = encode(eta, windows)
    torch.testing.assert_close(cumulants, torch.arctan(head(eta, "cumulants", x)))
    if learned:
        torch.testing.assert_close(discounts, 1 / (1 + torch.exp(-head(eta, "discounts", x))))
    else:
        assert discounts is None


def test_the_smallest_frames() -> None:
    assert AtariCNNEncoder((4, 36, 36))(torch.rand(1, 4, 36, 36)).shape == (1, 512)
