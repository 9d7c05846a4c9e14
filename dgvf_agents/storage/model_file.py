"""The file of a model: a zip archive of JSON and tensors that knows when it is damaged.

model.json             everything but tensors
tensors.safetensors    the tensors, by name
pickled/NAME           what only pickle can hold; not looked at without trust

The archive's comment holds the SHA-256 of every byte before it, so a file that was cut short or altered by accident
is told from a good one before anything is read. Tensors are in safetensors' format and not in PyTorch's, whose reader
is an unpickler even with `weights_only=True`, one that has run code before (CVE-2025-32434).
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, final

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from dgvf_agents.storage.atomic import write_whole
from dgvf_agents.storage.format_3 import upgraded
from dgvf_agents.storage.serialization import check_references

FORMAT = 4
"""The version of the layout and of what attributes mean."""

MAX_EXPANSION = 20
"""A file that Stable-Baselines3 wrote may be compressed, to this fraction of its contents at most. Ours are not."""

_DOCUMENT, _TENSORS, _PICKLED = "model.json", "tensors.safetensors", "pickled/"
_ROUNDED = "half_precision"
"""Names of the tensors in single precision that the file holds in half; left out where there are none."""
_COMMENT = b"dgvf sha256 "
_DIGEST_LENGTH = 64


class DamagedFileError(ValueError):
    """A file is not what was written: cut short, altered, or something else altogether."""


_MALFORMED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,  # of PyTorch, and of recursion that is too deep
    ArithmeticError,
    AssertionError,  # of Gymnasium's spaces
)


@contextmanager
def damage_in(name: str) -> Iterator[None]:
    """Name the part of a file whose contents turn out to be malformed.

    Raises:
        DamagedFileError: in place of what malformed contents raise.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except _MALFORMED as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{name} in the file is malformed: {reason}") from error


@final
@dataclass(frozen=True)
class ModelFile:
    """What is in a file."""

    document: dict[str, Any]
    """What JSON holds."""
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
        """What `to_bytes` was called on.

        Raises:
            DamagedFileError: the bytes are not what `to_bytes` gave.
        """
        whole, digest = contents[:-_DIGEST_LENGTH], contents[-_DIGEST_LENGTH:]
        if not whole.endswith(_COMMENT) or hashlib.sha256(whole).hexdigest().encode() != digest:
            raise DamagedFileError("its checksum is not that of its contents")
        try:
            with zipfile.ZipFile(io.BytesIO(contents)) as archive:
                _check_stored(archive, len(contents))
                document = json.loads(archive.read(_DOCUMENT))
                tensors = safetensors.torch.load(archive.read(_TENSORS))
                names = [name for name in archive.namelist() if name.startswith(_PICKLED)]
                pickled = {name.removeprefix(_PICKLED): archive.read(name) for name in names}
        except DamagedFileError:
            raise
        except READ_ERRORS as error:
            raise DamagedFileError(f"it is not a model file: {error or type(error).__name__}") from error
        return cls(_current(document, tensors), tensors, pickled)


READ_ERRORS = (
    zipfile.BadZipFile,
    struct.error,
    zlib.error,
    EOFError,
    KeyError,
    ValueError,  # of JSON or of Unicode
    OverflowError,
    RuntimeError,  # of nested JSON, of members with unknown flags, of encrypted ones
    safetensors.SafetensorError,
)
"""What reading a damaged archive, or what is in it, raises."""


def _check_stored(archive: zipfile.ZipFile, size: int) -> None:
    """Raise unless members are uncompressed and disjoint: then reading them takes no more memory than the file."""
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED:
            raise DamagedFileError(f"its member {member.filename} must not be compressed")
    if sum(member.file_size for member in archive.infolist()) > size:
        raise DamagedFileError("its members overlap")


def check_expansion(archive: zipfile.ZipFile, size: int) -> None:
    """
    Raises:
        DamagedFileError: members take more than `MAX_EXPANSION` times the file's size.
    """
    expanded = sum(member.file_size for member in archive.infolist())
    if expanded > MAX_EXPANSION * size:
        raise DamagedFileError(
            f"its contents must take at most {MAX_EXPANSION} times its size, they take {expanded} bytes"
        )


def _current(document: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The document in this version's format."""
    found = document.pop("format", None) if isinstance(document, dict) else None
    if found not in (3, FORMAT):
        raise DamagedFileError(f"its format must be {FORMAT}, which this version reads, got {found!r}")
    try:
        current = upgraded(document, tensors) if found == 3 else document
        check_references(current)
        _restore_precision(current, tensors)
        return current
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(f"it is malformed: {error or type(error).__name__}") from error


def rounded(file: ModelFile, names: list[str]) -> ModelFile:
    """The file with tensors in half precision, for a smaller one. Reading it gives them in single precision again.

    Args:
        file: the file.
        names: of the tensors, which are float32.
    """
    halves = {name: file.tensors[name].half() for name in names}
    return ModelFile({**file.document, _ROUNDED: names}, {**file.tensors, **halves}, file.pickled)


def _restore_precision(document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    for name in document.pop(_ROUNDED, []):
        if tensors[name].dtype is not torch.float16:
            raise ValueError(f"tensor {name!r} must be float16, got {tensors[name].dtype}")
        tensors[name] = tensors[name].float()


def is_stable_baselines3(contents: bytes) -> bool:
    """Whether these are the bytes of a zip archive as Stable-Baselines3's `save` writes it."""
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            return "data" in archive.namelist() and _DOCUMENT not in archive.namelist()
    except READ_ERRORS:
        return False


def damage_of(path: pathlib.Path) -> str | None:
    """What is wrong with a model's file; `None` where it is whole. Stable-Baselines3's have no checksum to tell by."""
    contents = path.read_bytes()
    if is_stable_baselines3(contents):
        return None
    try:
        ModelFile.from_bytes(contents)
    except DamagedFileError as error:
        return str(error)
    return None


def write_bytes(target: str | pathlib.Path | BinaryIO, contents: bytes) -> None:
    """Write to a path, whole or not at all, or to an open file.

    Args:
        target: a path, which gets the ending `.zip` where it has none, or a file open for writing.
        contents: what to write.
    """
    if isinstance(target, str | pathlib.Path):
        write_whole(with_ending(pathlib.Path(target)), contents)
    else:
        target.write(contents)


def read_bytes(source: str | pathlib.Path | BinaryIO) -> bytes:
    """The contents of a path, with or without its ending `.zip`, or of an open file from its beginning.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if isinstance(source, str | pathlib.Path):
        path = pathlib.Path(source)
        return (path if path.is_file() else with_ending(path)).read_bytes()
    source.seek(0)
    return source.read()


def with_ending(path: pathlib.Path) -> pathlib.Path:
    """The path with the ending `.zip` where it has none, as Stable-Baselines3 has it."""
    return path if path.suffix else path.with_name(f"{path.name}.zip")
