"""Policies by name: the public path of `dgvf_agents.sb3.policies`."""

from dgvf_agents.sb3.policies import CnnPolicy, DGVFPolicy, MlpPolicy, MultiInputPolicy, PaperMlpPolicy, ResNetPolicy

__all__ = ["CnnPolicy", "DGVFPolicy", "MlpPolicy", "MultiInputPolicy", "PaperMlpPolicy", "ResNetPolicy"]
