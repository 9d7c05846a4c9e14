"""Models of a run, and its checkpoints: written atomically, the last few complete; damaged ones are skipped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.arguments import question_network
from dgvf_agents.agents.persistence import constructor_arguments
from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.core.metrics import check_finite
from dgvf_agents.core.question_networks import PrincipalQuestions
from dgvf_agents.core.tasks import RandomGVFs
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.options import Algorithm
from dgvf_agents.storage.files import DamagedFileError, write_bytes
from dgvf_agents.storage.model_file import networks_only, read_model_file
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder

_CLASSES: dict[Algorithm, type[DGVFA2C] | type[DGVFImpala] | type[DGVFPPO]] = {
    "a2c": DGVFA2C,
    "impala": DGVFImpala,
    "ppo": DGVFPPO,
}


def algorithm_of(config: TrainConfig) -> type[DiscoveryAlgorithm]:
    """The class of a configuration's models."""
    return _CLASSES[config.algorithm]


@final
@dataclass(frozen=True)
class PrincipalTask:
    """Builds the task of answering principal questions; η comes with the questions or from a checkpoint."""

    count: int
    """k."""

    def __call__(self, model: DiscoveryAlgorithm) -> RandomGVFs:
        """The task of a model, whose `questions` is D."""
        network = question_network(model.policy, model.questions, False, mixed_precision=model.mixed_precision)
        return RandomGVFs(PrincipalQuestions(network, self.count), model.question_discount)


def task_of(config: TrainConfig) -> str | PrincipalTask:
    """The auxiliary task of a configuration, as algorithms take it."""
    return config.task if config.principal_questions is None else PrincipalTask(config.principal_questions)


def load_model(
    config: TrainConfig, file: Path, env: Any = None, device: torch.device | str = "cpu", **changes: Any
) -> DiscoveryAlgorithm:
    """The model of a run from one of its checkpoints.

    Args:
        config: the run's configuration.
        file: the checkpoint.
        env: to continue training in; see `DGVFA2C.load`.
        device: of networks and updates.
        changes: attributes to change, of those that the agent has.
    """
    kind = algorithm_of(config)
    known = constructor_arguments(kind)
    changes = {name: value for name, value in changes.items() if name in known or name == "force_reset"}
    task = task_of(config)
    custom = None if isinstance(task, str) else {"auxiliary_task": task}  # files hold no functions
    return kind.load(file, env, device=device, custom_objects=custom, **changes)


class NothingToResumeError(ValueError):
    """A run has checkpoints, but none that training can continue from."""


def write_checkpoint(folder: RunFolder, model: DiscoveryAlgorithm, kept: int) -> Path:
    """Write the model as the latest checkpoint, and reduce all but the last `kept` checkpoints to their networks.

    If writing fails, because of a full disk or a killed process, the earlier checkpoints do not change.

    Raises:
        NotFiniteError: training has diverged; nothing is written.
        OSError: writing failed.
    """
    check_finite("parameters", model.get_parameters(), model.learner.updates)
    path = folder.checkpoint_file(model.num_timesteps)
    model.save(path)
    reduce_older(folder, kept, path)
    return path


def reduce_older(folder: RunFolder, kept: int, written: Path | None = None) -> None:
    """Reduce all complete checkpoints but the last `kept`, and but the one just `written`, to their networks.

    Files are read from the latest back to the first one that is reduced already, so that a write does not read all.
    """
    complete = 0
    for path in reversed(folder.checkpoints()):
        training = _can_train(path)
        complete += training is True
        if training and complete > kept and path != written:  # stale files of more steps may exist
            _reduce(path)
        if training is False and (written is None or path < written):
            return


def load_checkpoint(
    folder: RunFolder, make_env: Callable[[], Any], device: torch.device | str = "cpu", **changes: Any
) -> DiscoveryAlgorithm | None:
    """Load the latest checkpoint that training can continue from.

    Damaged files are skipped with a warning.

    Args:
        folder: the run folder.
        make_env: makes the environment of the model, or what its actors make theirs with.
        device: device of the networks and updates; may differ from the one that wrote the checkpoint.
        changes: attributes to change.

    Returns:
        the model, or `None` if the run has no checkpoint yet.

    Raises:
        NothingToResumeError: the run has checkpoints, but none that training can continue from; the message names the
            damaged ones.
    """
    damaged = []
    for path in reversed(folder.checkpoints()):
        try:
            file = read_model_file(path)
        except DamagedFileError as error:
            warnings.warn(f"checkpoint {path} is skipped: {error}", stacklevel=2)
            damaged.append(path.name)
            continue
        if file.is_complete:
            return load_model(folder.read_config(), path, make_env(), device, **changes)
    if folder.checkpoints():
        raise NothingToResumeError(
            f"run must have a checkpoint that training can continue from, got {folder.path}, where "
            f"{' and '.join(sorted(damaged)) or 'none'} are damaged and all others hold networks only: restart with "
            "another --out, or delete the folder"
        )
    return None


def complete_checkpoints(folder: RunFolder) -> list[Path]:
    """The checkpoints that training can continue from, oldest first.

    Older checkpoints hold networks only. Damaged ones are not complete either, but are never deleted.
    """
    return [path for path in folder.checkpoints() if _can_train(path)]


def _can_train(path: Path) -> bool | None:
    """Whether training can continue from a checkpoint; `None` if it is damaged."""
    try:
        return read_model_file(path).is_complete
    except DamagedFileError:
        return None


def _reduce(path: Path) -> None:
    write_bytes(path, networks_only(read_model_file(path)).to_bytes())
