"""The records that pass between the stages of the algorithm, a shape on each field.

Everything is time-major. T steps per rollout, B environments, D questions, K states to bootstrap from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Params = dict[str, Tensor]
"""Named parameters; θ of the agent or η of the question network."""

Observations = Tensor | dict[str, Tensor]
"""Observations of one space, or of each of a Dict space's by name; shapes below are those of every tensor in it."""


def map_observations(function: Callable[[Tensor], Tensor], observations: Observations) -> Observations:
    """`function` of the tensor, or of every tensor."""
    if isinstance(observations, dict):
        return {name: function(value) for name, value in observations.items()}
    return function(observations)


def batch_shape(observations: Observations, batch_dims: int) -> tuple[int, ...]:
    """Sizes of the first `batch_dims` axes."""
    some = next(iter(observations.values())) if isinstance(observations, dict) else observations
    return tuple(some.shape[:batch_dims])


def detach(params: Params) -> Params:
    """The same values outside any graph."""
    return {name: value.detach() for name, value in params.items()}


class Rollout(NamedTuple):
    """T steps of experience from B environments."""

    observations: Observations
    """`[T, B, *obs]`: o_t, what the agent saw before acting."""
    actions: Tensor
    """`[T, B]` integer, or `[T, B, A]` where an action has several parts: a_t, before it was clipped to its space."""
    rewards: Tensor
    """`[T, B]`: R_{t+1}, as the environment gave them."""
    terminated: Tensor
    """`[T, B]` boolean: the episode ended at o_{t+1} by the environment's rules: nothing to bootstrap from."""
    truncated: Tensor
    """`[T, B]` boolean: the episode was cut at o_{t+1}; its value there counts. Exclusive of `terminated`."""
    next_observations: Observations
    """`[T, B, *obs]`: o_{t+1}, the true last observation where an episode ended."""
    bootstrap_index: Tensor
    """`[K]` integer: which of the T·B next observations (flat, t·B + b) returns are bootstrapped from."""
    bootstrap_slot: Tensor
    """`[T, B]` integer in [0, K): where in `bootstrap_index` step (t, b) finds its own; 0 where it needs none."""
    statistics: Params = {}  # noqa: RUF012
    """Running statistics (of batch normalization) that the agent acted with, named like θ; empty for most encoders."""
    entropy_weight: Tensor | None = None
    """Scalar: c_H for this batch, where it is annealed; `None` where it stays what the losses say."""

    @property
    def segment_end(self) -> Tensor:
        """`[T, B]` boolean: returns stop here and bootstrap: the rollout's last step, and every episode's end."""
        cut = self.terminated | self.truncated
        last = cut.new_zeros(cut.shape)
        last[-1] = True
        return cut | last
