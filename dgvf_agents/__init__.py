"""Actor-critic agents whose encoder is trained by discovered questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgvf_agents.agents.a2c import DGVFA2C
    from dgvf_agents.agents.ppo import DGVFPPO
    from dgvf_agents.impala.algorithm import DGVFImpala

__all__ = ["DGVFA2C", "DGVFPPO", "DGVFImpala"]


def __getattr__(name: str) -> Any:
    """Import an algorithm when it is first asked for: PyTorch and Stable-Baselines3 take seconds."""
    if name == "DGVFA2C":
        from dgvf_agents.agents.a2c import DGVFA2C

        return DGVFA2C
    if name == "DGVFPPO":
        from dgvf_agents.agents.ppo import DGVFPPO

        return DGVFPPO
    if name == "DGVFImpala":
        from dgvf_agents.impala.algorithm import DGVFImpala

        return DGVFImpala
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
