"""PuddleWorld: navigation in a continuous square with puddles."""

from dgvf_envs.puddle_world.dynamics import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.env import PuddleWorldEnv, PuddleWorldVectorEnv
from dgvf_envs.puddle_world.puddles import PUDDLE_SETS, CapsulePuddle, GaussianPuddle, Puddle

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
