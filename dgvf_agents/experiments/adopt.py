"""Adoption of runs that plain `dgvf train` finished as cells of an experiment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from dgvf_agents.experiments.metrics import RunMetrics
from dgvf_agents.experiments.runs import (
    Cell,
    differing_fields,
    is_complete,
    lock_file,
    mark_file,
    read_config,
    read_mark,
    write_mark,
)
from dgvf_agents.train.config import TrainConfig


def adopt(cells: Sequence[Cell], folders: Sequence[Path]) -> list[Cell]:
    """Adopt finished runs that have the configurations of unfinished cells.

    A run's files are linked into the cell's folder (copied where the file system cannot), and the run stays where it
    is. Fields on recording may differ, except for the number of actors; see `RECORDING_FIELDS`. Runs without evaluation
    are skipped if training has other rewards or starts than evaluation.

    Args:
        cells: those wanted.
        folders: run folders, or folders with run folders anywhere below.

    Returns:
        The cells that were adopted.

    Raises:
        FileNotFoundError: a folder does not exist.
        ValueError: a cell's folder holds a run of another configuration, or another process trains it.
    """
    found = [run for folder in folders for run in _complete_runs(folder)]
    adopted = []
    for cell in cells:
        run = next((run for run, config in found if _fits(config, cell.config)), None)
        if run is not None and not cell.is_finished:
            cell.folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(lock_file(cell.folder), timeout=0):
                    _link(run, cell)
            except Timeout:
                raise ValueError(
                    f"runs must not be adopted as cells that another process trains, got {cell.folder}"
                ) from None
            adopted.append(cell)
    return adopted


def _fits(config: TrainConfig, wanted: TrainConfig) -> bool:
    """A run may be resumed with other actors, but experiments compare their numbers."""
    return config.actors == wanted.actors and not differing_fields(config, wanted)


def _complete_runs(folder: Path) -> Iterator[tuple[Path, TrainConfig]]:
    """Finished runs of this version that an analysis can use."""
    if not folder.is_dir():
        raise FileNotFoundError(f"adopt must name folders, got {folder}")
    for run in sorted(file.parent for file in folder.rglob("config.json")):
        try:
            config = read_config(run)
        except ValueError:  # of another version
            continue
        same_world = config.env_kwargs == config.evaluation_kwargs
        if is_complete(run) and (same_world or "evaluation" in RunMetrics.read(run).curves):
            yield run, config


def _link(run: Path, cell: Cell) -> None:
    """Replace an unfinished run in the cell's folder, atomically: the new one is first built under another name."""
    unfinished = cell.folder.with_name(f".{cell.folder.name}.tmp")  # no other process uses it: the caller has the lock
    shutil.rmtree(unfinished, ignore_errors=True)
    hidden = shutil.ignore_patterns(".*")  # locks, and partial files of killed processes
    shutil.copytree(run, unfinished, ignore=hidden, copy_function=_link_or_copy)
    if not mark_file(unfinished).is_file():
        write_mark(unfinished, read_mark(run))
    shutil.rmtree(cell.folder, ignore_errors=True)
    unfinished.rename(cell.folder)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
