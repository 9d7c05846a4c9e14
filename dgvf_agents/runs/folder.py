"""What a training run leaves on disk, and where.

RUN/config.json        the configuration
RUN/progress.csv       metrics, one row per log interval; TensorBoard events beside it
RUN/checkpoints/       models by number of environment steps; the last few can be resumed from, older ones hold networks
RUN/learning-curve.png
RUN/.lock              held by the process that trains
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
from dgvf_agents.runs.config import TrainConfig


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

    @property
    def lock_file(self) -> Path:
        """Held by the process that trains."""
        return self.path / ".lock"

    def checkpoint_file(self, steps: int) -> Path:
        """The model after a number of environment steps."""
        return self.path / "checkpoints" / f"{steps:010d}.zip"

    def checkpoints(self) -> list[Path]:
        """The models, by number of environment steps."""
        return sorted((self.path / "checkpoints").glob("[0-9]*.zip"))

    def latest_checkpoint(self) -> Path:
        """The model with the most steps; a damaged one is skipped with a warning.

        Raises:
            FileNotFoundError: there is none yet, or none that is whole.
        """
        for path in reversed(self.checkpoints()):
            if (damage := damage_of(path)) is None:
                return path
            warnings.warn(f"checkpoint {path} is skipped: {damage}", stacklevel=2)
        raise FileNotFoundError(f"run must have a checkpoint, got {self.path} without any")

    def is_finished(self) -> bool:
        """Whether the run has reached its steps: the checkpoint written at the end is there, whole, and is the last."""
        done = self.checkpoints()
        return bool(done) and int(done[-1].stem) >= self.read_config().steps and damage_of(done[-1]) is None

    def remove_unfinished(self) -> None:
        """Remove what a killed process had begun to write."""
        for path in self.path.rglob(".*.tmp*"):
            path.unlink(missing_ok=True)

    def write_config(self, config: TrainConfig) -> None:
        """Write the configuration, atomically."""
        with replacing(self.config_file) as unfinished:
            unfinished.write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n")

    def read_config(self) -> TrainConfig:
        """The configuration."""
        return TrainConfig.from_fields(json.loads(self.config_file.read_text()))

    def learning_curve(self) -> tuple[list[int], list[float]]:
        """Environment steps, and the mean return of the last 100 training episodes at each."""
        with self.progress_file.open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("rollout/ep_rew_mean")]
        return [int(float(r["time/total_timesteps"])) for r in rows], [float(r["rollout/ep_rew_mean"]) for r in rows]
