"""Trains what a study needs and has no record of, and adds the records."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from dgvf_agents.experiments.metrics import RunMetrics
from dgvf_agents.experiments.records import Record, add_records, merge_records, read_configs, read_records
from dgvf_agents.experiments.runs import RECORDING_FIELDS, Cell, read_config, read_mark
from dgvf_agents.experiments.settings import Scale
from dgvf_agents.experiments.studies import Study, Wanted, name_of
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.train.config import TrainConfig

_BY_RUN = ("seed", "questions_from", *RECORDING_FIELDS)
"""Fields of a configuration that are not part of a setting."""


def reproduce_study(
    study: Study,
    worlds: Sequence[str],
    store: Path,
    out: Path,
    *,
    scale: Scale,
    device: str | None = None,
    jobs: int = 1,
    command: str = "",
    run: bool = True,
    merged: Sequence[Path] = (),
    console: Console,
) -> list[Wanted]:
    """Train the runs without a record, and add the records of those that are finished.

    A search adds runs when its trials are finished, so training goes on until nothing more is wanted.

    Args:
        study: what is run.
        worlds: those to run it on.
        store: folder of the records.
        out: folder of the run folders; an unfinished run goes on.
        scale: of the runs.
        device: of all runs; that of the presets if `None`.
        jobs: parallel processes.
        command: for the run folders.
        run: whether to train.
        merged: folders of other records to add.
        console: for progress.

    Returns:
        The runs that are still without a record.

    Raises:
        ValueError: a record or a run folder has another configuration.
    """
    merge_records(store, merged)
    attempted: set[Wanted] = set()
    while True:
        records = read_records(store)
        wanted = [one for world in worlds for one in study.wanted(world, records, scale.seeds)]
        _check(store, wanted, scale)
        missing = [one for one in wanted if not _is_recorded(one, records)]
        cells = [_cell(one, scale, out, device) for one in missing]
        _collect(store, [cell for cell in cells if cell.is_finished])
        todo = [cell for one, cell in zip(missing, cells, strict=True) if one not in attempted and not cell.is_finished]
        if not cells or not ((run and todo) or any(cell.is_finished for cell in cells)):
            return missing
        attempted.update(missing)
        if run and todo:
            with SweepView(console) as view:
                run_sweep(todo, jobs, command, view, lambda finished: _collect(store, finished))


def _cell(wanted: Wanted, scale: Scale, out: Path, device: str | None) -> Cell:
    setting, seed = wanted
    config = setting.config(scale, seed)
    config = config if device is None else dataclasses.replace(config, device=device)
    return Cell(setting, seed, config, out / setting.folder_name / f"seed-{seed}")


def _is_recorded(wanted: Wanted, records: pd.DataFrame) -> bool:
    setting, seed = wanted
    of_world = records[records["world"] == setting.world]
    return bool(((of_world["setting"] == name_of(setting)) & (of_world["seed"] == seed)).any())


def _collect(store: Path, cells: Sequence[Cell]) -> None:
    """Add the records of finished runs."""
    records = [_record(cell) for cell in cells]
    configs = {cell.setting.folder_name: _shared(read_config(cell.folder)) for cell in cells}
    add_records(store, records, configs)


def _record(cell: Cell) -> Record:
    mark, metrics = read_mark(cell.folder), RunMetrics.read(cell.folder)
    curve = metrics.curves.get("evaluation", metrics.curves.get("training"))
    if curve is None:
        raise ValueError(f"a run must have returns, got {cell.folder} without any")
    hardware = mark.hardware or {}
    return Record(
        cell.setting.world,
        name_of(cell.setting),
        cell.seed,
        " + ".join(str(hardware[name]) for name in ("processor", "accelerator") if name in hardware),
        mark.code or "",
        mark.wall_seconds if mark.core_seconds is None else mark.core_seconds,
        tuple(map(int, curve.steps)),
        tuple(map(float, curve.returns)),
    )


def _shared(config: TrainConfig) -> dict[str, Any]:
    """A setting's configuration as in JSON."""
    fields = json.loads(json.dumps(dataclasses.asdict(config)))
    return {name: value for name, value in fields.items() if name not in _BY_RUN}


def _check(store: Path, wanted: Sequence[Wanted], scale: Scale) -> None:
    """Refuse settings that have another configuration in the records; fields that only one of them has do not count."""
    known = {world: read_configs(store, world) for world in {one.setting.world for one in wanted}}
    for setting in dict.fromkeys(one.setting for one in wanted):
        recorded = known[setting.world].get(name_of(setting))
        if recorded is None:
            continue
        fields = _shared(setting.config(scale, 0))
        differing = [n for n in fields if n in recorded and fields[n] != recorded[n]]
        if differing:
            told = ", ".join(f"{n} ({recorded[n]!r}, not {fields[n]!r})" for n in differing)
            raise ValueError(f"{setting.folder_name} must have the configuration of its records, got another {told}")
