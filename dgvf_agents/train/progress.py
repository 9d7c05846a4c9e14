"""Metrics as a CSV file that resumed runs append to."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, TextIO, final

from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video, filter_excluded_keys

from dgvf_agents.storage.atomic import replacing

STEPS = "time/total_timesteps"
"""Column of environment steps, present in every row."""


@final
class ProgressLog(KVWriter):
    """One row per log interval, one column per metric in the order of first appearance.

    Stable-Baselines3's own writer overwrites the file when it is opened, and rewrites it in place when a column is
    added: a process killed at that moment leaves an incomplete file.
    """

    def __init__(self, path: Path, steps: int = 0) -> None:
        """
        Args:
            path: the file. Rows after `steps` are removed.
            steps: environment steps that the run continues from.
        """
        self._path = path
        self._rows = _rows_until(path, steps)
        self._columns = _columns_of(path, self._rows)
        self._file = self._rewrite()

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        row = {k: str(v) for k, v in values.items() if v is not None and not isinstance(v, _PICTURES)}
        self._rows.append(row)
        new = sorted(row.keys() - set(self._columns))
        if new:
            self._columns += new
            self._file.close()
            self._file = self._rewrite()
        else:
            self._writer(self._file).writerow(row)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rewrite(self) -> TextIO:
        with replacing(self._path) as unfinished, unfinished.open("w", newline="") as file:
            if self._columns:
                writer = self._writer(file)
                writer.writeheader()
                writer.writerows(self._rows)
        return self._path.open("a", newline="")

    def _writer(self, file: TextIO) -> csv.DictWriter:
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")


_PICTURES = (Video, Figure, Image, HParam)


def _rows_until(path: Path, steps: int) -> list[dict[str, str]]:
    """The complete rows up to a number of environment steps; empty if the file does not exist."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = []
    for row in rows:
        if None in row or None in row.values() or not row.get(STEPS, "").isdigit() or int(row[STEPS]) > steps:
            break
        kept.append({name: value for name, value in row.items() if value != ""})
    return kept


def _columns_of(path: Path, rows: list[dict[str, str]]) -> list[str]:
    """The columns that have a value in some row, in the order of the file."""
    if not rows:
        return []
    with path.open(newline="") as file:
        header = next(csv.reader(file))
    return [name for name in header if any(name in row for row in rows)]
