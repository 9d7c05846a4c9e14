"""What goes into a model's file."""

from __future__ import annotations

import platform
from typing import Any

import cloudpickle
import numpy as np
import stable_baselines3
import torch

from dgvf_agents.core.types import Params
from dgvf_agents.learner_state import LearnerState
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.storage.serialization import CannotEncodeError, Encoder, path_of


def stored_file(
    attributes: dict[str, Any],
    learner: LearnerState,
    statistics: Params,
    training: dict[str, Any],
    last_values: dict[str, float],
) -> ModelFile:
    """The file of a model.

    Args:
        attributes: of the model, by name.
        learner: what `DiscoveryLearner.get_state` returned.
        statistics: running statistics of the encoder, by name.
        training: where training stands, apart from the learner.
        last_values: of schedules, which stand in for those that only pickle can hold.

    Raises:
        TypeError: an attribute is of a kind that not even pickle can write; the message names it.
    """
    encoder = Encoder()
    encoded: dict[str, Any] = {}
    pickled: dict[str, bytes] = {}
    kinds: dict[str, str] = {}
    for name, value in attributes.items():
        try:
            encoded[name] = encoder.encode(value, name)
        except CannotEncodeError:
            pickled[name], kinds[name] = _pickled(name, value), path_of(type(value))
    encoded |= {name: value for name, value in last_values.items() if name in pickled}
    document = {
        "versions": _versions(),
        "attributes": encoded,
        "pickled": kinds,
        "learner": encoder.encode(learner, "learner"),
        "statistics": encoder.encode(statistics, "statistics"),
        "training": encoder.encode(training, "training"),
    }
    return ModelFile(document, encoder.tensors, pickled)


_TRAINING_ONLY = ("statistics", "meta_optimizer", "unroll")
"""Fields of `LearnerState` that prediction does without."""


def networks_only(file: ModelFile) -> ModelFile:
    """The same model without what only training needs."""
    learner = file.document["learner"]
    fields = {**learner["attributes"], **dict.fromkeys(_TRAINING_ONLY)}
    document = {**file.document, "learner": {**learner, "attributes": fields}, "training": None}
    dropped = ("training.", *(f"learner.{name}." for name in _TRAINING_ONLY))
    tensors = {name: tensor for name, tensor in file.tensors.items() if not name.startswith(dropped)}
    return ModelFile(document, tensors, file.pickled)


def _pickled(name: str, value: Any) -> bytes:
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(f"{name} cannot be saved: {error}; save(..., exclude=[{name!r}]) leaves it out") from error


def _versions() -> str:
    modules = {"torch": torch, "stable_baselines3": stable_baselines3, "numpy": np}
    return ", ".join([f"python {platform.python_version()}", *(f"{n} {m.__version__}" for n, m in modules.items())])
