"""The records of finished runs: one line a run, in a CSV file for each world, to be committed.

The records are the store of results: a run whose record is there is not trained again. Beside each CSV file, a JSON
file has the configurations of its settings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from dgvf_agents.experiments.settings import Setting, reference_of
from dgvf_agents.experiments.statistics import area_under_curve, final_return
from dgvf_agents.storage.files import write_bytes

KEY = ["setting", "seed", "processor"]
COLUMNS = [*KEY, "code", "core_seconds", "largest_discount", "steps", "returns"]


Record = dict[str, Any]
"""A finished run: its world as in `dgvf train`, and `COLUMNS`.

`setting` is the method and its differences from the world's preset, `processor` the name of the processor and of the
accelerator if there is one, `code` the commit, `core_seconds` the CPU time of training and compilation, for a
member of a population its share, `largest_discount` the largest γ of any question at any time, `None` where they are
not learned. `steps` and `returns` are lists, the curve: the mean undiscounted return of each evaluation, or of training
episodes where there are none.
"""


def add_records(folder: Path, records: Collection[Record], configs: Mapping[str, Any] | None = None) -> None:
    """Add records to a folder; one with the same key is kept as it is.

    Args:
        folder: of the records; made if it does not exist.
        records: of any worlds.
        configs: configuration of each setting, `WORLD/SETTING`, as a dictionary; recorded once.
    """
    texts = {"steps": lambda steps: " ".join(map(str, steps)), "returns": lambda r: " ".join(f"{x:.6g}" for x in r)}
    rows = pd.DataFrame(list(records), columns=["world", *COLUMNS]).round({"core_seconds": 1, "largest_discount": 4})
    _add(folder, rows.assign(**{name: rows[name].map(text) for name, text in texts.items()}), configs or {})


def merge_records(folder: Path, other: Path) -> None:
    """Add the records of another folder, as another machine made them.

    Raises:
        ValueError: there are none.
    """
    rows = _stored(other)
    if rows.empty:
        raise ValueError(f"merge must be a folder with records, got {other}")
    configs = {f"{world}/{n}": c for world in rows["world"].unique() for n, c in read_configs(other, world).items()}
    _add(folder, rows, configs)


def read_records(folder: Path) -> pd.DataFrame:
    """All records of a folder, a row each: `world` and `COLUMNS`; `steps` and `returns` hold arrays [N]."""
    table = _stored(folder)
    for name in ("steps", "returns"):
        table[name] = [np.array(text.split(), dtype=float) for text in table[name]]
    table["largest_discount"] = pd.to_numeric(table["largest_discount"])
    return table.astype({"seed": int, "core_seconds": float})


def read_configs(folder: Path, world: str) -> dict[str, Any]:
    """The configurations of a world's settings, by the settings' names."""
    file = _file(folder, world).with_suffix(".json")
    return json.loads(file.read_text()) if file.is_file() else {}


def _add(folder: Path, rows: pd.DataFrame, configs: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        stored = _stored(folder)
        for world, new in rows.groupby("world"):
            table = pd.concat([stored[stored["world"] == world], new])[COLUMNS].astype({"seed": int})
            text = table.drop_duplicates(KEY).sort_values(KEY).to_csv(index=False, lineterminator="\n")
            write_bytes(_file(folder, str(world)), text.encode())
            own = {n.removeprefix(f"{world}/"): c for n, c in configs.items() if n.startswith(f"{world}/")}
            known = own | read_configs(folder, str(world))
            lines = [f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known)]
            write_bytes(_file(folder, str(world)).with_suffix(".json"), ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _stored(folder: Path) -> pd.DataFrame:
    """The files of a folder, as text."""
    tables = [
        pd.read_csv(file, dtype=str, keep_default_na=False).assign(world=file.stem.replace("~", "/"))
        for file in sorted(folder.glob("*.csv"))
    ]
    return pd.concat([pd.DataFrame(columns=["world", *COLUMNS]), *tables], ignore_index=True)


def _file(folder: Path, world: str) -> Path:
    return folder / f"{world.replace('/', '~')}.csv"


def tables_of(settings: Iterable[Setting], records: pd.DataFrame) -> pd.DataFrame:
    """A row for each run: `world`, `label`, `seed`, `processor`, `steps`, `final`, `average`, `solved` (NaN without a
    threshold) and `curve` [N, 2].

    Args:
        settings: of the rows, in their order; each label once.
        records: as by `read_records`; a seed that two processors have is two runs.
    """
    rows = []
    for world, name, label in dict.fromkeys((one.world, one.name, one.label) for one in settings):
        threshold = reference_of(world).solved
        own = records[(records["world"] == world) & (records["setting"] == name)]
        for run in own.itertuples():
            final, average = final_return(run.returns), area_under_curve(run.steps, run.returns)
            solved = math.nan if threshold is None else float(final >= threshold)
            curve = np.column_stack([run.steps, run.returns])
            rows.append((world, label, run.seed, run.processor, run.steps[-1], final, average, solved, curve))
    columns = ["world", "label", "seed", "processor", "steps", "final", "average", "solved", "curve"]
    return pd.DataFrame(rows, columns=columns)


def scaled(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs as by `tables_of` with normalized returns in `final` and `average`, NaN in worlds without references."""
    scales = [reference_of(world).normalized for world in runs["world"]]
    found = {name: [scale(x) for scale, x in zip(scales, runs[name], strict=True)] for name in ("final", "average")}
    return runs.assign(**found)
