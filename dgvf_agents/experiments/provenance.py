"""Where results come from: commands, commits, machines, wall times and configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dgvf_agents.experiments.runs import RECORDING_FIELDS, Cell, read_config, read_mark
from dgvf_agents.train.config import TrainConfig

_BY_SEED = ("seed", "questions_from")
"""Fields that differ between the seeds of a setting."""


def provenance(command: str, cells: Sequence[Cell], missing: Sequence[Cell]) -> dict[str, Any]:
    """The provenance of results. Each run's `made_with` is an index into the list of that name.

    Args:
        command: that makes these results.
        cells: in the results.
        missing: not in the results.
    """
    marks = [read_mark(cell.folder) for cell in cells]
    made_with: list[dict[str, Any]] = []
    origins = []
    for mark in marks:
        origin = {"code": mark.code, "versions": mark.versions, "hardware": mark.hardware}
        known = next((i for i, made in enumerate(made_with) if origin.items() <= made.items()), len(made_with))
        if known == len(made_with):
            made_with.append({**origin, "runs": 0})
        made_with[known]["runs"] += 1
        origins.append(known)
    configurations: dict[str, Any] = {}
    for cell in cells:
        if cell.setting.folder_name not in configurations:
            configurations[cell.setting.folder_name] = dataclasses.asdict(read_config(cell.folder))
    return {
        "command": command,
        "wall_seconds": sum(mark.wall_seconds for mark in marks),
        "made_with": made_with,
        "missing": [cell.name for cell in missing],
        "runs": [
            {"run": cell.name, "command": mark.command, "wall_seconds": mark.wall_seconds, "made_with": origin}
            for cell, mark, origin in zip(cells, marks, origins, strict=True)
        ],
        "configurations": configurations,
    }


def check_extension(earlier: dict[str, Any], runs: Collection[str], configurations: Mapping[str, TrainConfig]) -> None:
    """Check that runs can be added to earlier results.

    Args:
        earlier: the provenance of these.
        runs: names of the runs.
        configurations: of their settings.

    Raises:
        ValueError: the results have a run already, or a setting has another configuration in them.
    """
    if both := sorted({run["run"] for run in earlier["runs"]} & set(runs)):
        raise ValueError(f"results to be extended must not hold these runs already, got {both[0]} in both")
    for name, wanted in configurations.items():
        if (fields := earlier["configurations"].get(name)) is None:
            continue
        differing = TrainConfig.from_fields(fields).differences(wanted, apart_from=(*RECORDING_FIELDS, *_BY_SEED))
        if differing:
            raise ValueError(
                f"results to be extended must have the configuration of {name}, got another {', '.join(differing)}"
            )


def joined_provenance(earlier: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """The provenance of results that hold the runs of two.

    Raises:
        ValueError: see `check_extension`.
    """
    held = {run["run"] for run in ours["runs"]}
    given = {name: TrainConfig.from_fields(fields) for name, fields in ours["configurations"].items()}
    check_extension(earlier, held, given)
    offset = len(earlier["made_with"])
    return {
        "command": " && ".join(dict.fromkeys([earlier["command"], ours["command"]])),
        "wall_seconds": earlier["wall_seconds"] + ours["wall_seconds"],
        "made_with": [*earlier["made_with"], *ours["made_with"]],
        "missing": [*(name for name in earlier["missing"] if name not in held), *ours["missing"]],
        "runs": [*earlier["runs"], *({**run, "made_with": run["made_with"] + offset} for run in ours["runs"])],
        "configurations": {**ours["configurations"], **earlier["configurations"]},
    }
