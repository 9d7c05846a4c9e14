"""The returns in a run's metrics, and the numbers that an experiment takes from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np

from dgvf_agents.experiments.table_files import read_csv
from dgvf_agents.train.folder import RunFolder

Measure = Literal["evaluation", "training"]
"""`evaluation`: evaluation episodes; `training`: the last 100 training episodes."""

MEASURES: dict[Measure, str] = {"evaluation": "eval/mean_reward", "training": "rollout/ep_rew_mean"}
"""Each measure's column of the metrics."""

_ENCODER_STEP = "train/encoder_step"

FINAL_FRACTION = 0.1
"""The final return is the mean over this last part of training."""


@final
@dataclass(frozen=True)
class Curve:
    """Mean returns along a run."""

    steps: np.ndarray
    """[N] environment steps, ascending."""
    returns: np.ndarray
    """[N] mean return at each."""

    def final_return(self, total: int) -> float:
        """Mean over the last tenth of `total` steps; the last value if none is in it."""
        late = self.returns[self.steps > (1 - FINAL_FRACTION) * total]
        return float(np.mean(late)) if len(late) else float(self.returns[-1])

    def average_return(self, total: int) -> float:
        """Area under the curve over `total` steps, divided by them; constant outside its first and last steps."""
        steps = np.concatenate([[0], np.minimum(self.steps, total), [total]])
        returns = np.concatenate([self.returns[:1], self.returns, self.returns[-1:]])
        return float(np.sum(np.diff(steps) * (returns[1:] + returns[:-1]) / 2) / total)

    def at(self, steps: np.ndarray) -> np.ndarray:
        """Returns [M] at steps [M], interpolated linearly."""
        return np.interp(steps, self.steps, self.returns)


@final
@dataclass(frozen=True)
class RunMetrics:
    """What an experiment reads of a run's metrics."""

    total_steps: int
    """Environment steps of the last row."""
    seconds: float
    """Wall time at the last row."""
    clock: np.ndarray
    """[R, 2] environment steps and wall time of every row, in seconds; members of a population count that of all."""
    curves: dict[Measure, Curve]
    """By measure, those with a value."""
    encoder_steps: np.ndarray
    """[M, 2] environment steps and relative length of the encoder's update at rows that have one; [0, 2] in runs of
    earlier versions and without an encoder."""

    @classmethod
    def read(cls, folder: Path) -> RunMetrics:
        """The metrics of a run so far.

        Raises:
            FileNotFoundError: there are none.
            ValueError: no row is complete.
        """
        path = RunFolder(folder).progress_file
        rows = read_csv(path).dropna(subset="time/total_timesteps")
        if rows.empty:
            raise ValueError(f"metrics must have a row, got {path} without any")
        curves: dict[Measure, Curve] = {}
        for measure, column in MEASURES.items():
            if column in rows and len(known := rows.dropna(subset=column)):
                steps = known["time/total_timesteps"].astype(float).to_numpy(int)
                curves[measure] = Curve(steps, known[column].to_numpy(float))
        clock = rows[["time/total_timesteps", "time/time_elapsed"]].to_numpy(float)
        encoder_steps = rows.reindex(columns=["time/total_timesteps", _ENCODER_STEP]).dropna().to_numpy(float)
        return cls(int(clock[-1, 0]), float(clock[-1, 1]), clock, curves, encoder_steps)

    def seconds_at(self, steps: np.ndarray) -> np.ndarray:
        """Wall time [N] at environment steps [N], interpolated linearly between rows."""
        return np.interp(steps, *self.clock.T)
