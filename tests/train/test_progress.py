"""Metrics are written row by row, and resumed runs append to them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.logger import Logger

from dgvf_agents.train.progress import STEPS, ProgressLog


def _write(path: Path, rows: list[dict[str, Any]], after: int = 0) -> None:
    log = ProgressLog(path, after)
    logger = Logger(None, [log])
    for row in rows:
        for name, value in row.items():
            logger.record(name, value)
        logger.dump()
    logger.close()


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


ROWS: list[dict[str, Any]] = [
    {STEPS: 10, "b": 0.1, "a": 1},
    {STEPS: 20, "b": 0.2, "a": 2, "eval": 'a "quoted", text'},
    {STEPS: 30, "b": float("nan"), "c": 3.5},
    {STEPS: 40, "b": 0.4},
]


def test_columns_are_in_the_order_of_first_appearance(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    _write(path, ROWS)
    assert path.read_text().splitlines()[0] == f"a,b,{STEPS},eval,c"
    rows = _read(path)
    assert [row["b"] for row in rows] == ["0.1", "0.2", "nan", "0.4"]
    assert [row["eval"] for row in rows] == ["", 'a "quoted", text', "", ""]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("done", [0, 10, 15, 20, 30, 40])
def test_a_resumed_run_leaves_the_same_file(done: int, tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole.csv", tmp_path / "resumed.csv"
    _write(whole, ROWS)
    _write(resumed, ROWS)
    _write(resumed, [row for row in ROWS if row[STEPS] > done], after=done)
    assert resumed.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [1, 4, 9, 30])
def test_a_torn_last_line_is_cut_off(cut: int, tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    _write(whole, ROWS)
    torn.write_bytes(whole.read_bytes()[:-cut])
    kept = int(max((row[STEPS] for row in _read(torn)[:-1]), default=0))
    _write(torn, [row for row in ROWS if row[STEPS] > kept], after=kept)
    assert torn.read_bytes() == whole.read_bytes()


def test_excluded_values_and_images_are_not_written(tmp_path: Path) -> None:
    logger = Logger(None, [ProgressLog(tmp_path / "progress.csv")])
    logger.record(STEPS, 1)
    logger.record("hidden", 2, exclude="csv")
    logger.record("nothing", None)
    logger.dump()
    logger.close()
    assert _read(tmp_path / "progress.csv") == [{STEPS: "1"}]
