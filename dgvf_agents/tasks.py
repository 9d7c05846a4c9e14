"""Auxiliary tasks, for users' own: the public path of `dgvf_agents.core.tasks`."""

from dgvf_agents.core.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    GVFTask,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)

__all__ = ["AuxiliaryTask", "DiscoveredGVFs", "GVFTask", "NoTask", "PixelControl", "RandomGVFs", "RewardPrediction"]
