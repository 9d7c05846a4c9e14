"""Models of a run, its checkpoints, and the questions that it takes from another run.

Checkpoints are written atomically, the last few complete; damaged ones are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.arguments import question_network
from dgvf_agents.agents.persistence import constructor_arguments
from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.core.question_networks import PrincipalQuestions, principal_components, principal_eta
from dgvf_agents.core.tasks import GVFTask, RandomGVFs
from dgvf_agents.core.types import Params
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.options import Algorithm
from dgvf_agents.storage.files import write_bytes
from dgvf_agents.storage.model_file import networks_only
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.folder import RunFolder, located

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


def check_spaces(model: DiscoveryAlgorithm, env: gym.Env | VecEnv, folder: RunFolder) -> None:
    """Check that a run's model acts in the environment of its configuration.

    Raises:
        ValueError: their spaces differ.
    """
    for space in ("observation_space", "action_space"):
        expected, found = getattr(model, space), getattr(env, space)
        if expected != found:
            raise ValueError(
                f"the environment in {folder.config_file} must have the {space} of the run's checkpoint, "
                f"{expected}, got {found}"
            )


class NothingToResumeError(ValueError):
    """A run has checkpoints, but none that training can continue from."""


def write_checkpoint(folder: RunFolder, model: DiscoveryAlgorithm, kept: int) -> Path:
    """Write the model as the latest checkpoint, and reduce all but the last `kept` checkpoints to their networks.

    If writing fails, because of a full disk or a killed process, the earlier checkpoints do not change.

    Raises:
        NotFiniteError: training has diverged; nothing is written.
        OSError: writing failed.
    """
    path = folder.checkpoint_file(model.num_timesteps)
    model.save(path)
    reduce_older(folder, kept, path)
    return path


def reduce_older(folder: RunFolder, kept: int, written: Path | None = None) -> None:
    """Reduce all complete checkpoints but the last `kept`, and but the one just `written`, to their networks.

    Files are read from the latest back to the first one that is reduced already, so that a write does not read all.
    """
    complete = 0
    for path, file in folder.undamaged(tell=False):
        if file.is_complete:
            complete += 1
            if complete > kept and path != written:  # stale files of more steps may exist
                write_bytes(path, networks_only(file).to_bytes())
        elif written is None or path < written:
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
    left = {path.name for path in folder.checkpoints()}
    if not left:
        return None
    for path, file in folder.undamaged():
        if file.is_complete:
            return load_model(folder.read_config(), path, make_env(), device, **changes)
        left.remove(path.name)
    raise NothingToResumeError(
        f"run must have a checkpoint that training can continue from, got {folder.path}, where "
        f"{' and '.join(sorted(left)) or 'none'} are damaged and all others hold networks only: restart with another "
        "--out, or delete the folder"
    )


def complete_checkpoints(folder: RunFolder) -> list[Path]:
    """The checkpoints that training can continue from, oldest first.

    Older checkpoints hold networks only. Damaged ones are not complete either, but are never deleted.
    """
    return sorted(path for path, file in folder.undamaged(tell=False) if file.is_complete)


# --- questions of another run -----------------------------------------------------------------------------------------

_SEED = 30_000
"""Of the experience that principal components are computed from; far from the seeds used in training."""
_STEPS = 1_000
"""Steps of that experience in each environment."""
_BATCH = 1_024
"""Observations at once."""
_SAME = ("policy", "questions", "question_discount", "question_encoder")
"""Fields that a run must share with the one whose questions it takes."""


def frozen_eta(config: TrainConfig, path: Path) -> Params | None:
    """η of the finished run that `questions_from` names, or of its principal questions; `None` if none is named.

    Args:
        config: the configuration of the run to be trained.
        path: its folder, which a relative `questions_from` starts at.

    Raises:
        FileNotFoundError: there is no run.
        ValueError: the run is not finished, has no questions, or others than `config` can take.
    """
    if config.questions_from is None:
        return None
    folder = RunFolder.existing(located(Path(config.questions_from), path).resolve())
    found = folder.read_config()
    _check_source(found, config, folder)
    model = load_model(found, folder.latest_checkpoint(), device="cpu")
    eta = {name: value.clone() for name, value in model.learner.eta.items()}
    if config.principal_questions is None:
        return eta
    return principal_eta(eta, principal_components(experienced_cumulants(model, found), config.principal_questions))


def _check_source(found: TrainConfig, config: TrainConfig, folder: RunFolder) -> None:
    if not folder.is_finished():
        raise ValueError(f"questions_from must be a finished run, got {folder.path}")
    if found.task not in ("discovered", "random") or found.principal_questions is not None:
        raise ValueError(f"questions_from must be a run of discovered or random questions, got {folder.path}")
    for name in _SAME:
        if getattr(found, name) != getattr(config, name):
            values = f"{getattr(found, name)!r}, not {getattr(config, name)!r}"
            raise ValueError(f"questions_from must be a run with the same {name}, got {folder.path} with {values}")


def experienced_cumulants(model: DiscoveryAlgorithm, config: TrainConfig) -> Tensor:
    """Cumulants `[N, D]` of what a trained agent experiences in its training environments.

    Args:
        model: the agent, on the CPU.
        config: the configuration of its run.

    Raises:
        ValueError: its observations are dictionaries.
    """
    if isinstance(model.observation_space, gym.spaces.Dict):
        raise ValueError(
            f"principal_questions must be None where observations are dictionaries, got {model.observation_space}"
        )
    task: Any = model.task
    assert isinstance(task, GVFTask)
    parts = torch.from_numpy(_arrivals(model, config)).split(_BATCH)
    with torch.no_grad():
        return torch.cat([task.network.ask(model.learner.eta, part[None])[0][0] for part in parts])


def _arrivals(model: DiscoveryAlgorithm, config: TrainConfig) -> np.ndarray:
    """The observations `[N, *obs]` that steps of the agent arrive at, as its networks read them."""
    env = DiscoveryAlgorithm._wrap_env(training_environments(config, _SEED))
    arrivals = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        observations: Any = env.reset()
        for _ in range(_STEPS):
            actions, _ = model.predict(observations)
            observations, _, dones, infos = env.step(actions)
            arrived = observations.copy()
            for i in np.flatnonzero(dones):
                arrived[i] = infos[i]["terminal_observation"]
            arrivals.append(arrived)
    env.close()
    return np.concatenate(arrivals)
