"""The result files of an experiment: CSV tables, and beside them where they come from."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, final, get_type_hints

from dgvf_agents.experiments.run_metrics import Measure
from dgvf_agents.storage.atomic import replacing

Quantity = Literal["final", "average"]
"""`final`: mean over the last tenth of training; `average`: over all of it."""

QUANTITIES: tuple[Quantity, ...] = ("final", "average")

Row = TypeVar("Row")


@final
@dataclass(frozen=True)
class CellRow:
    """The result of one run."""

    world: str
    """Name in `dgvf train`; `atari/GAME` for a game."""
    setting: str
    """Label of the setting."""
    seed: int
    steps: int
    """Environment steps trained; on Atari the agent's."""
    measure: Measure
    """Which episodes count."""
    final_return: float
    average_return: float

    def value(self, quantity: Quantity) -> float:
        """The final or the average return."""
        return self.final_return if quantity == "final" else self.average_return


@final
@dataclass(frozen=True)
class CurveRow:
    """A point on the curve of one run."""

    world: str
    setting: str
    seed: int
    steps: int
    mean_return: float


@final
@dataclass(frozen=True)
class BandRow:
    """A point on the mean curve of a setting's seeds, with its 95 % interval."""

    world: str
    setting: str
    steps: int
    mean: float
    low: float | None
    high: float | None


@final
@dataclass(frozen=True)
class SummaryRow:
    """A setting's seeds together, with 95 % intervals."""

    world: str
    """`all`: normalized returns, 0 at the random policy's and 1 at an optimal one's, over all worlds."""
    setting: str
    quantity: Quantity
    seeds: int
    mean: float
    mean_low: float | None
    mean_high: float | None
    interquartile_mean: float
    interquartile_mean_low: float | None
    interquartile_mean_high: float | None


@final
@dataclass(frozen=True)
class ComparisonRow:
    """How probably a run of one setting has a larger return than a run of another, with its 95 % interval."""

    world: str
    """`all`: the mean over all worlds."""
    quantity: Quantity
    setting: str
    other: str
    probability: float
    low: float | None
    high: float | None


@final
@dataclass(frozen=True)
class ChoiceRow:
    """What a search chose."""

    world: str
    searched: str
    """The fields that were searched."""
    setting: str
    """Label of the chosen setting."""
    final_return: float
    """Mean over its seeds."""
    average_return: float
    """Mean over its seeds."""


@final
@dataclass(frozen=True)
class Results:
    """All tables of an experiment."""

    cells: list[CellRow] = field(default_factory=list)
    curves: list[CurveRow] = field(default_factory=list)
    bands: list[BandRow] = field(default_factory=list)
    summary: list[SummaryRow] = field(default_factory=list)
    comparisons: list[ComparisonRow] = field(default_factory=list)
    choices: list[ChoiceRow] = field(default_factory=list)
    """Of searches only."""

    def write(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Write `TABLE.csv` for each table that is not empty and `provenance.json`, each atomically."""
        for name, row_type in _TABLES.items():
            file, rows = folder / f"{name}.csv", getattr(self, name)
            if rows:
                write_rows(file, rows, row_type)
            else:
                file.unlink(missing_ok=True)
        with replacing(folder / "provenance.json") as unfinished:
            unfinished.write_text(json.dumps(provenance, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Results:
        """The tables in a folder.

        Raises:
            FileNotFoundError: there are no results.
        """
        if not (folder / "cells.csv").is_file():
            raise FileNotFoundError(f"results must be a folder that `dgvf reproduce` wrote, got {folder}")
        files = {name: folder / f"{name}.csv" for name in _TABLES}
        return cls(**{name: read_rows(file, _TABLES[name]) for name, file in files.items() if file.is_file()})

    def worlds(self) -> list[str]:
        """In the order of the cells."""
        return list(dict.fromkeys(row.world for row in self.cells))

    def settings(self, world: str) -> list[str]:
        """Labels on a world, in the order of the cells."""
        return list(dict.fromkeys(row.setting for row in self.cells if row.world == world))


_TABLES: dict[str, type] = {
    "cells": CellRow,
    "curves": CurveRow,
    "bands": BandRow,
    "summary": SummaryRow,
    "comparisons": ComparisonRow,
    "choices": ChoiceRow,
}


def read_provenance(folder: Path) -> dict[str, Any]:
    """What `Results.write` was told of where results come from."""
    return json.loads((folder / "provenance.json").read_text())


def write_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """Write rows as CSV, atomically; None is an empty cell, numbers keep all their digits."""
    names = [column.name for column in dataclasses.fields(row_type)]
    with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """The rows that `write_rows` wrote."""
    hints = get_type_hints(row_type)
    with path.open(newline="") as file:
        return [
            row_type(**{name: _parse(hints[name], text) for name, text in row.items()}) for row in csv.DictReader(file)
        ]


def _parse(hint: Any, text: str) -> Any:
    if hint is int:
        return int(text)
    if hint is float:
        return float(text)
    if hint == float | None:
        return float(text) if text else None
    return text
