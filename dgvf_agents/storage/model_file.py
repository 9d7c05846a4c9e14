"""The file of a model: a zip archive of JSON and tensors that knows when it is damaged.

model.json             everything but tensors
tensors.safetensors    the tensors, by name
pickled/NAME           what only pickle can hold; not looked at without trust

The archive's comment holds the SHA-256 of every byte before it, so a file that was cut short or altered by accident
is told from a good one before anything is read. A folder for a model hub has the same in two files, `config.json` and
`model.safetensors`; the first holds the second's SHA-256. Nothing is pickled there.

Tensors are in safetensors' format and not in PyTorch's, whose reader is an unpickler even with `weights_only=True`, one
that has run code before (CVE-2025-32434).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import cloudpickle
import numpy as np
import safetensors.torch
import stable_baselines3
import torch
from torch import Tensor

from dgvf_agents.core.types import Params
from dgvf_agents.learner import LearnerState
from dgvf_agents.storage.files import DamagedFileError, Source, damage_in, read_bytes, write_bytes
from dgvf_agents.storage.state import TrainingState, without_adam_settings
from dgvf_agents.storage.values import CannotEncodeError, Encoder, Vocabulary, decode, described, fitted, path_of

FORMAT = 5
"""The version of the layout and of what attributes mean."""

MAX_EXPANSION = 20
"""A file that Stable-Baselines3 wrote may be compressed, to this fraction of its contents at most. Ours are not."""
MAX_MEMBERS = 10_000
"""Members of an archive, at most, with the members of archives in it."""
MAX_VALUES = 1 << 20
"""Values in JSON, at most."""

_DOCUMENT, _TENSORS, _PICKLED = "model.json", "tensors.safetensors", "pickled/"
_HUB_DOCUMENT, _HUB_TENSORS = "config.json", "model.safetensors"
_COMMENT = b"dgvf sha256 "
_DIGEST_LENGTH = 64
_PARTS: dict[str, Any] = {
    "versions": str,
    "attributes": dict,
    "pickled": dict,
    "learner": dict,
    "statistics": dict,
    "training": dict | None,
}
"""Template of a document."""


@final
@dataclass(frozen=True)
class ModelFile:
    """The contents of a file."""

    document: dict[str, Any]
    """The JSON document."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """On the CPU."""
    pickled: dict[str, bytes] = field(default_factory=dict)
    """By name, as bytes."""

    def to_bytes(self) -> bytes:
        """The file; the same for the same contents."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            members = {_DOCUMENT: json.dumps({"format": FORMAT, **self.document}, indent=1).encode()}
            members[_TENSORS] = safetensors.torch.save(self.tensors)
            members |= {f"{_PICKLED}{name}": contents for name, contents in self.pickled.items()}
            for name, contents in members.items():
                archive.writestr(zipfile.ZipInfo(name), contents)
            archive.comment = _COMMENT + bytes(_DIGEST_LENGTH)
        whole = buffer.getvalue()[:-_DIGEST_LENGTH]
        return whole + hashlib.sha256(whole).hexdigest().encode()

    @classmethod
    def from_bytes(cls, contents: bytes) -> ModelFile:
        """The file that `to_bytes` was called on.

        Raises:
            DamagedFileError: the bytes are not what `to_bytes` gave.
        """
        whole, digest = contents[:-_DIGEST_LENGTH], contents[-_DIGEST_LENGTH:]
        if not whole.endswith(_COMMENT) or hashlib.sha256(whole).hexdigest().encode() != digest:
            raise DamagedFileError("its checksum does not match its contents")
        with _archive(contents) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise DamagedFileError(f"its member {member.filename} must not be compressed")
            if sum(member.file_size for member in archive.infolist()) > len(contents):
                raise DamagedFileError("its members overlap")
            document = _document(_DOCUMENT, archive.read(_DOCUMENT))
            tensors = safetensors.torch.load(archive.read(_TENSORS))
            names = [name for name in archive.namelist() if name.startswith(_PICKLED)]
            pickled = {name.removeprefix(_PICKLED): archive.read(name) for name in names}
        return cls(document, tensors, pickled)

    def write_folder(self, folder: Path) -> None:
        """Write the folder for a model hub, without what only pickle can hold."""
        tensors = safetensors.torch.save(self.tensors, {"format": "pt"})
        document = {"format": FORMAT, "sha256": _digest(self.document, tensors), **self.document}
        write_bytes(folder / _HUB_TENSORS, tensors)
        write_bytes(folder / _HUB_DOCUMENT, (json.dumps(document, indent=1) + "\n").encode())

    @classmethod
    def from_folder(cls, folder: Path) -> ModelFile:
        """The model in a folder that `write_folder` wrote.

        Raises:
            DamagedFileError: a file is missing or not what `write_folder` wrote.
        """
        for name in (_HUB_DOCUMENT, _HUB_TENSORS):
            if not (folder / name).is_file():
                raise DamagedFileError(f"the folder must have {_HUB_DOCUMENT} and {_HUB_TENSORS}, got no {name}")
        document = _document(_HUB_DOCUMENT, read_bytes(folder / _HUB_DOCUMENT))
        tensors = read_bytes(folder / _HUB_TENSORS)
        if document.pop("sha256", None) != _digest(document, tensors):
            raise DamagedFileError(f"{_HUB_DOCUMENT} and {_HUB_TENSORS} must have the checksum that is in the former")
        with damage_in(_HUB_TENSORS):
            return cls(document, safetensors.torch.load(tensors), dict.fromkeys(document.get("pickled", ()), b""))

    @property
    def is_complete(self) -> bool:
        """Whether training can continue from it."""
        return self.document.get("training") is not None


def _digest(document: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode() + tensors).hexdigest()


@contextmanager
def _archive(contents: bytes) -> Iterator[zipfile.ZipFile]:
    """
    Raises:
        DamagedFileError: it is no archive, or one of too many members, or reading it failed.
    """
    if contents.count(b"PK\1\2") > MAX_MEMBERS:  # each entry of the directory has this signature
        raise DamagedFileError(f"it must have at most {MAX_MEMBERS} members")
    with damage_in("its archive"), zipfile.ZipFile(io.BytesIO(contents)) as archive:
        yield archive


def _parsed(text: bytes) -> Any:
    if sum(text.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise DamagedFileError(f"its JSON must have at most {MAX_VALUES} values")
    return json.loads(text)


def _document(name: str, text: bytes) -> dict[str, Any]:
    """The JSON document of a model."""
    with damage_in(name):
        document: Any = _parsed(text)
        found = document.pop("format", None) if isinstance(document, dict) else None
        if found != FORMAT:
            raise DamagedFileError(f"its format must be {FORMAT}, which this version reads, got {found!r}")
    return document


def opened(source: Source) -> ModelFile | bytes:
    """The model in a file or in a folder for a model hub; the contents of a file that Stable-Baselines3 wrote.

    Args:
        source: a path, with or without the ending `.zip`; a folder, see `ModelFile.write_folder`; or an open file.

    Raises:
        DamagedFileError: it is not as it was written.
    """
    if isinstance(source, str | Path) and Path(source).is_dir():
        return ModelFile.from_folder(Path(source))
    contents = read_bytes(source)
    return contents if _is_stable_baselines3(contents) else ModelFile.from_bytes(contents)


def read_model_file(path: Path) -> ModelFile:
    """
    Raises:
        DamagedFileError: the file is not as `ModelFile.to_bytes` gave it.
    """
    return ModelFile.from_bytes(read_bytes(path))


def model_file(
    attributes: dict[str, Any],
    learner: LearnerState,
    statistics: Params,
    training: TrainingState,
    tables: dict[str, Any],
    vocabulary: Vocabulary,
) -> ModelFile:
    """The file of a model.

    Args:
        attributes: of the model, by name.
        learner: what `DiscoveryLearner.get_state` returned.
        statistics: running statistics of the encoder, by name.
        training: where training stands, apart from the learner.
        tables: of schedules, which stand in for those that only pickle can hold.
        vocabulary: the classes that files have names for.

    Raises:
        TypeError: an attribute is of a kind that not even pickle can write; the message names it.
    """
    encoder = Encoder(vocabulary)
    encoded: dict[str, Any] = {}
    pickled: dict[str, bytes] = {}
    kinds: dict[str, str] = {}
    for name, value in attributes.items():
        try:
            encoded[name] = encoder.encode(value, name)
        except CannotEncodeError:
            pickled[name], kinds[name] = _pickled(name, value), path_of(type(value))
    encoded |= {name: encoder.encode(table, name) for name, table in tables.items() if name in pickled}
    document = {
        "versions": _versions(),
        "attributes": encoded,
        "pickled": kinds,
        "learner": encoder.encode(without_adam_settings(learner), "learner"),
        "statistics": encoder.encode(statistics, "statistics"),
        "training": encoder.encode(training, "training"),
    }
    return ModelFile(document, encoder.tensors, pickled)


def networks_only(file: ModelFile) -> ModelFile:
    """The same model without what only training needs."""
    names = ("statistics", "meta_optimizer", "unroll")
    document = {**file.document, "learner": {**file.document["learner"], **dict.fromkeys(names)}, "training": None}
    dropped = ("training.", *(f"learner.{name}." for name in names))
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


@final
class StoredModel(NamedTuple):
    """A file's contents, before they are compared with a model."""

    attributes: dict[str, Any]
    """Of the model, by name."""
    versions: str
    """Versions that the model was saved with, for information only."""
    learner: Any
    """Fields of `LearnerState`."""
    statistics: Any
    """Running statistics of the encoder, by name."""
    training: Any
    """Fields of `TrainingState`; `None` without them."""


def stored_model(
    file: ModelFile | bytes,
    vocabulary: Vocabulary,
    needed: Collection[str],
    custom: dict[str, Any] | None,
    trusted: bool = False,
) -> StoredModel:
    """A file's contents, without any unpickling, unless it is trusted.

    Args:
        file: as `opened` returned it.
        vocabulary: the classes that files may name.
        needed: attributes that a model cannot be built without.
        custom: attributes to take in place of those stored; `None` leaves all attributes out.
        trusted: whether pickles may be loaded, which lets whoever wrote the file run any code.

    Raises:
        DamagedFileError: the file is not as it was written.
        ValueError: Stable-Baselines3 wrote it, or it holds an attribute that the model needs and that only pickle can
            restore.
    """
    if isinstance(file, bytes):
        raise ValueError(
            f"the file was written by Stable-Baselines3, which pickles all but the weights. {_WEIGHTS_ALONE}"
        )
    document, tensors, decoded = fitted("its document", file.document, _PARTS), dict(file.tensors), {}
    for name in ("learner", "statistics", "training"):
        with damage_in(name):
            decoded[name] = decode(document[name], tensors, vocabulary)
    attributes: dict[str, Any] = {}
    if custom is None:
        return StoredModel(attributes, document["versions"], **decoded)
    kinds = document["pickled"]
    if set(kinds) != set(file.pickled):
        raise DamagedFileError(f"pickled must be {described(file.pickled)} in it, got {described(kinds)}")
    for name, value in document["attributes"].items():
        with damage_in(name):
            attributes[name] = decode(value, tensors, vocabulary)
    taken = [name for name in kinds if trusted and file.pickled[name]]  # folders for hubs have none
    left = [name for name in kinds if name not in custom and name not in taken]
    advice = f"; {_ADVICE}" if any(file.pickled.values()) else ""  # folders for hubs have no pickles
    if missing := [name for name in left if name in needed and name not in attributes]:
        raise ValueError(
            f"the file holds {missing[0]} ({kinds[missing[0]]}) as a pickle, which is not loaded: give it in "
            f"custom_objects=, for instance custom_objects={{{missing[0]!r}: ...}}{advice}. {_WEIGHTS_ALONE}"
        )
    if left:
        instead = {name: f"; {attributes[name]!r:.60} from here on" if name in attributes else "" for name in left}
        names = ", ".join(f"{name} ({kinds[name]}{instead[name]})" for name in left)
        warnings.warn(
            f"not restored from pickles: {names}; custom_objects= can replace it, and {_ADVICE}", stacklevel=4
        )
    for name in taken:
        with damage_in(name):
            attributes[name] = None if name in custom else cloudpickle.loads(file.pickled[name])
    attributes |= {name: value for name, value in custom.items() if name in attributes or name in kinds}
    return StoredModel(attributes, document["versions"], **decoded)


def _is_stable_baselines3(contents: bytes) -> bool:
    """Whether these are the bytes of a zip archive as Stable-Baselines3's `save` writes it."""
    try:
        with _archive(contents) as archive:
            return "data" in archive.namelist() and _DOCUMENT not in archive.namelist()
    except DamagedFileError:
        return False


def stable_baselines3_weights(contents: bytes) -> dict[str, Any]:
    """State dicts in a file that Stable-Baselines3 wrote, by the name of the object they belong to.

    Weights are in PyTorch's format, a pickle, which goes through `torch.load(weights_only=True)`: its unpickler builds
    tensors and plain containers and refuses all else.
    """
    with _expandable(contents) as archive:
        names = [name for name in archive.namelist() if name.endswith(".pth") and name != "pytorch_variables.pth"]
        return {name.removesuffix(".pth"): _state_dict(name, archive.read(name)) for name in names}


def _state_dict(name: str, contents: bytes) -> Any:
    """A state dict in PyTorch's format, itself a zip archive that may be compressed."""
    if zipfile.is_zipfile(io.BytesIO(contents)):
        with _expandable(contents):
            pass
    with damage_in(name):
        return torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)


@contextmanager
def _expandable(contents: bytes) -> Iterator[zipfile.ZipFile]:
    """An archive whose members may be compressed, but not beyond measure."""
    with _archive(contents) as archive:
        expanded = sum(member.file_size for member in archive.infolist())
        if expanded > MAX_EXPANSION * len(contents):
            limit = f"at most {MAX_EXPANSION} times its size"
            raise DamagedFileError(f"its contents must take {limit}, they take {expanded} bytes")
        yield archive


_WEIGHTS_ALONE = (
    "To take the weights alone, make a model with a policy of the same class and call set_parameters(path), with "
    "exact_match=False where Stable-Baselines3 wrote the file, which runs nothing in it"
)
_ADVICE = "trusted=True restores it if you trust whoever wrote the file, since that can run any code of theirs"
