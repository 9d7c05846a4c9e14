"""Atari games: named presets, a single environment and a vector environment, and scores of whole games."""

from dgvf_envs.atari.games import GAMES, ReferenceScores, human_normalized_score
from dgvf_envs.atari.presets import MODERN, PAPER, PRESETS, AtariPreset
from dgvf_envs.atari.scalar_env import make_atari
from dgvf_envs.atari.vector_env import GamesVectorEnv, make_atari_vec

__all__ = [
    "GAMES",
    "MODERN",
    "PAPER",
    "PRESETS",
    "AtariPreset",
    "GamesVectorEnv",
    "ReferenceScores",
    "human_normalized_score",
    "make_atari",
    "make_atari_vec",
]
