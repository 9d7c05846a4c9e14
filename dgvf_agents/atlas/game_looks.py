"""The same recorded frames, shown to a run's earlier checkpoints and to other agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.agent_maps import agent_in, agent_on, questions_about
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.atlas.evolution import effective_number, likeness, some_checkpoints, variation
from dgvf_agents.atlas.representation import effective_rank
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.runs.folder import RunFolder


@final
class Look(NamedTuple):
    """What an agent makes of the frames."""

    label: str
    steps: int
    """Environment steps that it was trained for."""
    variation: float | None
    """Standard deviation of its cumulants over the moments, mean over questions; `None` without questions."""
    distinct: float | None
    """Effective number of questions."""
    likeness: float | None
    """Mean correlation of each question's cumulant with what it has become at last; `None` for other agents."""
    effective_rank: float
    """Of the features at all moments."""


def own_looks(folder: RunFolder, episode: Episode, last: np.ndarray, most: int) -> list[Look]:
    """A run's checkpoints at even distances, the latest among them.

    Args:
        folder: the run.
        episode: the frames.
        last: `[T + 1, D]`: the latest checkpoint's cumulants.
        most: how many checkpoints ≥ 1.
    """
    return [_look(file, episode, "this run", last) for file in some_checkpoints(folder, most)]


def other_looks(runs: Sequence[Path], episode: Episode, env_id: str) -> list[Look]:
    """The latest checkpoints of other runs.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: a run is in another environment.
    """
    found = []
    for path in runs:
        folder = RunFolder.existing(path)
        config = folder.read_config()
        if config.env != env_id:
            raise ValueError(f"beside must be runs on {env_id}, got {path} on {config.env}")
        found.append(_look(folder.latest_checkpoint(), episode, f"{config.task}, seed {config.seed}", None))
    return found


def _look(file: Path, episode: Episode, label: str, last: np.ndarray | None) -> Look:
    model = agent_in(file)
    rank = effective_rank(agent_on(model, episode.observations[episode.first :]).features)
    if not isinstance(model.task, GVFTask):
        return Look(label, int(file.stem), None, None, None, rank)
    cumulants = questions_about(model, episode.observations[episode.first :]).cumulants
    alike = None if last is None else likeness(cumulants, last[episode.first :])
    return Look(label, int(file.stem), variation(cumulants), effective_number(cumulants), alike, rank)
