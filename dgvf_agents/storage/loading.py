"""What comes out of a model's file, ours or Stable-Baselines3's."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, final

import cloudpickle
import torch

from dgvf_agents.agents.arguments import SCHEDULES
from dgvf_agents.core.types import Params
from dgvf_agents.learner_state import LearnerState
from dgvf_agents.storage.model_file import (
    READ_ERRORS,
    DamagedFileError,
    ModelFile,
    check_expansion,
    damage_in,
    is_stable_baselines3,
    read_bytes,
)
from dgvf_agents.storage.serialization import decode
from dgvf_agents.storage.validation import check_finite, check_names, check_type

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


@final
@dataclass(frozen=True)
class StoredModel:
    """What a file holds."""

    attributes: dict[str, Any]
    """Of the model, by name."""
    versions: str
    """What the model was saved with, for people to read."""
    learner: LearnerState | None = None
    """`None` in files of Stable-Baselines3."""
    statistics: Params = field(default_factory=dict)
    """Running statistics of the encoder, by name."""
    training: dict[str, Any] | None = None
    """Where training stood; `None` where the file does not say."""
    parameters: dict[str, Any] | None = None
    """State dicts by the name of the object they belong to, in files of Stable-Baselines3."""


def read_stored(source: Source, custom_objects: dict[str, Any] | None = None, trusted: bool = False) -> StoredModel:
    """Read a file of ours or of Stable-Baselines3's. No code in it is run, unless `trusted`.

    Ours is read without any unpickling. Stable-Baselines3's weights are in PyTorch's format, a pickle, which goes
    through `torch.load(weights_only=True)`: its unpickler builds tensors and plain containers and refuses all else.

    Args:
        source: a path, with or without the ending `.zip`, or an open file.
        custom_objects: attributes to take in place of those stored.
        trusted: whether pickles may be loaded, which lets whoever wrote the file run any code.

    Raises:
        DamagedFileError: the file is neither, or not as it was written.
        ValueError: it holds an attribute that the model needs and that only pickle can restore.
    """
    if custom_objects is not None and not isinstance(custom_objects, dict):
        raise ValueError(f"custom_objects must be a dict or None, got {custom_objects!r}")
    contents = read_bytes(source)
    custom = custom_objects or {}
    with _naming(source):
        if is_stable_baselines3(contents):
            return _read_stable_baselines3(contents, custom, trusted)
        return _read_own(ModelFile.from_bytes(contents), custom, trusted)


_PARTS: dict[str, Any] = {
    "attributes": dict,
    "pickled": dict,
    "learner": dict,
    "statistics": dict,
    "training": dict | None,
}
"""What a document holds, as JSON."""


def read_learned(source: Source) -> StoredModel:
    """What the model in a file has learned, without its attributes. No code in it is run.

    Raises:
        DamagedFileError: the file is in neither format, or not as it was written.
    """
    contents = read_bytes(source)
    with _naming(source):
        if is_stable_baselines3(contents):
            return StoredModel({}, "", parameters=_weights(contents))
        file = ModelFile.from_bytes(contents)
        return _read_own(ModelFile({**file.document, "attributes": {}, "pickled": {}}, file.tensors), {}, False)


@contextmanager
def _naming(source: Source) -> Iterator[None]:
    """Name the file in errors about its contents."""
    try:
        yield
    except DamagedFileError as error:
        raise DamagedFileError(f"{source} cannot be loaded as a model: {error}") from error


def _read_own(file: ModelFile, custom: dict[str, Any], trusted: bool) -> StoredModel:
    document = file.document
    for name, kind in _PARTS.items():
        if name not in document or not isinstance(document[name], kind):
            raise DamagedFileError(f"{name} must be an object by name in it, got {document.get(name)!r:.40}")
    with damage_in("pickled"):
        check_names("pickled", document["pickled"], file.pickled)
    attributes = {
        name: custom[name] if name in custom else _decoded(name, value, file)
        for name, value in document["attributes"].items()
    }
    attributes |= _unpickled(file.pickled, document["pickled"], attributes, custom, trusted)
    learner, statistics, training = (
        _decoded(name, document[name], file) for name in ("learner", "statistics", "training")
    )
    if not isinstance(learner, LearnerState):
        raise DamagedFileError(f"learner must be a LearnerState, got a {type(learner).__name__}")
    with damage_in("learner"):
        for name, tree in (("theta", learner.theta), ("eta", learner.eta), ("statistics", statistics)):
            check_finite(name, tree)
    return StoredModel(attributes, str(document.get("versions")), learner, statistics, training)


def _decoded(name: str, value: Any, file: ModelFile) -> Any:
    with damage_in(name):
        return decode(value, file.tensors)


def _read_stable_baselines3(contents: bytes, custom: dict[str, Any], trusted: bool) -> StoredModel:
    with damage_in("data"), _expandable(contents) as archive:
        data = json.loads(archive.read("data"))
        info = "system_info.txt"
        versions = archive.read(info).decode() if info in archive.namelist() else "unknown"
        check_type("data", data, dict)
    attributes, pickled, kinds = {}, {}, {}
    for name, value in data.items():
        if name in custom:
            attributes[name] = custom[name]
        elif isinstance(value, dict) and ":serialized:" in value:
            with damage_in(name):
                pickled[name] = base64.b64decode(value[":serialized:"])
            kinds[name] = str(value.get(":type:"))
        else:
            attributes[name] = value
    attributes |= _unpickled(pickled, kinds, attributes, custom, trusted)
    return StoredModel(attributes, versions, parameters=_weights(contents))


def _weights(contents: bytes) -> dict[str, Any]:
    with _expandable(contents) as archive:
        names = [name for name in archive.namelist() if name.endswith(".pth") and name != "pytorch_variables.pth"]
        return {name.removesuffix(".pth"): _state_dict(name, archive.read(name)) for name in names}


def _state_dict(name: str, contents: bytes) -> Any:
    """A state dict in PyTorch's format, itself a zip archive that may be compressed."""
    if zipfile.is_zipfile(io.BytesIO(contents)):
        with _expandable(contents):
            pass
    try:
        return torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)
    except Exception as error:  # of its unpickler, of all kinds
        raise DamagedFileError(f"{name} in the file is malformed: {error}") from error


@contextmanager
def _expandable(contents: bytes) -> Iterator[zipfile.ZipFile]:
    """An archive whose members may be decompressed."""
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            check_expansion(archive, len(contents))
            yield archive
    except READ_ERRORS as error:
        if isinstance(error, DamagedFileError):
            raise
        raise DamagedFileError(f"it is not a model file: {error}") from error


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
