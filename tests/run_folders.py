"""Run folders as `dgvf train` leaves them, with returns that a test chooses."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder


def write_run(
    path: Path,
    config: TrainConfig,
    evaluation: Mapping[int, float] | None = None,
    training: Mapping[int, float] | None = None,
    seconds: float = 60.0,
    checkpoint: bool = True,
    encoder_steps: Mapping[int, float] | None = None,
) -> None:
    """A run whose metrics hold the given values by environment steps, and a row at the configured steps."""
    evaluation, training = evaluation or {}, training or {}
    folder = RunFolder(path)
    folder.write_config(config)
    steps = sorted({*evaluation, *training, *(encoder_steps or {}), config.steps})
    optional = {} if encoder_steps is None else {"train/encoder_step": encoder_steps}
    with folder.progress_file.open("w", newline="") as file:
        writer = csv.writer(file)
        required = ("rollout/ep_rew_mean", "time/total_timesteps", "eval/mean_reward", "time/time_elapsed")
        writer.writerow([*required, *optional])
        for s in steps:
            row = [training.get(s, ""), s, evaluation.get(s, ""), seconds * s / config.steps]
            writer.writerow([*row, *(values.get(s, "") for values in optional.values())])
    if checkpoint:
        file_path = folder.checkpoint_file(config.steps)
        file_path.parent.mkdir()
        file_path.write_bytes(ModelFile({}).to_bytes())
