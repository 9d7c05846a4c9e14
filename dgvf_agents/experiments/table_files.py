"""Tables as CSV files, large ones compressed, and in parts if they still are too large for a repository."""

from __future__ import annotations

import itertools
import lzma
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

MAX_BYTES = 2 * 2**20
"""Of a compressed file. Larger tables are written in parts."""


def contents_of(name: str, table: pd.DataFrame, compress: bool) -> dict[str, bytes]:
    """The files of a table by name: `NAME.csv`, `NAME.csv.xz`, or `NAME-1-of-2.csv.xz` and so on; none if it is empty.

    Args:
        name: of the table.
        table: its rows.
        compress: whether it is compressed.
    """
    if table.empty:
        return {}
    if not compress:
        return {f"{name}.csv": _csv(table)}
    for count in range(1, len(table) + 1):
        bounds = np.linspace(0, len(table), count + 1).astype(int)
        parts = [lzma.compress(_csv(table.iloc[a:b])) for a, b in itertools.pairwise(bounds)]
        if max(map(len, parts)) <= MAX_BYTES:
            break
    parted = [f"{name}-{i}-of-{count}.csv.xz" for i in range(1, count + 1)]
    names = [f"{name}.csv.xz"] if count == 1 else parted
    return dict(zip(names, parts, strict=True))


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


def files_of(folder: Path, name: str) -> list[Path]:
    """All files of a table in a folder, as this version or an earlier one wrote them."""
    pattern = re.compile(rf"{name}(-\d+-of-\d+)?\.csv(\.xz)?")
    return sorted(file for file in folder.glob(f"{name}*") if pattern.fullmatch(file.name))


def read_table(folder: Path, name: str) -> pd.DataFrame | None:
    """A table in a folder, all of it text; `None` if there is none.

    A killed process may have left the files of two versions. The newer one counts, if it is complete.

    Raises:
        ValueError: a part is missing.
    """
    versions: dict[tuple[int, str], dict[int, Path]] = defaultdict(dict)
    for file in files_of(folder, name):
        match = re.search(r"-(\d+)-of-(\d+)\.", file.name)
        part, count = map(int, match.groups()) if match else (1, 1)
        versions[count, file.suffix][part] = file
    if not versions:
        return None
    complete = [[parts[i] for i in sorted(parts)] for (count, _), parts in versions.items() if len(parts) == count]
    if not complete:
        found = ", ".join(file.name for file in files_of(folder, name))
        raise ValueError(f"results must have all parts of {name}, got {found} in {folder}")
    newest = max(complete, key=lambda files: files[-1].stat().st_mtime_ns)
    return pd.concat(map(read_csv, newest), ignore_index=True)


def read_csv(path: Path) -> pd.DataFrame:
    """A CSV file, compressed if its name ends in `.xz`, as text, NaN where a field is empty.

    Numbers are converted later, with correct rounding: not every version of pandas reads the float that it wrote. Nor
    is a label such as NA a missing value.
    """
    return pd.read_csv(path, dtype=object, keep_default_na=False, na_values=[""])
