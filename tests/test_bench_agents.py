"""`dgvf bench agents` through its real main, with tiny settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgvf_agents.bench import agents
from dgvf_agents.cli import main


@pytest.mark.slow
def test_the_benchmark_measures_and_writes_its_report(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    small = ["--threads", "1", "--seconds", "0.2", "--repetitions", "1", "--unroll-lengths", "2", "--questions", "8"]
    small += ["--iterations", "10"]
    main(["bench", "agents", *small, "--worlds", "PuddleWorld-v0", "--output", str(output)])
    report = json.loads(output.read_text())
    speed, *growth, lasting, products = report["rows"]
    assert set(speed["steps_per_s"]) == {"sb3", "sb3-adapter", "none", "discovered"}
    assert all(rate > 0 for rate in speed["steps_per_s"].values())
    assert [(row["unroll_length"], row["storage"]) for row in growth] == [(2, "graph"), (2, "recompute"), (10, "graph")]
    assert all(row["copies_mib"] > 0 for row in growth)
    assert all(row["gflops"] > 0 for row in (*growth, products))
    assert 0 < lasting["early_mib"] <= lasting["late_mib"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0.0}, "seconds must be > 0, got 0.0"),
        ({"iterations": 9}, "iterations must be >= 10, got 9"),
        ({"repetitions": 0}, "repetitions must be >= 1, got 0"),
        ({"worlds": ("Pong-v5",)}, r"worlds must be among .*got \['Pong-v5'\]"),
    ],
)
def test_bad_settings_are_named(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agents.AgentsBenchmark(**changes)
