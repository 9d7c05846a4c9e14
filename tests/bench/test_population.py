"""`dgvf bench population` through its real main, with tiny settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgvf_agents.bench import reference
from dgvf_agents.bench.population import PopulationBenchmark
from dgvf_agents.cli import main


def test_rates_of_all_members_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    monkeypatch.setattr(PopulationBenchmark, "isolated", False)
    output = tmp_path / "report.json"
    small = ["--members", "2", "3", "--seconds", "0.05", "--repetitions", "1", "--worlds", "PuddleWorld-v0"]
    main(["bench", "population", *small, "--output", str(output)])
    rows = json.loads(output.read_text())["rows"]
    assert [row["members"] for row in rows] == [2, 3]
    for row in rows:
        rates = row["steps_per_s"]
        assert row["ratio"] == pytest.approx(rates["population"] / rates["alone"])
        assert isinstance(row["mib"], float)
        assert f"{rates['population']:,.0f}" in capsys.readouterr().out or row is not rows[0]


@pytest.mark.parametrize("name", ["members", "threads", "repetitions"])
def test_counts_are_checked(name: str) -> None:
    value: object = (0,) if name != "repetitions" else 0
    with pytest.raises(ValueError, match=f"{name} must be"):
        PopulationBenchmark(**{name: value})  # type: ignore[arg-type]
