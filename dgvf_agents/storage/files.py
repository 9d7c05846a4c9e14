"""Files of strangers are looked at before they are read; ours are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

Source = str | Path | BinaryIO
"""A path, or a file open in binary."""

MAX_BYTES = 8 << 30
"""Maximum size of a file that is read."""


class DamagedFileError(ValueError):
    """A file is not what was written: cut short, altered, or something else altogether."""


@contextmanager
def damage_in(member: str) -> Iterator[None]:
    """Name the member of a file whose contents turn out to be malformed.

    Raises:
        DamagedFileError: in place of whatever malformed contents raise.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except Exception as error:  # of JSON, zlib, PyTorch, Gymnasium's spaces, recursion: there is no list of them
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{member} is malformed: {reason:.500}") from error


@contextmanager
def naming(source: Source, what: str = "loaded as a model") -> Iterator[None]:
    """Name the file in errors about its contents."""
    try:
        yield
    except DamagedFileError as error:
        raise DamagedFileError(f"{source} cannot be {what}: {error}") from error


@contextmanager
def contents_of(path: Path, max_bytes: int) -> Iterator[bytes]:
    """The contents of a file, to be parsed within this context.

    Raises:
        DamagedFileError: see `read_bytes`, or in place of whatever parsing raises. The message names the file.
        FileNotFoundError: there is no such file.
    """
    with naming(path, "read"):
        contents = read_bytes(path, max_bytes)
        with damage_in("its content"):
            yield contents


def read_bytes(source: Source, max_bytes: int = MAX_BYTES) -> bytes:
    """The contents of a path, with or without its ending `.zip`, or of an open file from its beginning.

    A path is looked at first: a pipe would wait for ever, a device never end.

    Raises:
        DamagedFileError: it is not a regular file, or larger than `max_bytes`.
        FileNotFoundError: there is no such file.
    """
    if isinstance(source, str | Path):
        path = Path(source if Path(source).exists() else with_ending(source))
        _check_plausible(path.stat(), max_bytes)  # opening alone may do something to a device
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            _check_plausible(status, max_bytes)
            return file.read(status.st_size)
    source.seek(0)
    contents = source.read(max_bytes + 1)
    if len(contents) > max_bytes:
        raise DamagedFileError(f"it must take at most {max_bytes} bytes")
    return contents


def with_ending(target: Any) -> Any:
    """A path with the ending `.zip` if it has none, as Stable-Baselines3 has it; an open file as it is."""
    path = Path(target) if isinstance(target, str) else target
    return path.with_name(f"{path.name}.zip") if isinstance(path, Path) and not path.suffix else path


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_plausible(status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError("it must be a regular file, not a folder, a pipe or a device")
    if status.st_size > max_bytes:
        raise DamagedFileError(f"it must take at most {max_bytes} bytes, it takes {status.st_size}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to beside `path`, which it replaces at the end; `path` stays as it was if writing fails.

    The file and its folder have reached the disk when it is done: not even a power failure leaves half a file.

    Args:
        path: the file; its folder is made. Its ending is kept, since writers tell formats by it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield unfinished
        _reach_disk(unfinished)
        os.replace(unfinished, path)
        _reach_disk(path.parent)
    except OSError as error:  # that of a full disk names no file
        error.filename = error.filename or (str(path) if error.errno else None)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def write_bytes(target: Source, contents: bytes) -> None:
    """Write to a path, as `replacing` does, or to an open file.

    Args:
        target: a path, or a file open for writing.
        contents: what to write.
    """
    if isinstance(target, str | Path):
        with replacing(Path(target)) as unfinished:
            unfinished.write_bytes(contents)
    else:
        target.write(contents)


def _reach_disk(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders, and orders renames by itself
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
