"""A run of Stable-Baselines3's A2C with its defaults, recorded like one of `dgvf train`."""

from __future__ import annotations

from pathlib import Path

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger

from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.environments import training_environments
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.runs.progress import ProgressLog

REFERENCE = "sb3-a2c"
"""What stands for the agent in `TrainConfig.task`."""


def train_reference(config: TrainConfig, path: Path) -> A2C:
    """Train, writing configuration, metrics and the model; a run that was killed starts anew.

    Args:
        config: says what to train on and for how long; the agent's settings are A2C's defaults.
        path: the run folder.
    """
    folder = RunFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(config.threads)
    folder.write_config(config)
    model = A2C(config.policy, training_environments(config), seed=config.seed, device=config.device)
    model.set_logger(Logger(str(path), [ProgressLog(folder.progress_file)]))
    batch = model.n_steps * model.n_envs
    model.learn(config.steps, log_interval=max(1, round(config.log_every / batch)))
    model.logger.close()
    model.save(path / "model.zip")
    return model
