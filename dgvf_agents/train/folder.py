"""The files of a training run.

RUN/config.json         the configuration
RUN/origin.json         commit of the code, versions and machine of every process that trained the run
RUN/progress.csv        metrics, one row per log interval; TensorBoard events next to it
RUN/evaluations.csv.gz  return and length of every evaluation episode
RUN/checkpoints/        models by number of environment steps; the last few are complete, older ones hold networks only
RUN/learning-curve.png
RUN/evaluation.json         in shipped runs: what `dgvf evaluate` finds
RUN/.lock               held by the training process
"""

from __future__ import annotations

import csv
import dataclasses
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dgvf_agents.storage.atomic import replacing
from dgvf_agents.storage.model_file import damage_of
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.shipped import SHIPPED, located


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    """Path of the folder."""

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """The run at `path`, or the shipped run of this name.

        Raises:
            FileNotFoundError: there is no run.
        """
        folder = cls(located(path))
        if not folder.config_file.is_file():
            raise FileNotFoundError(
                f"run must be a folder that `dgvf train` wrote, or a shipped run ({', '.join(SHIPPED)}), got {path} "
                "without a config.json"
            )
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
    def origin_file(self) -> Path:
        """Where the run comes from."""
        return self.path / "origin.json"

    @property
    def evaluations_file(self) -> Path:
        """All evaluation episodes."""
        return self.path / "evaluations.csv.gz"

    @property
    def evaluation_file(self) -> Path:
        """Mean and standard deviation of the returns that `dgvf evaluate` finds, in shipped runs."""
        return self.path / "evaluation.json"

    @property
    def curve_file(self) -> Path:
        """The learning curve."""
        return self.path / "learning-curve.png"

    @property
    def lock_file(self) -> Path:
        """Held by the training process."""
        return self.path / ".lock"

    def checkpoint_file(self, steps: int) -> Path:
        """The checkpoint after a number of environment steps."""
        return self.path / "checkpoints" / f"{steps:010d}.zip"

    def checkpoints(self) -> list[Path]:
        """The checkpoints, by number of environment steps."""
        return sorted((self.path / "checkpoints").glob("[0-9]*.zip"))

    def latest_checkpoint(self) -> Path:
        """The checkpoint with the most steps; damaged ones are skipped with a warning.

        Raises:
            FileNotFoundError: there is no undamaged checkpoint.
        """
        for path in reversed(self.checkpoints()):
            if (damage := damage_of(path)) is None:
                return path
            warnings.warn(f"checkpoint {path} is skipped: {damage}", stacklevel=2)
        raise FileNotFoundError(
            f"run must have a checkpoint, got {self.path} without one: dgvf train --resume starts it again"
        )

    def is_finished(self) -> bool:
        """Whether the run has reached its steps: the checkpoint of the last step exists and is not damaged."""
        done = self.checkpoints()
        return bool(done) and int(done[-1].stem) >= self.read_config().steps and damage_of(done[-1]) is None

    def remove_unfinished(self) -> None:
        """Remove the temporary files of a killed process."""
        for path in self.path.rglob(".*.tmp*"):
            path.unlink(missing_ok=True)

    def write_config(self, config: TrainConfig) -> None:
        """Write the configuration atomically."""
        with replacing(self.config_file) as unfinished:
            unfinished.write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n")

    def read_config(self) -> TrainConfig:
        """Read the configuration."""
        return TrainConfig.from_fields(json.loads(self.config_file.read_text()))

    def learning_curve(self, metric: str = "rollout/ep_rew_mean") -> tuple[list[int], list[float]]:
        """Environment steps, and a metric at each of them: the mean return of the last 100 training episodes."""
        with self.progress_file.open() as file:
            rows = [row for row in csv.DictReader(file) if row.get(metric)]
        return [int(float(row["time/total_timesteps"])) for row in rows], [float(row[metric]) for row in rows]
