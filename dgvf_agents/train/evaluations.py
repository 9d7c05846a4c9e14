"""Returns and lengths of all evaluation episodes, as a compressed CSV file that resumed runs append to.

The file is CSV to `gzip` and pandas. Each evaluation is a gzip member of its own: it can be appended, and a process
that is killed while it writes one leaves all others intact.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from dgvf_agents.storage.atomic import write_whole

COLUMNS = ("steps", "episode", "return", "length")


@final
class Evaluation(NamedTuple):
    """The episodes of one evaluation."""

    steps: int
    """Environment steps of training."""
    returns: np.ndarray
    """`[N]`: undiscounted returns; scores on Atari."""
    lengths: np.ndarray
    """`[N]` integer: steps."""


@final
class EvaluationLog:
    """Appends evaluations to a file."""

    def __init__(self, path: Path, steps: int = 0) -> None:
        """
        Args:
            path: the file. Evaluations after `steps` are removed.
            steps: environment steps that the run continues from.
        """
        self._path = path
        kept = [found for found in read_evaluations(path) if found.steps <= steps]
        self._is_empty = not kept
        if kept:
            write_whole(path, b"".join(_member(found, header=i == 0) for i, found in enumerate(kept)))
        else:
            path.unlink(missing_ok=True)

    def append(self, evaluation: Evaluation) -> None:
        """Write an evaluation; it has reached the disk when this returns."""
        with self._path.open("ab") as file:
            file.write(_member(evaluation, header=self._is_empty))
            file.flush()
            os.fsync(file.fileno())
        self._is_empty = False


def read_evaluations(path: Path) -> list[Evaluation]:
    """The evaluations in a file, in their order; none if it does not exist. An incomplete last one is left out."""
    return [_evaluation(text) for text in _members(path.read_bytes())] if path.is_file() else []


def _member(evaluation: Evaluation, header: bool) -> bytes:
    """The same bytes for the same evaluation."""
    rows = zip(evaluation.returns.tolist(), evaluation.lengths.tolist(), strict=True)
    lines = [f"{evaluation.steps},{i},{value!r},{length}" for i, (value, length) in enumerate(rows)]
    text = "\n".join([*([",".join(COLUMNS)] if header else []), *lines, ""])
    return gzip.compress(text.encode(), mtime=0)


def _members(data: bytes) -> Iterator[str]:
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            text = member.decompress(data)
        except zlib.error:
            return
        if not member.eof:
            return
        yield text.decode()
        data = member.unused_data


def _evaluation(text: str) -> Evaluation:
    rows = [row for row in csv.reader(io.StringIO(text)) if row[0] != COLUMNS[0]]
    steps, returns, lengths = int(rows[0][0]), [float(row[2]) for row in rows], [int(row[3]) for row in rows]
    return Evaluation(steps, np.array(returns), np.array(lengths))
