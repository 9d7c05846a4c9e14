"""The algorithm of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.arguments import question_network
from dgvf_agents.agents.persistence import constructor_arguments
from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.core.question_networks import PrincipalQuestions
from dgvf_agents.core.tasks import RandomGVFs
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.options import Algorithm
from dgvf_agents.train.config import TrainConfig

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
