"""Actor-critic agents whose encoder is trained by discovered questions."""

from dgvf_agents.a2c import DGVFA2C

__all__ = ["DGVFA2C"]
