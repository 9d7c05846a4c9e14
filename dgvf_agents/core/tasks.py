"""Auxiliary tasks: what the answer network learns to predict.

A task is a number of answers and a loss. To add one, derive a final class from `AuxiliaryTask` and define these two
(`examples/own_task.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_counts, check_fractions_below_one, check_not_negative
from dgvf_agents.core.distributions import one_hot
from dgvf_agents.core.losses import regression_loss
from dgvf_agents.core.question_networks import QuestionFunctions
from dgvf_agents.core.returns import bootstrapped_returns, per_step_discounts, window_index
from dgvf_agents.core.types import Observations, Params, Rollout, map_observations


class AuxiliaryTask(ABC):
    """An auxiliary task: the targets and the loss of the answer network."""

    discovers: bool = False
    """Whether the meta-gradient trains η."""
    needs_final_observation: bool = True
    """Whether the loss reads `Rollout.next_observations`. If false, final observations of episodes may be missing."""
    reads_features: bool = False
    """Whether `Rollout.next_observations` holds the agent's features x of o_{t+1}, `[T, B, F]`, in the loss instead of
    observations. They are stop-gradient inputs."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Width of the answer head."""

    def initial_meta_params(self) -> Params:
        """Initial η; empty for a task without meta-parameters."""
        return {}

    @abstractmethod
    def loss(
        self, answers: Float[Tensor, "T B D"], bootstraps: Float[Tensor, "T B D"], eta: Params, rollout: Rollout
    ) -> Float[Tensor, ""]:
        """L^ans, unweighted; a scalar.

        Args:
            answers: `[T, B, D]`: y(x_t), in which θ is trained.
            bootstraps: `[T, B, D]`: y at o_{t+1}, a stop-gradient input; valid where `rollout.segment_end`.
            eta: the meta-parameters η; the loss must be differentiable in them.
            rollout: the experience.
        """

    def checked_loss(self, *arguments: Any) -> Float[Tensor, ""]:
        """The loss.

        Raises:
            ValueError: it is no scalar tensor.
        """
        loss = self.loss(*arguments)
        if isinstance(loss, Tensor) and loss.dim() == 0:
            return loss
        raise ValueError(f"loss of auxiliary_task must be a scalar tensor, got {getattr(loss, 'shape', loss)!r:.80}")


class Questions(NamedTuple):
    """The questions of D general value functions. Their policy is the agent's."""

    cumulants: Float[Tensor, "T B D"]
    """`[T, B, D]`: u_{t+1}."""
    discounts: Float[Tensor, "T B D"]
    """`[T, B, D]`: γ_{t+1}, not yet 0 on terminated steps."""


class GVFTask(AuxiliaryTask):
    """General value functions with cumulants and discounts from a question network."""

    def __init__(self, network: QuestionFunctions, discount: float | None = 0.9, window: int = 1) -> None:
        """
        Args:
            network: the question network.
            discount: one discount in [0, 1) for all questions; `None` if and only if the network has a discount head.
            window: j ≥ 1, the number of future observations o_{t+1:t+j} in the network's input.

        Raises:
            ValueError: an argument is out of its range.
        """
        check_counts(window=window)
        if discount is None and not network.learns_discounts:
            raise ValueError("discount must be a number in [0, 1) if the question network does not learn it, got None")
        if discount is not None and network.learns_discounts:
            raise ValueError(f"discount must be None if the question network learns it, got {discount!r}")
        if discount is not None:
            check_fractions_below_one(discount=discount)
        self.network = network
        self.reads_features = network.shares_encoder
        self.discount = discount
        self.window = window

    @property
    def num_answers(self) -> int:
        return self.network.num_questions

    def initial_meta_params(self) -> Params:
        return self.network.params()

    def ask(self, eta: Params, rollout: Rollout) -> Questions:
        """The cumulants and discounts of every step of a rollout; see `reads_features`."""
        return self.ask_windows(eta, self.windows(rollout))

    def ask_windows(self, eta: Params, windows: Observations) -> Questions:
        """The cumulants and discounts for the question network's inputs `[T, B, *window]`."""
        cumulants, discounts = self.network.ask(eta, windows)
        if discounts is None:
            assert self.discount is not None
            discounts = torch.full_like(cumulants, self.discount)
        return Questions(cumulants, discounts)

    def windows(self, rollout: Rollout) -> Observations:
        """o_{t+1:t+j}, concatenated along the first observation axis: `[T, B, j·n]` or `[T, B, j·C, H, W]`."""
        if self.window == 1:
            return rollout.next_observations
        index = window_index(rollout.segment_end, self.window)
        envs = torch.arange(index.shape[1], device=index.device)[None, :, None]

        def join(next_observations: Tensor) -> Tensor:
            window = next_observations[index, envs]
            return window.flatten(2, 3) if window.dim() > 3 else window

        return map_observations(join, rollout.next_observations)

    def loss(
        self, answers: Float[Tensor, "T B D"], bootstraps: Float[Tensor, "T B D"], eta: Params, rollout: Rollout
    ) -> Float[Tensor, ""]:
        """½ (G^y_t - y(x_t))², with G^y the multi-step discounted sum of cumulants (paper, section 3.4)."""
        cumulants, discounts = self.ask(eta, rollout)
        discounts = per_step_discounts(discounts, rollout.terminated[..., None], discounts.dtype)
        return regression_loss(answers, bootstrapped_returns(cumulants, discounts, bootstraps, rollout.segment_end))


@final
class DiscoveredGVFs(GVFTask):
    """Questions trained by the meta-gradient."""

    discovers = True


@final
class RandomGVFs(GVFTask):
    """Questions fixed at their random initialization (paper, section 4.3)."""


@final
class RewardPrediction(AuxiliaryTask):
    """The next reward: (y(x_t) - R_{t+1})² (paper, section 4.3)."""

    needs_final_observation = False

    @property
    def num_answers(self) -> int:
        return 1

    def loss(
        self, answers: Float[Tensor, "T B D"], bootstraps: Float[Tensor, "T B D"], eta: Params, rollout: Rollout
    ) -> Float[Tensor, ""]:
        return 2.0 * regression_loss(answers, rollout.rewards[..., None])


@final
class PixelControl(AuxiliaryTask):
    """Learning to control pixel changes: action values for every cell of an n x n grid (paper, section 4.3).

    The paper gives neither n nor the discount; the defaults follow Jaderberg et al. (2017).
    """

    def __init__(
        self, num_actions: int, grid: int = 20, discount: float = 0.9, scale: float = 1.0 / 255.0, border: int = 0
    ) -> None:
        """
        Args:
            num_actions: A.
            grid: n, cells along each side; must divide the height and width of the image without its border.
            discount: in [0, 1).
            scale: factor that maps pixels to [0, 1].
            border: width ≥ 0 in pixels of a border that belongs to no cell.

        Raises:
            ValueError: an argument is out of its range.
        """
        check_counts(num_actions=num_actions, grid=grid)
        check_fractions_below_one(discount=discount)
        check_not_negative(border=border)
        self.num_actions = num_actions
        self.grid = grid
        self.discount = discount
        self.scale = scale
        self.border = border

    @classmethod
    def over(
        cls, shape: tuple[int, ...], num_actions: int, cell: int = 4, border: int = 2, scale: float = 1.0 / 255.0
    ) -> PixelControl:
        """Cells of 4x4 pixels over an image without its border: 20x20 cells over the central 80x80 of 84x84 pixels.

        Args:
            shape: (channels, height, width) of an observation.
            num_actions: A.
            cell: height and width of a cell in pixels ≥ 1.
            border: width ≥ 0 in pixels of a border that belongs to no cell.
            scale: factor that maps pixels to [0, 1].

        Raises:
            ValueError: observations are not images, or cells do not tile them.
        """
        _check_image(shape)
        height, width = shape[1:]
        if height != width or height <= 2 * border or (height - 2 * border) % cell:
            raise ValueError(
                f"observations must be square images of {cell} n + {2 * border} pixels a side for pixel control, got "
                f"{height} x {width}: pass auxiliary_task= a function that builds a PixelControl of another grid"
            )
        return cls(num_actions, (height - 2 * border) // cell, scale=scale, border=border)

    @property
    def num_answers(self) -> int:
        return self.grid * self.grid * self.num_actions

    def cumulants(self, rollout: Rollout) -> Float[Tensor, "T B cells"]:
        """`[T, B, n²]`: the mean absolute change of each cell's pixels between o_t and o_{t+1}, over all channels.

        Raises:
            ValueError: observations are not images, or the grid does not divide them.
        """
        assert isinstance(rollout.observations, Tensor)
        assert isinstance(rollout.next_observations, Tensor)
        self.check_shape(tuple(rollout.observations.shape[2:]))
        n, border = self.grid, self.border
        height, width = (side - 2 * border for side in rollout.observations.shape[-2:])
        before, after = (
            o[..., border : border + height, border : border + width].to(rollout.rewards.dtype)
            for o in (rollout.observations, rollout.next_observations)
        )
        change = ((after - before).abs() * self.scale).mean(2)  # [T, B, H, W]
        return change.unflatten(-1, (n, width // n)).unflatten(2, (n, height // n)).mean((3, 5)).flatten(2)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """
        Args:
            shape: of an observation.

        Raises:
            ValueError: observations are not images, or the grid does not divide them.
        """
        _check_image(shape)
        height, width = shape[1:]
        inner = (height - 2 * self.border, width - 2 * self.border)
        if min(inner) < 1 or inner[0] % self.grid or inner[1] % self.grid:
            without = f" less a border of {self.border}" if self.border else ""
            raise ValueError(f"grid must divide the image of {height} x {width} pixels{without}, got {self.grid!r}")

    def loss(
        self, answers: Float[Tensor, "T B D"], bootstraps: Float[Tensor, "T B D"], eta: Params, rollout: Rollout
    ) -> Float[Tensor, ""]:
        """½ (G_c + γ^n max_a′ q⁻(s′, a′) - q(s, a))², summed over cells."""
        shape = (self.grid * self.grid, self.num_actions)
        best = bootstraps.unflatten(-1, shape).amax(-1)
        discounts = per_step_discounts(self.discount, rollout.terminated, best.dtype)[..., None]
        targets = bootstrapped_returns(self.cumulants(rollout), discounts, best, rollout.segment_end)
        taken = one_hot(rollout.actions, self.num_actions, answers.dtype)
        predictions = (answers.unflatten(-1, shape) * taken[:, :, None]).sum(-1)
        return regression_loss(predictions, targets)


@final
class NoTask(AuxiliaryTask):
    """No auxiliary task: the plain actor-critic."""

    needs_final_observation = False

    @property
    def num_answers(self) -> int:
        return 0

    def loss(
        self, answers: Float[Tensor, "T B D"], bootstraps: Float[Tensor, "T B D"], eta: Params, rollout: Rollout
    ) -> Float[Tensor, ""]:
        return rollout.rewards.new_zeros(())


def _check_image(shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise ValueError(f"observations must be images (channels, height, width) for pixel control, got {shape}")
