"""The records that pass between the stages of the algorithm, a shape on each field.

Everything is time-major. T steps per rollout, B environments, D questions, K states to bootstrap from.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

Params = dict[str, Tensor]
"""Named parameters; θ of the agent or η of the question network."""


class Rollout(NamedTuple):
    """T steps of experience from B environments."""

    observations: Tensor
    """`[T, B, *obs]`: o_t, what the agent saw before acting."""
    actions: Tensor
    """`[T, B]` integer: a_t."""
    rewards: Tensor
    """`[T, B]`: R_{t+1}, as the environment gave them."""
    terminated: Tensor
    """`[T, B]` boolean: the episode ended at o_{t+1} by the environment's rules: nothing to bootstrap from."""
    truncated: Tensor
    """`[T, B]` boolean: the episode was cut at o_{t+1}; its value there counts. Exclusive of `terminated`."""
    next_observations: Tensor
    """`[T, B, *obs]`: o_{t+1}, the true last observation where an episode ended."""
    bootstrap_index: Tensor
    """`[K]` integer: which of the T·B next observations (flat, t·B + b) returns are bootstrapped from."""
    bootstrap_slot: Tensor
    """`[T, B]` integer in [0, K): where in `bootstrap_index` step (t, b) finds its own; 0 where it needs none."""

    @property
    def cut(self) -> Tensor:
        """`[T, B]` boolean: returns stop here and bootstrap: the rollout's last step, and every episode's end."""
        cut = self.terminated | self.truncated
        last = cut.new_zeros(cut.shape)
        last[-1] = True
        return cut | last
