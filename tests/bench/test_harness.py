"""What all benchmarks share."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pytest
from rich.table import Table

from dgvf_agents.bench.harness import Benchmark, make_table
from dgvf_agents.bench.report import Row


@final
@dataclass(frozen=True)
class Exits(Benchmark):
    """Whether the process of the case before has ended properly, which stops what it left running."""

    name: ClassVar[str] = "exits"
    folder: Path
    output: Path | None = None

    def cases(self) -> list[Row]:
        return [{"number": 1}, {"number": 2}]

    def measure(self, case: Row) -> Row:
        atexit.register((self.folder / str(case["number"])).touch)
        return {"process": os.getpid(), "ended": sorted(path.name for path in self.folder.iterdir())}

    def tables(self, rows: Sequence[Row]) -> list[Table]:
        return [make_table("Exits", rows, [("number", "{number:d}"), ("ended", "{ended}")])]


def test_every_case_has_its_own_process_which_ends_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    first, second = Exits(tmp_path).run()
    assert (first["number"], second["number"]) == (1, 2)
    assert len({os.getpid(), first["process"], second["process"]}) == 3
    assert (first["ended"], second["ended"]) == ([], ["1"])
    assert "['1']" in capsys.readouterr().out
