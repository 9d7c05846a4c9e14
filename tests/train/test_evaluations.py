"""Every evaluation episode is recorded, and resumed runs append to the record."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgvf_agents.train.evaluations import COLUMNS, Evaluation, EvaluationLog, read_evaluations

EVALUATIONS = [
    Evaluation(steps, np.random.default_rng(steps).normal(size=5) * 1e3, np.arange(5) + steps)
    for steps in (80, 160, 240)
]


def write(path: Path, evaluations: list[Evaluation], after: int = 0) -> None:
    log = EvaluationLog(path, after)
    for evaluation in evaluations:
        log.append(evaluation)


def test_the_record_is_exact_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv.gz"
    write(path, EVALUATIONS)
    table = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))
    assert tuple(table.columns) == COLUMNS
    assert table["episode"].tolist() == [0, 1, 2, 3, 4] * 3
    for found, expected in zip(read_evaluations(path), EVALUATIONS, strict=True):
        assert found.steps == expected.steps
        assert found.returns.tolist() == expected.returns.tolist()
        assert found.lengths.tolist() == expected.lengths.tolist()
        assert table.loc[table["steps"] == found.steps, "length"].tolist() == expected.lengths.tolist()


@pytest.mark.parametrize("done", [0, 79, 80, 200, 240])
def test_a_resumed_run_leaves_the_same_file(done: int, tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole.csv.gz", tmp_path / "resumed.csv.gz"
    write(whole, EVALUATIONS)
    write(resumed, EVALUATIONS)
    write(resumed, [evaluation for evaluation in EVALUATIONS if evaluation.steps > done], after=done)
    assert resumed.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [1, 8, 9, 40])
def test_a_torn_last_evaluation_is_left_out(cut: int, tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.csv.gz", tmp_path / "torn.csv.gz"
    write(whole, EVALUATIONS)
    torn.write_bytes(whole.read_bytes()[:-cut])
    assert [found.steps for found in read_evaluations(torn)] == [80, 160]
    write(torn, EVALUATIONS[2:], after=200)
    assert torn.read_bytes() == whole.read_bytes()


def test_a_run_that_restarts_forgets_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv.gz"
    write(path, EVALUATIONS)
    EvaluationLog(path)
    assert not path.exists()
    assert read_evaluations(path) == []
