"""The settings that schedules may anneal."""

from __future__ import annotations

from typing import NamedTuple, final

from dgvf_agents.core.types import Rollout


@final
class AnnealedSettings(NamedTuple):
    """The settings that schedules may anneal, for one update."""

    learning_rate: float
    """α′."""
    meta_learning_rate: float
    """α."""
    entropy_weight: float
    """c_H."""

    def batch(self, rollout: Rollout) -> Rollout:
        """The rollout with the c_H of its update."""
        return rollout._replace(entropy_weight=rollout.rewards.new_full((), self.entropy_weight))
