"""The result files of an experiment: one CSV table each, and `provenance.json` on where they come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import pandas as pd

from dgvf_agents.experiments.table_files import contents_of, files_of, read_table
from dgvf_agents.storage.atomic import replacing, write_whole
from dgvf_agents.train.config import WORLDS

Quantity = Literal["final", "average"]
"""`final`: mean return over the last tenth of training; `average`: over all of it."""

QUANTITIES: tuple[Quantity, ...] = ("final", "average")

COLUMNS: dict[str, tuple[str, ...]] = {
    "cells": ("world", "setting", "seed", "steps", "measure", "final_return", "average_return"),
    "curves": ("world", "setting", "seed", "steps", "mean_return"),
    "times": ("world", "setting", "seed", "steps", "seconds"),
    "encoder_steps": ("world", "setting", "seed", "first_tenth", "mean"),
    "bands": ("world", "setting", "steps", "mean", "low", "high"),
    "summary": (
        *("world", "setting", "quantity", "seeds", "mean", "mean_low", "mean_high"),
        *("interquartile_mean", "interquartile_mean_low", "interquartile_mean_high"),
    ),
    "comparisons": ("world", "quantity", "setting", "other", "probability", "low", "high"),
    "improvements": ("world", "setting", "score", "score_low", "score_high", "improvement", "low", "high"),
    "top_games": ("games", "setting", "statistic", "value", "low", "high"),
    "choices": ("world", "searched", "setting", "final_return", "average_return"),
    "evaluations": ("world", "setting", "seed", "steps", "episode_returns", "episode_lengths"),
}
"""By table."""

_TEXT = (
    *("world", "setting", "measure", "quantity", "other", "searched", "statistic"),
    *("episode_returns", "episode_lengths"),
)
_INTEGERS = ("seed", "seeds", "steps", "games")
_LARGE = ("curves", "times", "bands", "evaluations")
"""Tables whose files are compressed."""


def _dtypes(table: str) -> dict[str, str]:
    """By column; the other numbers are returns, probabilities and their intervals, NaN (empty in files) if unknown."""
    return {c: "object" if c in _TEXT else "int64" if c in _INTEGERS else "float64" for c in COLUMNS[table]}


def make_table(name: str, rows: Sequence[Any] = ()) -> pd.DataFrame:
    """A table from rows, tuples or dataclasses that have its columns in their order."""
    return pd.DataFrame(rows, columns=list(COLUMNS[name])).astype(_dtypes(name))


@final
@dataclass(frozen=True, eq=False)
class Results:
    """All tables of an experiment."""

    cells: pd.DataFrame = field(default_factory=partial(make_table, "cells"))
    """A row for each run: which episodes its returns are of (`measure`), environment steps (on Atari the agent's), the
    final and the average return."""
    curves: pd.DataFrame = field(default_factory=partial(make_table, "curves"))
    """Points on the curve of each run."""
    times: pd.DataFrame = field(default_factory=partial(make_table, "times"))
    """Wall time of each run at those points, in seconds, compilation included; of a population's member, its share of
    the population's. Runs of earlier versions have none."""
    encoder_steps: pd.DataFrame = field(default_factory=partial(make_table, "encoder_steps"))
    """Length of an update of the encoder relative to its parameters (`train/encoder_step`), of runs that recorded it:
    means over the first tenth of training and over all of it."""
    bands: pd.DataFrame = field(default_factory=partial(make_table, "bands"))
    """Points on the mean curve of each setting's seeds, with 95 % intervals."""
    summary: pd.DataFrame = field(default_factory=partial(make_table, "summary"))
    """Each setting's seeds together, with 95 % intervals; world `all` has the returns of all worlds, normalized to 0
    for the random and 1 for an optimal policy."""
    comparisons: pd.DataFrame = field(default_factory=partial(make_table, "comparisons"))
    """Probability that a run of `setting` has a larger return than a run of `other`, with its 95 % interval; world
    `all` has the mean over worlds."""
    improvements: pd.DataFrame = field(default_factory=partial(make_table, "improvements"))
    """Normalized score of each setting on each game, and its relative improvement over the baseline, with 95 %
    intervals; games in descending order of the gain that ranks them."""
    top_games: pd.DataFrame = field(default_factory=partial(make_table, "top_games"))
    """Statistics of each setting over the first games of that order, with 95 % intervals."""
    choices: pd.DataFrame = field(default_factory=partial(make_table, "choices"))
    """What a search chose, with mean returns over seeds."""
    evaluations: pd.DataFrame = field(default_factory=partial(make_table, "evaluations"))
    """A row for each evaluation, of runs that recorded them: the returns of all its episodes, to six digits, and their
    lengths, in steps, both separated by spaces."""

    def write(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Write the files of each table, see `contents_of`, and `provenance.json`, each atomically."""
        for name in COLUMNS:
            contents = contents_of(name, getattr(self, name), compress=name in _LARGE)
            for file, content in contents.items():
                write_whole(folder / file, content)
            for other in files_of(folder, name):
                if other.name not in contents:
                    other.unlink()
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
        found = {name: read_table(folder, name) for name in COLUMNS}
        return cls(**{name: table.astype(_dtypes(name)) for name, table in found.items() if table is not None})

    def worlds(self) -> list[str]:
        """Gridworlds in the order of `WORLDS`, others in that of the cells, which tells when they were added."""
        found = list(self.cells["world"].unique())
        return sorted(found, key=lambda world: WORLDS.index(world) if world in WORLDS else len(WORLDS))

    def settings(self, world: str) -> list[str]:
        """Labels on a world, in the order of the cells."""
        return list(self.cells.loc[self.cells["world"] == world, "setting"].unique())


def where(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The rows of a table with these values in these columns."""
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def only(table: pd.DataFrame, **values: object) -> Any:
    """The first row of a table with these values in these columns, as a named tuple.

    Raises:
        ValueError: there is none.
    """
    row = next(where(table, **values).itertuples(index=False), None)
    if row is None:
        raise ValueError(f"table must have a row with {values}, got none")
    return row


def read_provenance(folder: Path) -> dict[str, Any]:
    """The provenance that `Results.write` wrote."""
    return json.loads((folder / "provenance.json").read_text())
