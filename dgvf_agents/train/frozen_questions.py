"""Questions that a finished run discovered, frozen, for another run to be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.core.question_networks import principal_components, principal_eta
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.core.types import Params
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.folder import RunFolder, located

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
    _check(found, config, folder)
    model = load_model(found, folder.latest_checkpoint(), device="cpu")
    eta = {name: value.clone() for name, value in model.learner.eta.items()}
    if config.principal_questions is None:
        return eta
    return principal_eta(eta, principal_components(experienced_cumulants(model, found), config.principal_questions))


def _check(found: TrainConfig, config: TrainConfig, folder: RunFolder) -> None:
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
