"""What a training run leaves on disk, and where.

RUN/config.json        the configuration
RUN/progress.csv       metrics, one row per log interval; TensorBoard events beside it
RUN/checkpoints/       models by number of environment steps
RUN/learning-curve.png
"""

from __future__ import annotations

import csv
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dgvf_agents.atomic import replacing
from dgvf_agents.train_config import TrainConfig


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    """The folder."""

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """The run at `path`.

        Raises:
            FileNotFoundError: there is no run.
        """
        folder = cls(path)
        if not folder.config_file.is_file():
            raise FileNotFoundError(f"run must be a folder that `dgvf train` wrote, got {path} without a config.json")
        return folder

    @property
    def config_file(self) -> Path:
        """The configuration."""
        return self.path / "config.json"

    @property
    def progress_file(self) -> Path:
        """The metrics."""
        return self.path / "progress.csv"

    @property
    def curve_file(self) -> Path:
        """The learning curve."""
        return self.path / "learning-curve.png"

    def checkpoint_file(self, steps: int) -> Path:
        """The model after a number of environment steps."""
        return self.path / "checkpoints" / f"{steps:010d}.zip"

    def latest_checkpoint(self) -> Path:
        """The model with the most steps.

        Raises:
            FileNotFoundError: there is none yet.
        """
        found = sorted((self.path / "checkpoints").glob("[0-9]*.zip"))
        if not found:
            raise FileNotFoundError(f"run must have a checkpoint, got {self.path} without any")
        return found[-1]

    def write_config(self, config: TrainConfig) -> None:
        """Write the configuration, atomically."""
        with replacing(self.config_file) as unfinished:
            unfinished.write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n")

    def read_config(self) -> TrainConfig:
        """The configuration."""
        return TrainConfig(**json.loads(self.config_file.read_text()))

    def learning_curve(self) -> tuple[list[int], list[float]]:
        """Environment steps, and the mean return of the last 100 training episodes at each."""
        with self.progress_file.open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("rollout/ep_rew_mean")]
        return [int(float(r["time/total_timesteps"])) for r in rows], [float(r["rollout/ep_rew_mean"]) for r in rows]
