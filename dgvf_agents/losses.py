"""Losses for auxiliary tasks: the public path of `dgvf_agents.core.losses`."""

from dgvf_agents.core.losses import regression_loss

__all__ = ["regression_loss"]
