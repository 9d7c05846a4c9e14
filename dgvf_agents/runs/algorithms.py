"""The algorithm of a training run."""

from __future__ import annotations

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.runs.config import Algorithm, TrainConfig
from dgvf_agents.synchronous import SynchronousAlgorithm

_CLASSES: dict[Algorithm, type[DGVFA2C] | type[DGVFImpala]] = {"a2c": DGVFA2C, "impala": DGVFImpala}


def algorithm_of(config: TrainConfig) -> type[SynchronousAlgorithm]:
    """The class of a configuration's models."""
    return _CLASSES[config.algorithm]
