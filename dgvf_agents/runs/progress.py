"""Metrics as a CSV file that a resumed run goes on with."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, TextIO, final

from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video, filter_excluded_keys

from dgvf_agents.storage.atomic import replacing

STEPS = "time/total_timesteps"
"""The column of environment steps, which every row has."""


@final
class ProgressLog(KVWriter):
    """One row per log interval, one column per metric in the order in which they came.

    Stable-Baselines3's own writer begins its file anew, and rewrites it in place where a column is added: a process
    killed at that moment leaves half of it.
    """

    def __init__(self, path: Path, steps: int = 0) -> None:
        """
        Args:
            path: the file; its rows after `steps` are cut off, since the run goes on from there.
            steps: environment steps.
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
    """The file's whole rows up to a number of environment steps; none where there is no file."""
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
    """The columns that the rows fill, in the file's order."""
    if not rows:
        return []
    with path.open(newline="") as file:
        header = next(csv.reader(file))
    return [name for name in header if any(name in row for row in rows)]
