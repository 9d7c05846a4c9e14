"""Files of tables: what is written is read, in parts if a table is large, whatever else lies in the folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgvf_agents.experiments import table_files
from dgvf_agents.experiments.tables import Results, make_table


def results(evaluations: int) -> Results:
    """With episodes that hardly compress."""
    numbers = np.random.default_rng(0).normal(size=(evaluations, 64))
    rows = [("puddle-world", "a2c", 0, 80 * i, " ".join(map(str, row)), "7") for i, row in enumerate(numbers.tolist())]
    cells = make_table("cells", [("puddle-world", "a2c", 0, 80 * evaluations, "evaluation", -40.0, -50.0)])
    return Results(cells, evaluations=make_table("evaluations", rows))


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(table_files, "MAX_BYTES", 15_000)
    return 15_000


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("evaluations*"))


def written(folder: Path, evaluations: int) -> pd.DataFrame:
    found = results(evaluations)
    found.write(folder, {})
    return found.evaluations


def test_large_tables_are_written_in_parts(tmp_path: Path, small_files: int) -> None:
    table = written(tmp_path, 60)
    assert names(tmp_path) == [f"evaluations-{i}-of-3.csv.xz" for i in (1, 2, 3)]
    assert all(file.stat().st_size <= small_files for file in tmp_path.glob("evaluations*"))
    pd.testing.assert_frame_equal(Results.read(tmp_path).evaluations, table)


@pytest.mark.parametrize(("first", "then"), [(60, 5), (5, 60), (60, 100)])
def test_files_of_an_earlier_table_are_removed(tmp_path: Path, small_files: int, first: int, then: int) -> None:
    written(tmp_path, first)
    table = written(tmp_path, then)
    pd.testing.assert_frame_equal(Results.read(tmp_path).evaluations, table)
    count = len(names(tmp_path))
    assert count == 1 or all(f"-of-{count}." in name for name in names(tmp_path))


def test_an_interrupted_write_leaves_the_earlier_table(tmp_path: Path, small_files: int) -> None:
    """It stopped before the last part, or before the files of the earlier table were removed."""
    earlier = written(tmp_path / "earlier", 20)
    table = written(tmp_path / "both", 60)
    os.replace(tmp_path / "earlier" / "evaluations.csv.xz", tmp_path / "both" / "evaluations.csv.xz")
    os.utime(tmp_path / "both" / "evaluations.csv.xz", (1, 1))
    pd.testing.assert_frame_equal(Results.read(tmp_path / "both").evaluations, table)
    (tmp_path / "both" / "evaluations-3-of-3.csv.xz").unlink()
    pd.testing.assert_frame_equal(Results.read(tmp_path / "both").evaluations, earlier)


def test_a_missing_part_is_an_error(tmp_path: Path, small_files: int) -> None:
    written(tmp_path, 60)
    (tmp_path / "evaluations-2-of-3.csv.xz").unlink()
    with pytest.raises(ValueError, match="must have all parts of evaluations, got evaluations-1-of-3"):
        Results.read(tmp_path)
