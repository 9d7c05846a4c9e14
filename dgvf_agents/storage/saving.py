"""What of an agent goes into its file, and how it comes back out of ours or Stable-Baselines3's."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import platform
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, final

import cloudpickle
import numpy as np
import stable_baselines3
import torch
from torch.utils._pytree import tree_map_only

from dgvf_agents.sb3.schedules import value_at
from dgvf_agents.storage.model_file import (
    DamagedFileError,
    ModelFile,
    is_stable_baselines3,
    read_bytes,
)
from dgvf_agents.storage.serialization import CannotEncodeError, Encoder, decode, path_of
from dgvf_agents.storage.training_state import get_training_state

if TYPE_CHECKING:
    from dgvf_agents.a2c import DGVFA2C

Source = str | pathlib.Path | BinaryIO

NEEDED = (
    "policy_class",
    "policy_kwargs",
    "observation_space",
    "action_space",
    "learning_rate",
    "auxiliary_task",
    "inner_optimizer",
)
"""Attributes that a model cannot be built without."""


SCHEDULES = ("learning_rate", "ent_coef", "meta_learning_rate")
"""Attributes that may be functions of the remaining progress; their last value stands in for one that is pickled."""


@final
@dataclass(frozen=True)
class StoredModel:
    """What a file gave."""

    attributes: dict[str, Any]
    """Of the model, by name."""
    parameters: dict[str, Any]
    """State dicts by the name of the object they belong to."""
    training: dict[str, Any] | None
    """Where training stood; `None` where the file does not say."""
    versions: str
    """What the model was saved with, for people to read."""


_OPTIMIZERS = "learner_state.optimizers"


def stored_file(
    model: DGVFA2C, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
) -> ModelFile:
    """The file of a model.

    Args:
        model: the model.
        exclude: attributes to leave out besides those that always are.
        include: attributes to keep nevertheless.

    Raises:
        TypeError: an attribute is of a kind that not even pickle can write; the message names it.
    """
    objects, _ = model._get_torch_save_params()
    left_out = {*(exclude or ()), *model._excluded_save_params()} - set(include or ())
    left_out |= {name.split(".")[0] for name in objects}
    encoder, attributes, pickled, kinds = Encoder(), {}, {}, {}
    for name, value in model.__dict__.items():
        if name in left_out:
            continue
        try:
            attributes[name] = encoder.encode(value, name)
        except CannotEncodeError:
            pickled[name] = _pickled(name, value)
            kinds[name] = path_of(type(value))
    for name in SCHEDULES:
        if name in pickled:
            schedule = model.lr_schedule if name == "learning_rate" else getattr(model, name)
            attributes[name] = value_at(schedule, model._current_progress_remaining)
    parameters = model.get_parameters()
    document = {
        "versions": _versions(),
        "attributes": attributes,
        "pickled": kinds,
        "parameters": {name: encoder.encode(state, name) for name, state in parameters.items()},
        "training": encoder.encode(get_training_state(model), "training"),
    }
    return ModelFile(document, encoder.tensors, pickled)


def networks_only(file: ModelFile) -> ModelFile:
    """The same model without what training needs; it predicts, and asks its questions, as before."""
    document = {**file.document, "training": None}
    document["parameters"] = {k: v for k, v in document["parameters"].items() if k != _OPTIMIZERS}
    dropped = ("training.", f"{_OPTIMIZERS}.")
    tensors = {name: tensor for name, tensor in file.tensors.items() if not name.startswith(dropped)}
    return ModelFile(document, tensors, file.pickled)


def read_stored(source: Source, custom_objects: dict[str, Any] | None, trusted: bool) -> StoredModel:
    """What is in a file of ours or of Stable-Baselines3's.

    Args:
        source: a path, with or without the ending `.zip`, or an open file.
        custom_objects: attributes to take in place of those stored.
        trusted: whether pickles may be loaded, which lets whoever wrote the file run any code.

    Raises:
        DamagedFileError: the file is neither.
        ValueError: it holds an attribute that the model needs and that only pickle can restore.
    """
    if custom_objects is not None and not isinstance(custom_objects, dict):
        raise ValueError(f"custom_objects must be a dict or None, got {custom_objects!r}")
    contents = read_bytes(source)
    custom = custom_objects or {}
    try:
        if is_stable_baselines3(contents):
            return _read_stable_baselines3(contents, custom, trusted)
        return _read_own(ModelFile.from_bytes(contents), custom, trusted)
    except DamagedFileError as error:
        raise DamagedFileError(f"{source} cannot be loaded as a model: {error}") from error


def read_parameters(source: Source) -> dict[str, Any]:
    """The state dicts in a file of ours or of Stable-Baselines3's; nothing in it is run.

    Ours is read without any unpickling. Stable-Baselines3's is PyTorch's format, a pickle, which goes through
    `torch.load(weights_only=True)`: its unpickler builds tensors and plain containers and refuses everything else.

    Raises:
        DamagedFileError: the file is neither.
    """
    contents = read_bytes(source)
    try:
        if is_stable_baselines3(contents):
            return _weights(contents)
        file = ModelFile.from_bytes(contents)
    except DamagedFileError as error:
        raise DamagedFileError(f"{source} cannot be loaded as a model: {error}") from error
    return decode(file.document["parameters"], file.tensors)


def on_device(tree: Any, device: torch.device) -> Any:
    """The same with its tensors on a device."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)


def _read_own(file: ModelFile, custom: dict[str, Any], trusted: bool) -> StoredModel:
    document = file.document
    attributes = {
        name: custom[name] if name in custom else decode(value, file.tensors)
        for name, value in document["attributes"].items()
    }
    attributes |= _unpickled(file.pickled, document["pickled"], attributes, custom, trusted)
    parameters = decode(document["parameters"], file.tensors)
    training = None if document["training"] is None else decode(document["training"], file.tensors)
    return StoredModel(attributes, parameters, training, document["versions"])


def _read_stable_baselines3(contents: bytes, custom: dict[str, Any], trusted: bool) -> StoredModel:
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        data = json.loads(archive.read("data"))
        info = "system_info.txt"
        versions = archive.read(info).decode() if info in archive.namelist() else "unknown"
    attributes, pickled, kinds = {}, {}, {}
    for name, value in data.items():
        if name in custom:
            attributes[name] = custom[name]
        elif isinstance(value, dict) and ":serialized:" in value:
            pickled[name] = base64.b64decode(value[":serialized:"])
            kinds[name] = str(value.get(":type:"))
        else:
            attributes[name] = value
    attributes |= _unpickled(pickled, kinds, attributes, custom, trusted)
    return StoredModel(attributes, _weights(contents), None, versions)


def _weights(contents: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        names = [name for name in archive.namelist() if name.endswith(".pth") and name != "pytorch_variables.pth"]
        return {
            name.removesuffix(".pth"): torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)
            for name in names
        }


def _unpickled(
    pickled: dict[str, bytes], kinds: dict[str, str], known: dict[str, Any], custom: dict[str, Any], trusted: bool
) -> dict[str, Any]:
    """The attributes that only pickle holds, as far as they may be had; says what cannot."""
    restored, missing = {}, []
    for name, contents in pickled.items():
        if name in custom:
            restored[name] = custom[name]
        elif trusted:
            try:
                restored[name] = cloudpickle.loads(contents)
            except Exception as error:
                warnings.warn(f"{name} could not be unpickled: {error!r}; custom_objects= can replace it", stacklevel=6)
                missing.append(name)
        else:
            missing.append(name)
    _complain([name for name in missing if name in NEEDED and name not in known], kinds)
    _warn([name for name in missing if name not in NEEDED or name in known], kinds, known)
    return restored


_ADVICE = "trusted=True restores it if you trust whoever wrote the file, since that can run any code of theirs"


def _complain(names: list[str], kinds: dict[str, str]) -> None:
    if names:
        raise ValueError(
            f"the file holds {_described(names, kinds)} as a pickle, which is not loaded: give it in custom_objects=, "
            f"for instance custom_objects={{{names[0]!r}: ...}}; {_ADVICE}. To take the weights alone, make a model "
            "with a policy of the same class and call set_parameters(path), where A2C wrote the file with "
            "exact_match=False, which runs nothing in it"
        )


def _warn(names: list[str], kinds: dict[str, str], known: dict[str, Any]) -> None:
    schedules = [name for name in names if name in SCHEDULES and name in known]
    others = [name for name in names if name not in schedules]
    for name in schedules:
        warnings.warn(
            f"{name} was a function, which the file holds as a pickle that is not loaded: it is its last value, "
            f"{known[name]:g}, from here on; custom_objects={{{name!r}: ...}} can replace it, and {_ADVICE}",
            stacklevel=7,
        )
    if others:
        warnings.warn(
            f"not restored: {_described(others, kinds)}, which the file holds as a pickle; custom_objects= can replace "
            f"it, and {_ADVICE}",
            stacklevel=7,
        )


def _described(names: list[str], kinds: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kinds.get(name, 'unknown')})" for name in names)


def _pickled(name: str, value: Any) -> bytes:
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(f"{name} cannot be saved: {error}; save(..., exclude=[{name!r}]) leaves it out") from error


def _versions() -> str:
    modules = {"torch": torch, "stable_baselines3": stable_baselines3, "numpy": np}
    return ", ".join([f"python {platform.python_version()}", *(f"{n} {m.__version__}" for n, m in modules.items())])
