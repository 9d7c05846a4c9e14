"""How questions and representation came about: the same maps from a run's checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.agent_maps import agent_in, agent_maps, question_maps
from dgvf_agents.atlas.ranking import correlations
from dgvf_agents.atlas.representation import Representation, describe, effective_rank
from dgvf_agents.atlas.states import WorldStates
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.runs.train import build


@final
class Moment(NamedTuple):
    """A run after some of its training."""

    steps: int
    """Environment steps; 0 is an untrained agent."""
    cumulants: np.ndarray | None
    """`[S, D]`; `None` where the agent has no questions."""
    representation: Representation
    """Of its encoder."""

    @property
    def variation(self) -> float:
        """Standard deviation of the cumulants over the states, mean over questions; NaN without questions."""
        return float("nan") if self.cumulants is None else variation(self.cumulants)

    @property
    def distinct(self) -> float:
        """As how many questions they vary; NaN without any."""
        return float("nan") if self.cumulants is None else effective_number(self.cumulants)

    def likeness(self, last: Moment) -> float:
        """Mean correlation of each question's cumulant with what it becomes; NaN without questions."""
        if self.cumulants is None or last.cumulants is None:
            return float("nan")
        return likeness(self.cumulants, last.cumulants)


def variation(cumulants: np.ndarray) -> float:
    """Standard deviation of cumulants `[S, D]` over the states, mean over questions."""
    return float(cumulants.std(axis=0).mean())


def effective_number(cumulants: np.ndarray) -> float:
    """As how many questions cumulants `[S, D]` vary.

    exp(-Σ p_i log p_i) for the shares p_i of the variance over states that lie along each principal map.
    """
    deviation = cumulants - cumulants.mean(axis=0)
    return effective_rank(deviation.T @ deviation)  # its singular values are variances


def likeness(cumulants: np.ndarray, last: np.ndarray) -> float:
    """Mean correlation over the states of each question's cumulant `[S, D]` with what it becomes."""
    return float(np.diag(correlations(cumulants, last)).mean())


def evolution(folder: RunFolder, states: WorldStates, most: int = 8) -> list[Moment]:
    """A fresh agent of the run's configuration, and up to `most` checkpoints at even distances, the latest among them.

    Args:
        folder: the run.
        states: the states of its world.
        most: how many checkpoints ≥ 1.

    Raises:
        FileNotFoundError: the run has no checkpoint.
        ValueError: `most` < 1.
    """
    if most < 1:
        raise ValueError(f"checkpoints must be >= 1, got {most!r}")
    models = ((int(file.stem), agent_in(file)) for file in some_checkpoints(folder, most))
    untrained = build(dataclasses.replace(folder.read_config(), device="cpu", mixed_precision=False))
    return [_moment(0, untrained, states), *(_moment(steps, model, states) for steps, model in models)]


def some_checkpoints(folder: RunFolder, most: int) -> list[Path]:
    """At most `most` of a run's checkpoints at even distances, the latest that is whole always.

    Raises:
        FileNotFoundError: the run has no checkpoint.
    """
    latest = folder.latest_checkpoint()
    files = [file for file in folder.checkpoints() if file <= latest]
    places = np.linspace(len(files) - 1, 0, min(most, len(files))).round().astype(int)
    return [files[place] for place in places[::-1]]


def _moment(steps: int, model: DGVFA2C, states: WorldStates) -> Moment:
    cumulants = question_maps(model, states).cumulants if isinstance(model.task, GVFTask) else None
    return Moment(steps, cumulants, describe(agent_maps(model, states).features, states))
