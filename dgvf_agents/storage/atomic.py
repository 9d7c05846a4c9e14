"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to beside `path`, which takes its place at the end; `path` stays as it was where writing fails.

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
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, contents: bytes) -> None:
    """Write a file, as `replacing` does."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(contents)


def _reach_disk(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders, and orders renames by itself
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
