"""The returns that a run folder's metrics hold, and the numbers that an experiment takes from them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np

from dgvf_agents.runs.folder import RunFolder

Measure = Literal["evaluation", "training"]
"""`evaluation`: episodes in the world as evaluation has it; `training`: the last 100 training episodes."""

MEASURES: dict[Measure, str] = {"evaluation": "eval/mean_reward", "training": "rollout/ep_rew_mean"}
"""Each measure's column of metrics."""

FINAL_FRACTION = 0.1
"""The last part of training, whose mean return is the final return."""


@final
@dataclass(frozen=True)
class Curve:
    """Mean returns along a run."""

    steps: np.ndarray
    """[N] environment steps, ascending."""
    returns: np.ndarray
    """[N] mean return at each."""

    def final_return(self, total: int) -> float:
        """Mean over the last tenth of `total` steps; the last value if none lies there."""
        late = self.returns[self.steps > (1 - FINAL_FRACTION) * total]
        return float(np.mean(late)) if len(late) else float(self.returns[-1])

    def average_return(self, total: int) -> float:
        """Area under the curve from 0 to `total` steps over `total`; it is constant before the first and after the
        last value.
        """
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
    curves: dict[Measure, Curve]
    """By measure; a measure without any value is left out."""

    @classmethod
    def read(cls, folder: Path) -> RunMetrics:
        """The metrics of a run so far.

        Raises:
            FileNotFoundError: there are none.
            ValueError: no row is complete.
        """
        path = RunFolder(folder).progress_file
        with path.open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("time/total_timesteps")]
        if not rows:
            raise ValueError(f"metrics must have a row, got {path} without any")
        return cls(
            total_steps=int(float(rows[-1]["time/total_timesteps"])),
            seconds=float(rows[-1]["time/time_elapsed"]),
            curves={measure: curve for measure in MEASURES if (curve := _curve(rows, measure)) is not None},
        )


def _curve(rows: list[dict[str, str]], measure: Measure) -> Curve | None:
    column = MEASURES[measure]
    rows = [row for row in rows if row.get(column)]
    if not rows:
        return None
    return Curve(
        steps=np.array([int(float(row["time/total_timesteps"])) for row in rows]),
        returns=np.array([float(row[column]) for row in rows]),
    )
