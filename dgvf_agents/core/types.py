"""The records that pass between the stages of the algorithm, with a shape on each field.

Tensors are time-major: T steps of B environments, D questions, K bootstrap states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

Params = dict[str, Tensor]
"""Named parameters: θ of the agent, or η of the question network."""

Observations = Tensor | dict[str, Tensor]
"""A tensor, or a dict of tensors for a Dict space. Shapes below apply to every tensor in it."""


def map_observations(function: Callable[[Tensor], Tensor], observations: Observations) -> Observations:
    """Apply a function to the tensor, or to every tensor of the dict."""
    if isinstance(observations, dict):
        return {name: function(value) for name, value in observations.items()}
    return function(observations)


def batch_shape(observations: Observations, batch_dims: int) -> tuple[int, ...]:
    """Sizes of the first `batch_dims` axes."""
    some = next(iter(observations.values())) if isinstance(observations, dict) else observations
    return tuple(some.shape[:batch_dims])


def detach(params: Params) -> Params:
    """The same values, detached."""
    return {name: value.detach() for name, value in params.items()}


class SampledActions(NamedTuple):
    """Actions of one step of B environments."""

    actions: Shaped[Tensor, " B *action"]
    """`[B]` integer, or `[B, A]` for actions of several parts."""
    log_probs: Float[Tensor, " B"] | None = None
    """`[B]`: log μ(a|x); `None` for learners that are on-policy by assumption."""


class Rollout(NamedTuple):
    """T steps of experience from B environments."""

    observations: Observations
    """`[T, B, *obs]`: o_t, which the agent acted on."""
    actions: Shaped[Tensor, "T B *action"]
    """`[T, B]` integer, or `[T, B, A]` for actions of several parts: a_t as sampled, before clipping to the space."""
    rewards: Float[Tensor, "T B"]
    """`[T, B]`: R_{t+1}, as the environment gave them."""
    terminated: Bool[Tensor, "T B"]
    """`[T, B]` boolean: the episode terminated at o_{t+1}, so returns do not bootstrap there."""
    truncated: Bool[Tensor, "T B"]
    """`[T, B]` boolean: the episode was truncated at o_{t+1}, so returns bootstrap there. Excludes `terminated`."""
    next_observations: Observations
    """`[T, B, *obs]`: o_{t+1}; at the end of an episode its final observation."""
    bootstrap_index: Int[Tensor, " K"]
    """`[K]` integer: flat indices t·B + b of the next observations that returns bootstrap from; for tasks that read
    features (`AuxiliaryTask.reads_features`), of all final observations of episodes too."""
    bootstrap_slot: Int[Tensor, "T B"]
    """`[T, B]` integer in [0, K): the index in `bootstrap_index` for step (t, b); 0 if it has none."""
    statistics: Params = {}  # noqa: RUF012
    """Running statistics, as of batch normalization, that the agent acted with, named like θ; empty without any."""
    entropy_weight: Float[Tensor, ""] | None = None
    """Scalar: c_H for this batch, when it is annealed; `None`: the loss coefficient."""
    behavior_log_probs: Float[Tensor, "T B"] | None = None
    """`[T, B]`: log μ(a_t|x_t) of the policy that acted; `None` for learners that are on-policy by assumption."""
    auxiliary_coefficient: Float[Tensor, ""] | None = None
    """Scalar: c for this batch, when it is annealed; `None`: the update rule's."""

    def given(self) -> dict[str, Any]:
        """The fields by name, without those that are `None`."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def segment_end(self) -> Bool[Tensor, "T B"]:
        """`[T, B]` boolean: returns end here and bootstrap. True at episode ends and on the rollout's last step."""
        end = self.terminated | self.truncated
        last = end.new_zeros(end.shape)
        last[-1] = True
        return end | last
