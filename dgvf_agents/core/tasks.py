"""Auxiliary tasks: what the answer network learns to predict.

A task is a width and a loss. To add one, derive a final class from `AuxiliaryTask` and write these two
(`examples/own_task.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import torch
from torch import Tensor

from dgvf_agents.core.losses import regression_loss
from dgvf_agents.core.networks import QuestionNetwork
from dgvf_agents.core.returns import bootstrapped_returns, per_step_discounts, window_index
from dgvf_agents.core.types import Observations, Params, Rollout, map_observations


class AuxiliaryTask(ABC):
    """Something for the answer network to learn."""

    discovers: bool = False
    """Whether η is to be trained by the meta-gradient."""
    needs_final_observation: bool = True
    """Whether the loss looks at `Rollout.next_observations`; if not, episodes' last observations may be missing."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Width of the answer head."""

    def initial_meta_params(self) -> Params:
        """η at first; empty for a task without meta-parameters."""
        return {}

    @abstractmethod
    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        """L^ans before the auxiliary coefficient, a scalar.

        Args:
            answers: `[T, B, answers]`: y(x_t), through which θ is trained.
            bootstraps: `[T, B, answers]`: y at o_{t+1} under held parameters; valid where `rollout.segment_end`.
            eta: the meta-parameters η; what the loss makes of them carries gradient.
            rollout: the experience.
        """


class Questions(NamedTuple):
    """What D general value functions ask, without their policy, which is the agent's."""

    cumulants: Tensor
    """`[T, B, D]`: u_{t+1}."""
    discounts: Tensor
    """`[T, B, D]`: γ_{t+1} before any episode's end is taken into account."""


class GVFTask(AuxiliaryTask):
    """General value functions whose questions a question network asks."""

    def __init__(self, network: QuestionNetwork, discount: float | None = 0.9, window: int = 1) -> None:
        """
        Args:
            network: the question network, which asks D questions.
            discount: one discount in [0, 1) for all questions; `None` if and only if the network learns them.
            window: j ≥ 1, how many future observations o_{t+1:t+j} the network sees.

        Raises:
            ValueError: an argument is out of its range.
        """
        if window < 1:
            raise ValueError(f"window must be >= 1, got {window!r}")
        if discount is None and network.discounts is None:
            raise ValueError(
                "discount must be a number in [0, 1) where the question network does not learn it, got None"
            )
        if discount is not None and not 0.0 <= discount < 1.0:
            raise ValueError(f"discount must lie in [0, 1), got {discount!r}")
        if discount is not None and network.discounts is not None:
            raise ValueError(f"discount must be None where the question network learns it, got {discount!r}")
        self.network = network
        self.discount = discount
        self.window = window

    @property
    def num_answers(self) -> int:
        return self.network.cumulants.out_features

    def initial_meta_params(self) -> Params:
        return self.network.params()

    def ask(self, eta: Params, rollout: Rollout) -> Questions:
        """The questions' cumulants and discounts along a rollout."""
        cumulants, discounts = self.network.ask(eta, self.windows(rollout))
        if discounts is None:
            assert self.discount is not None
            discounts = torch.full_like(cumulants, self.discount)
        return Questions(cumulants, discounts)

    def windows(self, rollout: Rollout) -> Observations:
        """o_{t+1:t+j}, joined along the first observation axis: `[T, B, j·n]` or `[T, B, j·C, H, W]`."""
        if self.window == 1:
            return rollout.next_observations
        index = window_index(rollout.segment_end, self.window)
        copies = torch.arange(index.shape[1], device=index.device)[None, :, None]

        def join(following: Tensor) -> Tensor:
            seen = following[index, copies]
            return seen.flatten(2, 3) if seen.dim() > 3 else seen

        return map_observations(join, rollout.next_observations)

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        """½ (G^y_t - y(x_t))², with G^y the multi-step discounted sum of cumulants (paper, section 3.4)."""
        cumulants, discounts = self.ask(eta, rollout)
        discounts = per_step_discounts(discounts, rollout.terminated[..., None], discounts.dtype)
        return regression_loss(answers, bootstrapped_returns(cumulants, discounts, bootstraps, rollout.segment_end))


@final
class DiscoveredGVFs(GVFTask):
    """Questions that the meta-gradient trains to be useful for the main task."""

    discovers = True


@final
class RandomGVFs(GVFTask):
    """The same questions, never trained (paper, section 4.3)."""


@final
class RewardPrediction(AuxiliaryTask):
    """The next reward: (y(x_t) - R_{t+1})² (paper, section 4.3)."""

    needs_final_observation = False

    @property
    def num_answers(self) -> int:
        return 1

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        return 2.0 * regression_loss(answers, rollout.rewards[..., None])


@final
class PixelControl(AuxiliaryTask):
    """Learning to change pixels: action values per cell of an n x n grid (paper, section 4.3).

    Grid, cells and discount are not in the paper; defaults are those of Jaderberg et al. (2017).
    """

    def __init__(
        self, actions: int, grid: int = 20, discount: float = 0.9, scale: float = 1.0 / 255.0, border: int = 0
    ) -> None:
        """
        Args:
            actions: A, the number of actions.
            grid: n, cells along each side; must divide the image's height and width less the border.
            discount: in [0, 1).
            scale: factor that maps pixels to [0, 1].
            border: pixels ≥ 0 along each side that belong to no cell.

        Raises:
            ValueError: an argument is out of its range.
        """
        if actions < 1:
            raise ValueError(f"actions must be >= 1, got {actions!r}")
        if grid < 1:
            raise ValueError(f"grid must be >= 1, got {grid!r}")
        if not 0.0 <= discount < 1.0:
            raise ValueError(f"discount must lie in [0, 1), got {discount!r}")
        if border < 0:
            raise ValueError(f"border must be >= 0, got {border!r}")
        self.actions = actions
        self.grid = grid
        self.discount = discount
        self.scale = scale
        self.border = border

    @classmethod
    def over(cls, shape: tuple[int, ...], actions: int, cell: int = 4, border: int = 2) -> PixelControl:
        """Cells of 4x4 pixels over all of an image but its border: 20x20 cells over the central 80x80 of 84x84.

        Args:
            shape: (channels, height, width) of an observation.
            actions: A, the number of actions.
            cell: height and width of a cell in pixels ≥ 1.
            border: pixels ≥ 0 along each side that belong to no cell.

        Raises:
            ValueError: observations are no images, or whole cells do not fill them.
        """
        _check_image(shape)
        height, width = shape[1:]
        if height != width or height <= 2 * border or (height - 2 * border) % cell:
            raise ValueError(
                f"observations must be square images of {cell} n + {2 * border} pixels a side for pixel control, got "
                f"{height} x {width}: pass auxiliary_task= a function that builds a PixelControl of another grid"
            )
        return cls(actions, (height - 2 * border) // cell, border=border)

    @property
    def num_answers(self) -> int:
        return self.grid * self.grid * self.actions

    def cumulants(self, rollout: Rollout) -> Tensor:
        """`[T, B, n²]`: mean absolute change of the pixels of each cell between o_t and o_{t+1}, over all channels.

        Raises:
            ValueError: observations are no images, or the grid does not divide them.
        """
        assert isinstance(rollout.observations, Tensor)
        assert isinstance(rollout.next_observations, Tensor)
        self.check_shape(tuple(rollout.observations.shape[2:]))
        n, edge = self.grid, self.border
        height, width = (side - 2 * edge for side in rollout.observations.shape[-2:])
        before, after = (
            o[..., edge : edge + height, edge : edge + width].to(rollout.rewards.dtype)
            for o in (rollout.observations, rollout.next_observations)
        )
        change = ((after - before).abs() * self.scale).mean(2)  # [T, B, H, W]
        return change.unflatten(-1, (n, width // n)).unflatten(2, (n, height // n)).mean((3, 5)).flatten(2)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """
        Args:
            shape: of an observation.

        Raises:
            ValueError: observations are no images, or the grid does not divide them.
        """
        _check_image(shape)
        height, width = shape[1:]
        inner = (height - 2 * self.border, width - 2 * self.border)
        if min(inner) < 1 or inner[0] % self.grid or inner[1] % self.grid:
            without = f" less a border of {self.border}" if self.border else ""
            raise ValueError(f"grid must divide the image of {height} x {width} pixels{without}, got {self.grid!r}")

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        """½ (G_c + γ^n max_a′ q⁻(s′, a′) - q(s, a))², summed over cells."""
        shape = (self.grid * self.grid, self.actions)
        best = bootstraps.unflatten(-1, shape).amax(-1)
        discounts = per_step_discounts(self.discount, rollout.terminated, best.dtype)[..., None]
        targets = bootstrapped_returns(self.cumulants(rollout), discounts, best, rollout.segment_end)
        taken = torch.nn.functional.one_hot(rollout.actions, self.actions).to(answers.dtype)
        predictions = (answers.unflatten(-1, shape) * taken[:, :, None]).sum(-1)
        return regression_loss(predictions, targets)


@final
class NoTask(AuxiliaryTask):
    """Nothing to predict: the plain actor-critic."""

    needs_final_observation = False

    @property
    def num_answers(self) -> int:
        return 0

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        return rollout.rewards.new_zeros(())


def _check_image(shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise ValueError(f"observations must be images (channels, height, width) for pixel control, got {shape}")
