"""A run's checkpoints: written whole or not at all, the last few complete, damaged ones passed over."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.rollout.checks import check_parameters
from dgvf_agents.storage.model_file import DamagedFileError, ModelFile, write_bytes
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.storage.saving import networks_only

if TYPE_CHECKING:
    from collections.abc import Callable


class NothingToResumeError(ValueError):
    """A run has checkpoints, and none that training can go on from."""


def write_checkpoint(folder: RunFolder, model: DGVFA2C, kept: int) -> Path:
    """Write the model as the latest checkpoint, and take from older ones than the last `kept` what training needs.

    Whatever goes wrong, a full disk or the end of the process, the checkpoints before this one stay as they were.

    Raises:
        NotFiniteError: training has diverged; nothing is written.
        OSError: the disk cannot take it.
    """
    check_parameters(model)
    path = folder.checkpoint_file(model.num_timesteps)
    model.save(path)
    reduce_older(folder, kept, path)
    return path


def reduce_older(folder: RunFolder, kept: int, written: Path | None = None) -> None:
    """Take from all but the last `kept` complete checkpoints, and the one just `written`, what only training needs."""
    for older in complete_checkpoints(folder)[:-kept]:
        if older != written:  # files of more steps may be left of something else
            _reduce(older)


def load_checkpoint(
    folder: RunFolder, make_env: Callable[[], VecEnv], device: torch.device | str = "cpu"
) -> DGVFA2C | None:
    """The model of the latest checkpoint that training can go on from, in an environment made for it.

    A damaged file is passed over with a warning.

    Args:
        folder: of the run.
        make_env: makes the environment.
        device: for networks and updates, whatever the checkpoint was written on.

    Returns:
        the model, or `None` where the run has no checkpoint yet.

    Raises:
        NothingToResumeError: it has checkpoints, and none that training can go on from; the message names the damaged.
    """
    damaged = []
    for path in reversed(folder.checkpoints()):
        try:
            file = ModelFile.from_bytes(path.read_bytes())
        except DamagedFileError as error:
            warnings.warn(f"checkpoint {path} is skipped: {error}", stacklevel=2)
            damaged.append(path.name)
            continue
        if file.document["training"] is not None:
            return DGVFA2C.load(path, make_env(), device=device)
    if folder.checkpoints():
        raise NothingToResumeError(
            f"run must have a checkpoint that training can go on from, got {folder.path}, where "
            f"{' and '.join(sorted(damaged)) or 'none'} are damaged and all others hold networks only: begin anew with "
            "another --out, or delete the folder"
        )
    return None


def complete_checkpoints(folder: RunFolder) -> list[Path]:
    """The checkpoints that hold all of the model, oldest first: not the older ones, which keep networks only.

    Nor damaged ones, which are of no use, but not ours to throw away.
    """
    return [path for path in folder.checkpoints() if _is_complete(path)]


def _is_complete(path: Path) -> bool:
    try:
        return ModelFile.from_bytes(path.read_bytes()).document["training"] is not None
    except DamagedFileError:
        return False


def _reduce(path: Path) -> None:
    write_bytes(path, networks_only(ModelFile.from_bytes(path.read_bytes())).to_bytes())
