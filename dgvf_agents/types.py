"""Records that auxiliary tasks are given: the public path of `dgvf_agents.core.types`."""

from dgvf_agents.core.types import Observations, Params, Rollout

__all__ = ["Observations", "Params", "Rollout"]
