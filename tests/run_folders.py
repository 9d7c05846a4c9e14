"""Configurations of tiny runs, and run folders as `dgvf train` leaves them, with returns that a test chooses."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import STEPS, RunFolder


def tiny_config(**changes: Any) -> TrainConfig:
    """A configuration of small networks and batches, uncompiled."""
    small = {"n_envs": 4, "questions": 4, "unroll_length": 3, "checkpoints_kept": 2, "evaluation_episodes": 2}
    return TrainConfig(**{"compile": False, **small, **changes})


def rows_of(run: Path, name: str = "progress.csv") -> list[dict[str, str]]:
    """The rows of a run's table."""
    with (run / name).open(newline="") as file:
        return list(csv.DictReader(file))


def write_run(
    path: Path,
    config: TrainConfig,
    evaluation: Mapping[int, float] | None = None,
    training: Mapping[int, float] | None = None,
    checkpoint: bool = True,
) -> None:
    """A run whose metrics hold the given values by environment steps, and a row at the configured steps."""
    evaluation, training = evaluation or {}, training or {}
    folder = RunFolder(path)
    folder.write_config(config)
    columns = {"rollout/ep_rew_mean": training, "eval/mean_reward": evaluation}
    rows = [
        {STEPS: steps, **{name: values.get(steps, "") for name, values in columns.items()}}
        for steps in sorted({*evaluation, *training, config.steps})
    ]
    pd.DataFrame(rows).to_csv(folder.progress_file, index=False)
    if checkpoint:
        file_path = folder.checkpoint_file(config.steps)
        file_path.parent.mkdir()
        file_path.write_bytes(ModelFile({}).to_bytes())
