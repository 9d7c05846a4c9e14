"""Question networks: what η parameterizes. `networks.QuestionNetwork` has an encoder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.core.networks import RELU_GAIN, linear
from dgvf_agents.core.types import Observations, Params


class QuestionFunctions(Protocol):
    """A question network as pure functions of named meta-parameters η."""

    shares_encoder: bool
    """Whether its inputs are the agent's features of o_{t+1} instead of observations."""

    @property
    def num_questions(self) -> int:
        """D."""

    @property
    def learns_discounts(self) -> bool:
        """Whether there is a discount head. Names of its parameters start with `discounts.`."""

    def params(self) -> Params:
        """Initial η by name, detached."""

    def ask(self, eta: Params, windows: Observations) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"] | None]:
        """Cumulants u `[T, B, D]` and discounts γ `[T, B, D]` of windows; discounts are `None` without their head."""


@final
class SharedQuestionNetwork(nn.Module):
    """Two separate networks on the agent's last hidden layer: one for cumulants, one for discounts.

    Each has two hidden layers of ReLUs and a linear output layer (paper, appendix, joint learning: "two-layer MLP" with
    256 and 128 hidden units). Cumulants pass through an arctan and discounts through a sigmoid.
    """

    shares_encoder = True

    def __init__(
        self, features: int, num_questions: int, learned_discounts: bool, hidden: Sequence[int] = (256, 128)
    ) -> None:
        """
        Args:
            features: width of the input: F, times the number of observations in a window.
            num_questions: D ≥ 1.
            learned_discounts: whether there is a network for discounts.
            hidden: widths of the hidden layers.

        Raises:
            ValueError: there are no questions.
        """
        check_counts(num_questions=num_questions)
        super().__init__()
        self.cumulants = _layers(features, hidden, num_questions)
        self.discounts = _layers(features, hidden, num_questions) if learned_discounts else None
        self.num_questions = num_questions

    @property
    def learns_discounts(self) -> bool:
        return self.discounts is not None

    def params(self) -> Params:
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}

    def ask(self, eta: Params, windows: Observations) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"] | None]:
        """Cumulants u `[T, B, D]` and discounts γ `[T, B, D]` of features `[T, B, F]`."""
        assert isinstance(windows, Tensor)
        cumulants = torch.arctan(_apply("cumulants.", self.cumulants, eta, windows))
        if self.discounts is None:
            return cumulants, None
        return cumulants, torch.sigmoid(_apply("discounts.", self.discounts, eta, windows))


def _layers(inputs: int, hidden: Sequence[int], outputs: int) -> nn.ModuleList:
    widths = (inputs, *hidden)
    return nn.ModuleList([*(linear(*pair, RELU_GAIN) for pair in pairwise(widths)), linear(widths[-1], outputs, 1.0)])


def _apply(prefix: str, layers: nn.ModuleList, eta: Params, x: Tensor) -> Tensor:
    for i in range(len(layers)):
        x = nn.functional.linear(x, eta[f"{prefix}{i}.weight"], eta[f"{prefix}{i}.bias"])
        x = torch.relu(x) if i < len(layers) - 1 else x
    return x
