"""IMPALA's residual network against a literal transcription."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from dgvf_agents.core import resnet
from dgvf_agents.core.resnet import ResNetEncoder
from dgvf_agents.core.types import Params

pytestmark = pytest.mark.usefixtures("double_precision")


def slow_resnet(params: Params, x: Tensor, sections: int) -> Tensor:
    """Sections of conv 3x3, max 3x3 / 2 and two blocks x + conv(ReLU(conv(ReLU(x)))); ReLU, linear, ReLU."""

    def conv(name: str, x: Tensor) -> Tensor:
        """A sum over shifts of the input, padded with zeros."""
        weight, (height, width) = params[f"layers.{name}.weight"], x.shape[-2:]
        padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
        total = params[f"layers.{name}.bias"][:, None, None]
        for i, j in product(range(3), range(3)):
            shifted = padded[..., i : i + height, j : j + width]
            total = total + torch.einsum("oc,nchw->nohw", weight[:, :, i, j], shifted)
        return total

    def pool(x: Tensor) -> Tensor:
        """The maximum over each 3x3 neighborhood of every other pixel, clipped to the image."""

        def largest(r: int, c: int) -> Tensor:
            return x[..., max(0, r - 1) : r + 2, max(0, c - 1) : c + 2].flatten(-2).max(-1).values

        rows, columns = (range(0, size, 2) for size in x.shape[-2:])
        return torch.stack([torch.stack([largest(r, c) for c in columns], -1) for r in rows], -2)

    layer = 0
    for _ in range(sections):
        x = pool(conv(f"{layer}", x))
        for block in (layer + 2, layer + 3):
            x = x + conv(f"{block}.second", torch.relu(conv(f"{block}.first", torch.relu(x))))
        layer += 4
    x = torch.relu(x).flatten(1)
    return torch.relu(x @ params[f"layers.{layer + 2}.weight"].T + params[f"layers.{layer + 2}.bias"])


@pytest.mark.parametrize(("height", "width"), [(9, 9), (12, 7)])
def test_equals_its_transcription(height: int, width: int) -> None:
    torch.manual_seed(0)
    encoder = ResNetEncoder((2, height, width), channels=(4, 5, 5), hidden=6)
    params = {name: value + 0.1 * torch.randn(value.shape) for name, value in encoder.named_parameters()}
    x = torch.randn(3, 2, height, width)
    torch.testing.assert_close(functional_call(encoder, params, (x,)), slow_resnet(params, x, 3))


def test_the_network_of_the_paper() -> None:
    """15 convolutions, 84 -> 42 -> 21 -> 11, 256 units."""
    encoder = ResNetEncoder((4, 84, 84))
    convolutions = [module for module in encoder.modules() if isinstance(module, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [16] * 5 + [32] * 10
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    assert encoder.features == 256
    convolved = sum(9 * a * b + b for a, b in ((4, 16), (16, 32), (32, 32), *[(16, 16)] * 4, *[(32, 32)] * 8))
    assert sum(p.numel() for p in encoder.parameters()) == convolved + 32 * 11 * 11 * 256 + 256


def test_few_images_at_once_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    encoder = ResNetEncoder((2, 9, 7), channels=(3, 4), blocks=1, hidden=6)
    x, params = torch.randn(7, 2, 9, 7), list(encoder.parameters())

    def found(images: int) -> tuple[set[int], list[Tensor]]:
        """The sizes of the batches that the first layer sees, and features with their first and second derivatives."""
        monkeypatch.setattr(resnet, "CACHE", images * 3 * 9 * 7 * 8)
        sizes: set[int] = set()
        hook = encoder.layers[0].register_forward_hook(lambda module, given, output: sizes.add(len(output)))
        features = encoder(x)
        hook.remove()
        first = torch.autograd.grad(features.square().sum(), params, create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), params)  # type: ignore[arg-type]
        return sizes, [features, *first, *second]

    sizes, expected = found(7)
    assert sizes == {7}
    sizes, split = found(3)
    assert sizes == {3, 1}
    torch.testing.assert_close(split, expected)
    assert encoder(x[:0]).shape == (0, 6)


def test_a_batch_of_networks_equals_each_of_them() -> None:
    """As populations call it: with parameters that have a dimension for the members."""
    torch.manual_seed(0)
    encoders = [ResNetEncoder((2, 9, 7), channels=(3, 4), blocks=1, hidden=6) for _ in range(3)]
    params, _ = stack_module_state(encoders)
    x = torch.randint(0, 256, (3, 5, 2, 9, 7), dtype=torch.uint8)
    together = vmap(lambda p, x: functional_call(encoders[0], p, (x,)))(params, x)
    torch.testing.assert_close(together, torch.stack([encoder(x) for encoder, x in zip(encoders, x, strict=True)]))
