"""Small `DGVFImpala` models."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import Tensor, nn

from dgvf_agents import DGVFA2C, DGVFImpala

COPIES, STEPS = 4, 5
BATCH = COPIES * STEPS
SMALL: dict[str, Any] = {
    "n_steps": STEPS,
    "questions": 6,
    "unroll_length": 3,
    "learning_rate": 1e-3,
    "seed": 0,
    "compile": False,
    "device": "cpu",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "PaperMlpPolicy": {"features_extractor_kwargs": {"hidden": (16,)}},
    "PaperCnnPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
    "ResNetPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
}


def small_model(env: Any = "PuddleWorld-v0", policy: str = "PaperMlpPolicy", **changes: Any) -> DGVFImpala:
    copies = {"n_envs": COPIES} if isinstance(env, str) or callable(env) else {}
    kwargs = {"policy_kwargs": NETWORKS[policy]} if policy in NETWORKS else {}
    return DGVFImpala(policy, env, **{**SMALL, **copies, **kwargs, **changes})


def weights_of(model: DGVFA2C | DGVFImpala) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()]).clone()


class Normalizing(FlattenExtractor):
    """Normalizes batches."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.normalization = nn.BatchNorm1d(self.features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        return self.normalization(super().forward(observations))
