"""What returns mean on each world: those of an optimal and of a uniformly random policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dgvf_agents.train_config import World


@final
@dataclass(frozen=True)
class WorldReference:
    """Undiscounted mean returns between which a world's returns are placed."""

    env: str
    """Id of the environment."""
    optimal: float
    """Of an optimal policy."""
    random: float
    """Of the uniformly random policy."""
    logarithmic: bool = False
    """Whether pictures need a logarithmic scale to show what matters."""

    def normalized(self, value: float) -> float:
        """0 at the random policy's return, 1 at the optimal one."""
        return (value - self.random) / (self.optimal - self.random)


REFERENCES: dict[World, WorldReference] = {
    "collect-objects": WorldReference("CollectObjects-v0", 3.0, 0.156),
    "collect-objects-small": WorldReference("CollectObjectsSmall-v0", 3.0, 0.331),
    "puddle-world": WorldReference("PuddleWorld-v0", -36.7, -12_888.0, logarithmic=True),
}
"""From the pages of the environments, which say how they were computed."""
