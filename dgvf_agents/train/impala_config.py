"""The paper's joint learning on Atari: IMPALA with all hyperparameters of its table 1."""

from __future__ import annotations

import dataclasses
from typing import Any

from dgvf_agents.options import AtariMethod, AtariRules
from dgvf_agents.train.atari_config import PAPER_TABLE, AtariTable, atari_config
from dgvf_agents.train.config import TrainConfig

JOINT_LEARNING: dict[str, Any] = {
    "algorithm": "impala",
    "policy": "ResNetPolicy",
    "encoder_mode": "joint",
    "question_encoder": "shared",
}
"""Fields in which joint learning differs from `atari_config`."""


def impala_config(
    game: str, method: AtariMethod, rules: AtariRules = "paper", table: AtariTable = PAPER_TABLE
) -> TrainConfig:
    """The configuration of IMPALA with a method on a game, as in the paper's joint learning experiments.

    The encoder is the deep residual network, trained by the main task and the auxiliary task. The question network
    reads the agent's features of the next observation.

    Args:
        game: name of the game in the spelling of Gymnasium or ALE.
        method: the auxiliary task, or `"a2c"` for none, the plain IMPALA agent.
        rules: name of the `dgvf_envs.atari` preset for preprocessing and game rules.
        table: hyperparameters.

    Raises:
        ValueError: ALE has no such game.
    """
    return dataclasses.replace(atari_config(game, method, rules, table), **JOINT_LEARNING)
