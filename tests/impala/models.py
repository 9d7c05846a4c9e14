"""Small `DGVFImpala` models."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import Tensor, nn

from dgvf_agents import DGVFImpala
from tests import small_agents
from tests.small_agents import COPIES, STEPS, TINY_NETWORK

SMALL: dict[str, Any] = {**small_agents.SMALL, "n_steps": STEPS, "learning_rate": 1e-3}
NETWORKS: dict[str, dict[str, Any]] = {
    "PaperMlpPolicy": TINY_NETWORK,
    "PaperCnnPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
    "ResNetPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
}


def small_model(env: Any = "PuddleWorld-v0", policy: str = "PaperMlpPolicy", **changes: Any) -> DGVFImpala:
    copies = {"n_envs": COPIES} if isinstance(env, str) or callable(env) else {}
    kwargs = {"policy_kwargs": NETWORKS[policy]} if policy in NETWORKS else {}
    return DGVFImpala(policy, env, **{**SMALL, **copies, **kwargs, **changes})


class Normalizing(FlattenExtractor):
    """Normalizes batches."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.normalization = nn.BatchNorm1d(self.features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        return self.normalization(super().forward(observations))
