"""The records of finished runs: one line a run, in a CSV file for each world, to be committed.

The records are the store of results: a run whose record is there is not trained again. Beside each CSV file, a JSON
file has the configurations of its settings.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from filelock import FileLock

from dgvf_agents.storage.files import replacing

KEY = ["setting", "seed", "processor"]
COLUMNS = [*KEY, "code", "core_seconds", "steps", "returns"]


@final
@dataclass(frozen=True)
class Record:
    """A finished run."""

    world: str
    """World of the run, as in `dgvf train`."""
    setting: str
    """Name of the setting: the method and its differences from the world's preset."""
    seed: int
    """Seed of everything random."""
    processor: str
    """Name of the processor, and of the accelerator if there is one."""
    code: str
    """Commit of the code."""
    core_seconds: float
    """Processor time of training and compilation; the share of one member in a population."""
    steps: tuple[int, ...]
    """Environment steps of the points of the curve."""
    returns: tuple[float, ...]
    """Mean undiscounted return of each evaluation, or of training episodes where there are none."""


def add_records(folder: Path, records: Collection[Record], configs: Mapping[str, Any] | None = None) -> None:
    """Add records to a folder; one with the same key is kept as it is.

    Args:
        folder: of the records; made if it does not exist.
        records: of any worlds.
        configs: configuration of each setting, `WORLD/SETTING`, as a dictionary; recorded once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        for world in sorted({record.world for record in records}):
            rows = [_row(record) for record in records if record.world == world]
            table = pd.concat([_read(folder, world), pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)
            table = table.astype({"seed": int}).drop_duplicates(KEY).sort_values(KEY)
            with replacing(_file(folder, world)) as unfinished:
                table.to_csv(unfinished, index=False, lineterminator="\n")
            own = {n.removeprefix(f"{world}/"): c for n, c in (configs or {}).items() if n.startswith(f"{world}/")}
            known = own | read_configs(folder, world)
            lines = [f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known)]
            with replacing(_file(folder, world).with_suffix(".json")) as unfinished:
                unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read_records(folder: Path) -> pd.DataFrame:
    """All records of a folder, a row each: `world` and `COLUMNS`, where `steps` and `returns` hold arrays [N]."""
    worlds = [file.stem.replace("~", "/") for file in sorted(folder.glob("*.csv"))]
    if not worlds:
        return pd.DataFrame(columns=["world", *COLUMNS])
    table = pd.concat([_read(folder, world).assign(world=world) for world in worlds], ignore_index=True)
    for name in ("steps", "returns"):
        table[name] = [np.array(text.split(), dtype=float) for text in table[name]]
    return table.astype({"seed": int, "core_seconds": float})


def read_configs(folder: Path, world: str) -> dict[str, Any]:
    """The configurations of a world's settings, by the settings' names."""
    file = _file(folder, world).with_suffix(".json")
    return json.loads(file.read_text()) if file.is_file() else {}


def merge_records(folder: Path, other: Path) -> None:
    """Add the records of another folder, as another machine made them."""
    rows = read_records(other)[["world", *COLUMNS]].to_dict("records")
    records = [
        Record(**row | {"steps": tuple(map(int, row["steps"])), "returns": tuple(row["returns"].tolist())})
        for row in rows
    ]
    worlds = {record.world for record in records}
    add_records(folder, records, {f"{w}/{name}": c for w in worlds for name, c in read_configs(other, w).items()})


def _row(record: Record) -> dict[str, Any]:
    return dataclasses.asdict(record) | {
        "core_seconds": round(record.core_seconds, 1),
        "steps": " ".join(map(str, record.steps)),
        "returns": " ".join(f"{value:.6g}" for value in record.returns),
    }


def _read(folder: Path, world: str) -> pd.DataFrame:
    file = _file(folder, world)
    return pd.read_csv(file, dtype=str, keep_default_na=False) if file.is_file() else pd.DataFrame(columns=COLUMNS)


def _file(folder: Path, world: str) -> Path:
    return folder / f"{world.replace('/', '~')}.csv"
