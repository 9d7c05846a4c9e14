"""Reports of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from dgvf_agents.bench.atari import AtariBenchmark
from dgvf_agents.bench.report import write_report
from dgvf_agents.bench.training import AgentsBenchmark


def test_the_command_in_a_report_is_the_one_that_was_given(tmp_path: Path) -> None:
    for settings, command in (
        (AgentsBenchmark(output=tmp_path / "x"), "dgvf bench agents"),
        (AgentsBenchmark(threads=(1,), seconds=2.0), "dgvf bench agents --threads 1 --seconds 2.0"),
        (AgentsBenchmark(unroll_lengths=(5, 50)), "dgvf bench agents --unroll-lengths 5 50"),
        (AtariBenchmark(mixed_precision=True, compile=False), "dgvf bench agents --mixed-precision --no-compile"),
    ):
        write_report(tmp_path / "report.json", "dgvf bench agents", settings, [])
        assert json.loads((tmp_path / "report.json").read_text())["command"] == command
