"""The deep residual network of IMPALA (Espeholt et al. 2018, figure 3, right)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from dgvf_agents.core.networks import RELU_GAIN, Encoder, convolution, linear

CACHE = 8 * 2**20
"""Bytes of the first layer's outputs that the CPU computes at once."""


@final
class ResNetEncoder(Encoder):
    """Sections of 16, 32 and 32 channels, each a convolution, a max-pooling and two residual blocks; then 256 units.

    All convolutions are 3x3. Poolings are 3x3 with stride 2, so each section halves height and width, rounded up.
    """

    faster_eagerly = True

    def __init__(
        self, shape: Sequence[int], channels: Sequence[int] = (16, 32, 32), blocks: int = 2, hidden: int = 256
    ) -> None:
        """
        Args:
            shape: (channels, height, width) of an observation.
            channels: number of channels of each section, at least one.
            blocks: residual blocks per section.
            hidden: width of the fully connected layer.
        """
        super().__init__()
        inputs, height, width = shape
        layers: list[nn.Module] = []
        for outputs in channels:
            layers += [convolution(inputs, outputs, 3, padding=1, gain=1.0), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [ResidualBlock(outputs, len(channels) * blocks) for _ in range(blocks)]
            inputs, height, width = outputs, -(-height // 2), -(-width // 2)
        layers += [nn.ReLU(), nn.Flatten(), linear(inputs * height * width, hidden, RELU_GAIN), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.features = hidden
        self._largest = channels[0] * shape[1] * shape[2]  # numbers in the first layer's outputs for an image

    def forward(self, observations: Shaped[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        weight: Tensor = self.layers[0].weight  # type: ignore[assignment]
        images, convolutions, units = observations.to(weight.dtype), self.layers[:-2], self.layers[-2:]
        parts = images.split(self._images_at_once(images))
        return units(torch.cat([convolutions(_channels_last(part)) for part in parts]))

    def _images_at_once(self, images: Tensor) -> int:
        """How many images the CPU takes through all convolutions, and back, before the next ones.

        A whole batch would go through main memory at every layer. Graphs for a compiler are not split: they would be
        several times as large.
        """
        if images.device.type != "cpu" or get_proxy_mode() is not None:
            return max(1, len(images))
        return max(1, CACHE // (self._largest * images.element_size()))


@final
class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(ReLU(x))))."""

    def __init__(self, channels: int, depth: int) -> None:
        """
        Args:
            channels: of inputs and outputs.
            depth: n, the number of blocks in the network. The branch's last weights are scaled by 1/√n: with an equal
                gain in all blocks, the variance would double with each.
        """
        super().__init__()
        self.first = convolution(channels, channels, 3, padding=1)
        self.second = convolution(channels, channels, 3, padding=1, gain=RELU_GAIN / math.sqrt(depth))

    def forward(self, inputs: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
        return inputs + self.second(torch.relu(self.first(torch.relu(inputs))))


def _channels_last(images: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
    """The same images with the channels of a pixel side by side in memory, which all layers then keep.

    Convolutions this narrow are up to twice as fast so. `torch.channels_last` would say it shorter, but not under vmap.
    """
    return images.movedim(-3, -1).contiguous().movedim(-1, -3)
