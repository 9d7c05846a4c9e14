"""Convolutions of second derivatives in traced graphs: equal to PyTorch's, without filters as large as an image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution.trace import Graphs, trace

SIZES = [
    # kernel, stride, padding, dilation, groups, height
    (3, 1, 1, 1, 1, 9),
    (2, 1, 0, 1, 1, 6),
    (4, 2, 0, 1, 1, 10),
    (4, 3, 2, 1, 1, 11),  # the last rows of the image are not read
    (5, 2, 0, 1, 1, 8),  # nor here, with filters larger than the output
    (3, 1, 2, 2, 1, 9),
    (5, 1, 0, 1, 1, 5),  # an output of one row
    (5, 1, 0, 1, 2, 5),
]


def network(stride: int, padding: int, dilation: int, groups: int) -> Any:
    def gradient(weight: Tensor, images: Tensor) -> tuple[Tensor]:
        """Of a loss, so that its derivatives are second ones."""

        def loss(weight: Tensor, images: Tensor) -> Tensor:
            return torch.conv2d(images, weight, None, stride, padding, dilation, groups).tanh().square().sum()

        by_weight, by_images = torch.func.grad(loss, (0, 1))(weight, images)
        return (by_weight.square().sum() + by_images.sin().sum(),)

    return gradient


def given(kernel: int, height: int, groups: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 4 // groups, kernel, kernel).double(), torch.randn(7, 4, height, height + 1).double()


def run(graphs: Graphs, arguments: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The gradients in the arguments."""
    assert graphs.backward is not None
    (result, *saved) = graphs.forward(*arguments)
    kept = [arguments[i] if kind == "input" else [result, *saved][i] for kind, i in graphs.interface.saved]
    return list(graphs.backward(*kept, torch.ones_like(result), torch.zeros_like(arguments[-1])))


@pytest.mark.parametrize("size", SIZES)
def test_second_derivatives_are_those_of_the_function(size: tuple[int, ...]) -> None:
    kernel, *geometry, groups, height = size
    function, arguments = network(*geometry, groups), given(kernel, height, groups)
    expected = vjp(function, arguments, 2)[1]([torch.ones(()).double()], list(map(torch.zeros_like, arguments)))
    found = run(trace(function, arguments, 2), arguments)
    torch.testing.assert_close(found, expected)


def test_no_filter_is_as_large_as_an_image() -> None:
    graphs = trace(network(1, 1, 1, 1), given(3, 24), 2)
    assert graphs.backward is not None
    sizes = [
        max(node.args[1].meta["val"].shape[2:])
        for graph in (graphs.forward, graphs.backward)
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    ]
    assert sizes
    assert max(sizes) == 3


def test_populations_have_convolutions_of_their_own() -> None:
    """Under `vmap`, convolutions of several members become grouped ones."""
    weight, images = given(3, 9)
    weights, batches = torch.stack([weight, 2 * weight]), torch.stack([images, -images])
    function = torch.func.vmap(network(1, 1, 1, 1))
    arguments = (weights, batches)
    expected = vjp(function, arguments, 2)[1]([torch.ones(2).double()], list(map(torch.zeros_like, arguments)))
    torch.testing.assert_close(run(trace(function, arguments, 2), arguments), expected)
