"""Traced graphs, run as they are, against the function and its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from dgvf_agents import DGVFA2C
from dgvf_agents.core.flat import builder, flatten
from dgvf_agents.core.vjp import vjp
from dgvf_agents.execution.packing import Packing
from dgvf_agents.execution.trace import FEW, SMALL, Graphs, trace
from tests.helpers import run_python


def in_place(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """With writes into intermediate results, as in `Rollout.segment_end`."""
    last = torch.zeros_like(y)
    last[-1] = 2.0
    product = x @ y
    product += last
    product.mul_(y)
    return product, last.sum()


def run(
    graphs: Graphs, arguments: list[Tensor], cotangents: list[Tensor], addends: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors of the results, and what the backward graph returns, which adds to products of the last argument."""
    outputs = graphs.forward(*arguments)
    saved = [arguments[i] if kind == "input" else outputs[i] for kind, i in graphs.interface.saved]
    return flatten(builder(graphs.result)(outputs)), list(graphs.backward(*saved, *cotangents, *addends))


def test_functions_that_write_in_place() -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = [torch.randn(12, 12, generator=generator) for _ in range(2)]
    cotangent, addend = (torch.randn(12, 12, generator=generator) for _ in range(2))
    graphs = trace(in_place, tuple(arguments), 2)
    for graph in (graphs.forward, graphs.backward):
        targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        assert not any(getattr(getattr(target, "_schema", None), "is_mutable", False) for target in targets)
    results, pull_back = vjp(in_place, arguments, 2)
    expected = flatten(results), pull_back([cotangent], [0.0, addend])
    torch.testing.assert_close(run(graphs, arguments, [cotangent], [addend]), expected)


def sum_of_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
    """As gradients of weights add up: products over batches, one of them transposed twice, and something else."""
    return (a.T @ b + (e.T + (c.T @ d).T.T)) + (3.0 * a).T @ (2.0 * b)


@pytest.mark.parametrize(
    ("function", "columns", "products"),
    [
        pytest.param(sum_of_products, 128, 1, id="large"),
        pytest.param(sum_of_products, 20, 3, id="small"),
        pytest.param(
            lambda a, b, c, d, e: a.T.clone(memory_format=torch.contiguous_format) @ b + c.T @ d + e.T,
            *(128, 1),
            id="one factor is no transposed matrix",
        ),
        pytest.param(lambda a, b, c, d, e: (a.T @ b + c.T @ d) + e.T[:1], 128, 1, id="one term is broadcast"),
        pytest.param(
            lambda a, b, c, d, e: a.T @ b + (c.float().T @ d.float()) + e.T, 128, 2, id="one in single precision"
        ),
        pytest.param(lambda a, b, c, d, e: a.T @ b + torch.add(e.T, c.T @ d, alpha=2), 128, 2, id="one is weighted"),
    ],
)
def test_a_sum_of_large_products_is_one_product(function: Callable[..., Tensor], columns: int, products: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(10, 96), (10, columns), (12, 96), (12, columns), (columns, 96)]
    arguments = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes]
    graph = trace(function, tuple(arguments), 0).forward
    assert operations(graph).count("mm.default") == products
    torch.testing.assert_close(graph(*arguments)[0], function(*arguments))


def test_gradients_of_packed_parameters_are_added_where_they_are_written() -> None:
    def function(packed: Tensor, scale: Tensor) -> Tensor:
        first, second = packed.split([3, 4])
        return scale * torch.cat([first.square(), second.sin()])

    generator = torch.Generator().manual_seed(0)
    packed, scale, cotangent, addend = (torch.randn(7, dtype=torch.float64, generator=generator) for _ in range(4))
    graphs = trace(function, (packed, scale), 1)
    (returned,) = next(iter(graphs.backward.graph.find_nodes(op="output"))).args[0]
    assert returned.target is torch.ops.aten.cat.default
    expected = vjp(function, (packed, scale), 1)[1]([cotangent], [addend])
    torch.testing.assert_close(run(graphs, [packed, scale], [cotangent], [addend])[1], expected)


def test_weights_of_concatenated_terms_stay() -> None:
    def function(vector: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return torch.add(vector, torch.cat([first.square(), second.sin()]), alpha=2)

    arguments = torch.ones(7), torch.arange(3.0), torch.arange(4.0)
    graph = trace(function, arguments, 0).forward
    torch.testing.assert_close(graph(*arguments)[0], function(*arguments))


def operations(graph: torch.fx.GraphModule) -> str:
    return " ".join(str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(
    ("shape", "written"),
    [
        ((12, 1, 11), True),
        ((12, SMALL, 11), True),
        ((12, 10, 5), True),
        ((5, 12, 10), True),
        ((SMALL + 1,) * 3, False),
        ((12, 0, 11), False),
    ],
)
def test_small_products_are_written_out(shape: tuple[int, int, int], written: bool, batch: tuple[int, ...]) -> None:
    m, k, n = shape
    generator = torch.Generator().manual_seed(0)
    sizes = ((*batch, m, k), (*batch, k, n), (n,))
    a, b, bias = (torch.randn(*size, dtype=torch.float64, generator=generator) for size in sizes)
    cases = [(torch.matmul, (a, b)), (torch.addmm, (bias, a, b))][: 1 if batch else 2]
    for function, given in cases:
        graph = trace(function, given, 0).forward
        assert ("mm" in operations(graph)) is not written
        torch.testing.assert_close(graph(*given)[0], function(*given))


@pytest.mark.parametrize("factors", [{"alpha": 2.0}, {"beta": 3.0}], ids=str)
def test_products_with_factors_keep_them(factors: dict[str, float]) -> None:
    def function(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(bias, a, b, **factors)

    given = torch.ones(2), torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)
    torch.testing.assert_close(trace(function, given, 0).forward(*given)[0], function(*given))


@pytest.mark.parametrize(
    ("values", "axis", "written"),
    [
        (torch.rand(3, 1), -1, True),
        (torch.rand(2, 3, FEW, dtype=torch.float64), 2, True),
        (torch.rand(2, FEW + 1), -1, False),
        (torch.rand(2, 3), 0, False),
        (torch.arange(3), -1, False),
    ],
)
def test_short_cumulative_sums_are_written_out(values: Tensor, axis: int, written: bool) -> None:
    graph = trace(lambda x: x.cumsum(axis), (values,), 0).forward
    assert ("cumsum" in operations(graph)) is not written
    torch.testing.assert_close(graph(values)[0], values.cumsum(axis))


def test_max_pooling_is_traced_in_a_process_that_has_compiled_nothing() -> None:
    """Of the deep residual network. PyTorch's decomposition of it relies on a module that it does not import."""
    script = (
        "import torch; from dgvf_agents.execution.trace import trace; "
        "trace(lambda x: torch.nn.functional.max_pool2d(x, 3, 2), (torch.zeros(1, 1, 5, 5),), 0)"
    )
    finished = run_python("-c", script)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("env_id", ["CartPole-v1", pytest.param("Pendulum-v1", marks=pytest.mark.slow)])
def test_traced_updates_of_default_models_and_of_gsde(env_id: str) -> None:
    given = {"n_envs": 2, "auxiliary_task": "discovered", "questions": 4, "seed": 0, "device": "cpu", "compile": False}
    model = DGVFA2C("MlpPolicy", env_id, use_sde=env_id == "Pendulum-v1", **given).learn(20)  # type: ignore[arg-type]
    learner, rate = model.learner, torch.tensor(1e-2)
    function = partial(learner.functions.packed.update, scored=True)
    arguments = (learner.packed_state, learner.packed_eta, model._rollout, rate, learner.functions.numbers)
    graphs = trace(function, arguments, 2)
    leaves = flatten(arguments)
    cotangents = [torch.ones_like(value) for value in (*flatten(learner.packed_state), torch.ones(()))]
    expected, pull_back = vjp(function, arguments, 2)
    addends = flatten(learner.packed_eta)
    results, products = run(graphs, leaves, cotangents, addends)
    torch.testing.assert_close(results, flatten(expected), rtol=1e-4, atol=1e-5)
    alone = [0.0] * len(flatten(learner.packed_state))
    for found, wanted in zip(products, pull_back(cotangents, [*alone, *addends]), strict=True):
        assert float((found - wanted).norm()) < 1e-3 * float(wanted.norm())


# --- convolutions -----------------------------------------------------------------------------------------------------

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


def convolutional(stride: int, padding: int, dilation: int, groups: int) -> Any:
    def gradient(weight: Tensor, images: Tensor) -> tuple[Tensor]:
        """Of a loss, so that its derivatives are second ones."""

        def loss(weight: Tensor, images: Tensor) -> Tensor:
            return torch.conv2d(images, weight, None, stride, padding, dilation, groups).tanh().square().sum()

        by_weight, by_images = torch.func.grad(loss, (0, 1))(weight, images)
        return (by_weight.square().sum() + by_images.sin().sum(),)

    return gradient


def images_and_filters(kernel: int, height: int, groups: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 4 // groups, kernel, kernel).double(), torch.randn(7, 4, height, height + 1).double()


def check_gradients(function: Any, arguments: tuple[Tensor, Tensor], cotangent: Tensor) -> None:
    zeros = [torch.zeros_like(value) for value in arguments]
    found = run(trace(function, arguments, 2), list(arguments), [cotangent], zeros[1:])[1]
    torch.testing.assert_close(found, vjp(function, arguments, 2)[1]([cotangent], zeros))


@pytest.mark.parametrize("size", SIZES)
def test_second_derivatives_of_convolutions_are_those_of_the_function(size: tuple[int, ...]) -> None:
    kernel, *geometry, groups, height = size
    function, arguments = convolutional(*geometry, groups), images_and_filters(kernel, height, groups)
    check_gradients(function, arguments, torch.ones(()).double())


def test_no_filter_of_a_second_derivative_is_as_large_as_an_image() -> None:
    graphs = trace(convolutional(1, 1, 1, 1), images_and_filters(3, 24), 2)
    sizes = [
        max(node.args[1].meta["val"].shape[2:])
        for graph in (graphs.forward, graphs.backward)
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    ]
    assert sizes
    assert max(sizes) == 3


def test_populations_have_convolutions_of_their_own() -> None:
    """Under `vmap`, convolutions of several members become grouped ones."""
    weight, images = images_and_filters(3, 9)
    weights, batches = torch.stack([weight, 2 * weight]), torch.stack([images, -images])
    function = torch.func.vmap(convolutional(1, 1, 1, 1))
    arguments = (weights, batches)
    check_gradients(function, arguments, torch.ones(2).double())


def test_unpacking_gives_what_was_packed_in_any_order_of_names() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    permuted = {"b": tree["b"], "a": dict(reversed(tree["a"].items()))}
    packing = Packing(tree)
    torch.testing.assert_close(packing.unpack(packing.pack(permuted)), tree, rtol=0, atol=0)
    assert Packing({}).unpack(Packing({}).pack({})) == {}
    with pytest.raises(KeyError, match="z"):
        packing.pack({"a": tree["a"], "b": {}})
