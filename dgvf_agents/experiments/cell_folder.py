"""How far the run in a cell's folder has come.

A sweep marks a finished run with `finished.json`, written last and at once. A folder that plain `dgvf train` finished
has no mark, but holds metrics and a checkpoint of the last step.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dgvf_agents.experiments.run_metrics import RunMetrics
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.storage.atomic import replacing

RECORDING_FIELDS = (
    "device",
    "threads",
    "checkpoint_every",
    "checkpoints_kept",
    "log_every",
    "evaluate_every",
    "evaluation_episodes",
)
"""Fields that say where a run is made and how it is recorded, not what is learned."""


class CellState(enum.Enum):
    """How far a run has come."""

    MISSING = enum.auto()
    UNFINISHED = enum.auto()
    FINISHED = enum.auto()


@final
@dataclass(frozen=True)
class FinishedMark:
    """What is known of a finished run's making."""

    wall_seconds: float
    """How long it trained."""
    command: str | None = None
    """What was typed; None for a run handed in."""
    versions: dict[str, str] | None = None
    """Of Python and packages; None for a run handed in."""
    hardware: dict[str, Any] | None = None
    """Processor and cores; None for a run handed in."""


def lock_file(folder: Path) -> Path:
    """Held by the process that trains a cell or takes a run over as it; beside the folder, which may not be there."""
    return folder.with_name(f"{folder.name}.lock")


def mark_file(folder: Path) -> Path:
    """Where the mark of a finished run lies."""
    return folder / "finished.json"


def write_mark(folder: Path, mark: FinishedMark) -> None:
    """Mark a run as finished, atomically."""
    with replacing(mark_file(folder)) as unfinished:
        unfinished.write_text(json.dumps(dataclasses.asdict(mark), indent=1) + "\n")


def read_mark(folder: Path) -> FinishedMark:
    """The mark of a finished run; made from its metrics where it was handed in."""
    if mark_file(folder).is_file():
        return FinishedMark(**json.loads(mark_file(folder).read_text()))
    return FinishedMark(RunMetrics.read(folder).seconds)


def state_of(folder: Path, wanted: TrainConfig) -> CellState:
    """How far the run in a folder has come.

    Args:
        folder: the folder; need not exist.
        wanted: the configuration that the run there must have.

    Raises:
        ValueError: the folder holds a run of another configuration.
    """
    run = RunFolder(folder)
    if not run.config_file.is_file():
        return CellState.MISSING
    differences = differing_fields(read_config(folder), wanted)
    if differences:
        raise ValueError(
            f"the run in {folder} must have the configuration of its cell, got another {', '.join(differences)}; "
            "choose another --out or remove the folder"
        )
    return CellState.FINISHED if mark_file(folder).is_file() or is_complete(folder) else CellState.UNFINISHED


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run.

    Raises:
        ValueError: it does not have the fields of this version.
    """
    try:
        return RunFolder(folder).read_config()
    except ValueError as error:
        raise ValueError(f"the run in {folder} must have a configuration of this version: {error}") from error


def differing_fields(found: TrainConfig, wanted: TrainConfig) -> list[str]:
    """`field (found, not wanted)` of each field that decides what is learned and differs."""
    return found.differences(wanted, apart_from=RECORDING_FIELDS)


def is_complete(folder: Path) -> bool:
    """Whether metrics and a whole checkpoint reach the configured steps, mark or not."""
    run = RunFolder(folder)
    if not (run.config_file.is_file() and run.progress_file.is_file()):
        return False
    steps = read_config(folder).steps
    return run.is_finished() and RunMetrics.read(folder).total_steps >= steps
