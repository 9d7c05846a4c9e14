"""The settings that schedules may anneal."""

from __future__ import annotations

from typing import NamedTuple, final

from stable_baselines3.common.type_aliases import Schedule

from dgvf_agents.agents.schedules import checked_value_at
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
    auxiliary_coefficient: float | None = None
    """c; `None`: constant."""

    @classmethod
    def at(
        cls,
        progress: float,
        learning_rate: Schedule,
        meta_learning_rate: float | Schedule,
        ent_coef: float | Schedule,
        auxiliary_coefficient: float | Schedule,
    ) -> AnnealedSettings:
        """The schedules' values.

        Args:
            progress: the remaining progress, from 1 to 0.
            learning_rate: α′.
            meta_learning_rate: α.
            ent_coef: c_H.
            auxiliary_coefficient: c.

        Raises:
            ValueError: a schedule returns something else than a number in its range.
        """
        annealed = callable(auxiliary_coefficient)
        return cls(
            checked_value_at("learning_rate", learning_rate, progress),
            checked_value_at("meta_learning_rate", meta_learning_rate, progress),
            checked_value_at("ent_coef", ent_coef, progress),
            checked_value_at("auxiliary_coefficient", auxiliary_coefficient, progress) if annealed else None,
        )

    def batch(self, rollout: Rollout) -> Rollout:
        """The rollout with the c_H of its update, and its c if that is annealed."""
        new, coefficient = rollout.rewards.new_full, self.auxiliary_coefficient
        return rollout._replace(
            entropy_weight=new((), self.entropy_weight),
            auxiliary_coefficient=None if coefficient is None else new((), coefficient),
        )
