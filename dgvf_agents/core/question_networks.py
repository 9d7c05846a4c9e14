"""Question networks: what η parameterizes. `networks.QuestionNetwork` has an encoder of its own.

Principal questions are the directions along which the cumulants of a question network vary most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.core.networks import RELU_GAIN, QuestionFunctions, QuestionNetwork, inside, linear
from dgvf_agents.core.types import Observations, Params


@final
class SharedQuestionNetwork(QuestionFunctions):
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


_NETWORK = "network."


@final
class PrincipalComponents(NamedTuple):
    """The first k principal components of D cumulants."""

    center: Float[Tensor, " D"]
    """`[D]`: mean cumulants."""
    components: Float[Tensor, "k D"]
    """`[k, D]`: orthonormal rows, the one with the largest variance first."""


def principal_components(cumulants: Float[Tensor, "N D"], count: int) -> PrincipalComponents:
    """The first `count` principal components of cumulants `[N, D]`.

    The largest entry of each component is positive, so that the same cumulants give the same components.

    Raises:
        ValueError: `count` is not in 1 ... D.
    """
    if not 1 <= count <= cumulants.shape[1]:
        raise ValueError(f"count must be in 1 ... {cumulants.shape[1]}, got {count!r}")
    center = cumulants.double().mean(0)
    deviation = cumulants.double() - center
    _, vectors = torch.linalg.eigh(deviation.T @ deviation)  # by ascending variance
    components = vectors.flip(-1).T[:count]
    largest = components.gather(1, components.abs().argmax(1, keepdim=True))
    return PrincipalComponents(*(part.to(cumulants.dtype) for part in (center, components * largest.sign())))


@final
class PrincipalQuestions(QuestionFunctions):
    """A question network whose cumulants are k linear combinations of another network's: u′ = A (u - m).

    All questions have one discount, so their returns combine as their cumulants do: G′ = A (G - m / (1 - γ)) where the
    episode does not end. With orthonormal rows of A, the answer loss of all D principal questions is the D
    questions' answer loss, and the first k are the part of it that varies most. Nothing is rescaled.
    """

    def __init__(self, network: QuestionNetwork, count: int) -> None:
        """
        Args:
            network: with D questions and no discount head.
            count: k, in 1 ... D.

        Raises:
            ValueError: `count` is out of its range, or the network learns discounts.
        """
        check_counts(count=count)
        if count > network.num_questions:
            raise ValueError(f"count must be <= {network.num_questions}, the number of questions, got {count!r}")
        if network.learns_discounts:
            raise ValueError("network must have no discount head: questions with several discounts cannot be combined")
        super().__init__()
        self.network, self.discounts = network, None
        self.num_questions = count

    def params(self) -> Params:
        """η: the network's parameters, then m `[D]` and A `[k, D]`, at first the first k questions."""
        named = {f"{_NETWORK}{name}": value for name, value in self.network.params().items()}
        some = next(iter(named.values()))
        first = torch.eye(self.num_questions, self.network.num_questions, dtype=some.dtype, device=some.device)
        return {**named, "center": some.new_zeros(self.network.num_questions), "components": first}

    def ask(self, eta: Params, windows: Observations) -> tuple[Float[Tensor, "T B k"], None]:
        """Cumulants `[T, B, k]` of windows `[T, B, *window]`."""
        cumulants, _ = self.network.ask(inside(eta, _NETWORK), windows)
        return nn.functional.linear(cumulants - eta["center"], eta["components"]), None


def principal_eta(eta: Params, principal: PrincipalComponents) -> Params:
    """η of `PrincipalQuestions` from its network's η, and components of its cumulants."""
    return {**{f"{_NETWORK}{name}": value for name, value in eta.items()}, **principal._asdict()}
