"""Reports of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from dgvf_agents.bench.atari import AtariBenchmark
from dgvf_agents.bench.report import Report, header_of
from dgvf_agents.bench.training import AgentsBenchmark


def test_the_command_in_a_report_is_the_one_that_was_given(tmp_path: Path) -> None:
    for settings, command in (
        (AgentsBenchmark(output=tmp_path / "x"), "dgvf bench agents"),
        (AgentsBenchmark(threads=(1,), seconds=2.0), "dgvf bench agents --threads 1 --seconds 2.0"),
        (AgentsBenchmark(unroll_lengths=(5, 50)), "dgvf bench agents --unroll-lengths 5 50"),
        (AtariBenchmark(mixed_precision=True, compile=False), "dgvf bench agents --mixed-precision --no-compile"),
    ):
        assert header_of("dgvf bench agents", settings)["command"] == command


def test_a_report_is_written_with_its_last_row_and_continues_after_any_other(tmp_path: Path) -> None:
    path, cases = tmp_path / "results" / "report.json", [{"number": (1,)}, {"number": (2,)}, {"number": (3,)}]
    header = {"command": "dgvf bench", "versions": {"torch": "2"}}
    for last in (1, 2, 3):
        report = Report(path, header, cases)
        assert [row["number"] for row in report.rows] == [[number] for number in range(1, last)]
        assert not path.is_file()
        report.add({**cases[last - 1], "rate": last})
    assert json.loads(path.read_text()) == {**header, "rows": [{"number": [n], "rate": n} for n in (1, 2, 3)]}
    assert list(path.parent.iterdir()) == [path]
    assert Report(path, header, cases).rows == []  # a finished benchmark is measured again


def test_rows_of_other_settings_versions_or_cases_are_not_kept(tmp_path: Path) -> None:
    path, cases = tmp_path / "report.json", [{"number": 1}, {"number": 2}]
    Report(path, {"command": "dgvf bench"}, cases).add({"number": 1, "rate": 3.0})
    assert Report(path, {"command": "dgvf bench --threads 2"}, cases).rows == []
    assert Report(path, {"command": "dgvf bench"}, cases[::-1]).rows == []
    assert len(Report(path, {"command": "dgvf bench"}, cases).rows) == 1
