"""PuddleWorld: navigation in a continuous square with puddles."""

from dgvf_envs.puddle_world.dynamics import (
    PUDDLE_SETS,
    CapsulePuddle,
    GaussianPuddle,
    Puddle,
    PuddleWorld,
    PuddleWorldState,
)
from dgvf_envs.puddle_world.env import PuddleWorldEnv, PuddleWorldVectorEnv

__all__ = [
    "PUDDLE_SETS",
    "CapsulePuddle",
    "GaussianPuddle",
    "Puddle",
    "PuddleWorld",
    "PuddleWorldEnv",
    "PuddleWorldState",
    "PuddleWorldVectorEnv",
]
