"""Policies by name: the public path of `dgvf_agents.agents.policies`."""

from dgvf_agents.agents.policies import (
    CnnPolicy,
    DGVFPolicy,
    MlpPolicy,
    MultiInputPolicy,
    PaperCnnPolicy,
    PaperMlpPolicy,
    ResNetPolicy,
)

__all__ = [
    "CnnPolicy",
    "DGVFPolicy",
    "MlpPolicy",
    "MultiInputPolicy",
    "PaperCnnPolicy",
    "PaperMlpPolicy",
    "ResNetPolicy",
]
