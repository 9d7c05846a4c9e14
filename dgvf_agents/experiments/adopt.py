"""Runs that plain `dgvf train` finished, taken over as cells."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from dgvf_agents.experiments.cell import Cell
from dgvf_agents.experiments.cell_folder import (
    CellState,
    differing_fields,
    is_complete,
    lock_file,
    mark_file,
    read_config,
    read_mark,
    state_of,
    write_mark,
)
from dgvf_agents.experiments.run_metrics import RunMetrics
from dgvf_agents.runs.config import TrainConfig


def adopt(cells: Sequence[Cell], places: Sequence[Path]) -> list[Cell]:
    """Take over finished runs whose configurations are those of cells without a finished run.

    A run's files are linked into the cell's folder (copied where the file system cannot): the run stays where it was.
    What is recorded how often may differ; see `RECORDING_FIELDS`. Runs without evaluation are passed over where
    training has other rewards or starts than evaluation.

    Args:
        cells: those wanted.
        places: run folders, or folders with run folders anywhere below.

    Returns:
        The cells that are finished now and were not.

    Raises:
        FileNotFoundError: a place is not there.
        ValueError: a cell's folder holds a run of another configuration, or another process trains it.
    """
    found = [(folder, read_config(folder)) for place in places for folder in _complete_runs(place)]
    adopted = []
    for cell in cells:
        folder = next((folder for folder, config in found if not differing_fields(config, cell.config)), None)
        if folder is not None and state_of(cell.folder, cell.config) is not CellState.FINISHED:
            cell.folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(lock_file(cell.folder), timeout=0):
                    _take_over(folder, cell)
            except Timeout:
                raise ValueError(
                    f"runs must not be adopted as cells that another process trains, got {cell.folder}"
                ) from None
            adopted.append(cell)
    return adopted


def _complete_runs(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        raise FileNotFoundError(f"adopt must name folders, got {place}")
    for file in sorted(place.rglob("config.json")):
        if _is_readable(file.parent) and is_complete(file.parent) and _has_returns(file.parent):
            yield file.parent


def _is_readable(folder: Path) -> bool:
    """Whether it is a run of this version; others may lie beside those that are wanted."""
    try:
        return isinstance(read_config(folder), TrainConfig)
    except ValueError:
        return False


def _has_returns(folder: Path) -> bool:
    """Whether an analysis can use it: runs older than evaluation on the way hold returns of training only."""
    config = read_config(folder)
    return "evaluation" in RunMetrics.read(folder).curves or config.env_kwargs == config.evaluation_kwargs


def _take_over(folder: Path, cell: Cell) -> None:
    """Whole or not at all: under another name first. An unfinished run in the cell's folder gives way."""
    unfinished = cell.folder.with_name(f".{cell.folder.name}.tmp")  # one at a time: the caller holds the cell's lock
    shutil.rmtree(unfinished, ignore_errors=True)
    passing = shutil.ignore_patterns(".*")  # locks, and what killed processes had begun to write
    shutil.copytree(folder, unfinished, ignore=passing, copy_function=_link_or_copy)
    if not mark_file(unfinished).is_file():
        write_mark(unfinished, read_mark(folder))
    shutil.rmtree(cell.folder, ignore_errors=True)
    unfinished.rename(cell.folder)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
