"""Undiscounted mean returns of an optimal and of the uniformly random policy, for comparison with an agent's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dgvf_agents.train.config import TrainConfig
from dgvf_envs.atari import GAMES


@final
@dataclass(frozen=True)
class ReferenceReturns:
    """Returns in an environment with its default arguments."""

    optimal: float
    """Of an optimal policy; of a human player on Atari."""
    random: float
    """Of the uniformly random policy."""
    logarithmic: bool = False
    """Whether pictures have a logarithmic scale."""


REFERENCE_RETURNS: dict[str, ReferenceReturns] = {
    "CollectObjects-v0": ReferenceReturns(3.0, 0.156),
    "CollectObjectsSmall-v0": ReferenceReturns(3.0, 0.331),
    "PuddleWorld-v0": ReferenceReturns(-36.7, -12_888.0, logarithmic=True),
}
"""By environment id. From the pages of the environments, which say how they were computed."""


def reference_returns(config: TrainConfig) -> ReferenceReturns | None:
    """Those that a run's evaluation returns compare with; `None` if unknown."""
    if config.atari is not None:
        scores = GAMES.get(config.env)
        return None if scores is None else ReferenceReturns(scores.human, scores.random)
    return None if config.evaluation_kwargs or config.env_wrapper else REFERENCE_RETURNS.get(config.env)
