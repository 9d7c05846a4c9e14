"""PuddleWorld: a continuous square with puddles to walk around."""

from dgvf_envs.puddle_world.env import PuddleWorld, PuddleWorldEnv, PuddleWorldState, PuddleWorldVectorEnv
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
