"""`dgvf bench population` through its real main, with tiny settings."""

from __future__ import annotations

import importlib
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


@pytest.mark.parametrize(("members", "stopped"), [([8], False), ([8, 128], True)])
def test_the_page_says_if_the_command_was_stopped(
    monkeypatch: pytest.MonkeyPatch, members: list[int], stopped: bool
) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(docs)
    report = json.loads((docs / "results" / "bench-population-gpu.json").read_text())
    report["settings"]["members"] = members
    row = {"world": "PuddleWorld-v0", "members": 8, "ratio": 5.0, "mib": 279.3}
    rates = {"alone": 1_000.0, "population": 5_000.0, "jax": 2_500.0}
    page = importlib.import_module("generate_benchmark_page").population_on_gpu
    text = page({**report, "rows": [{**row, "steps_per_s": rates}]})
    assert "| PuddleWorld-v0 | 8 | 1,000 | 5,000 | 5.00 | 279 | 2,500 | 2.00x |" in text
    assert ("stopped after 1 of 2 cases" in text) == stopped


@pytest.mark.parametrize("name", ["members", "threads", "repetitions"])
def test_counts_are_checked(name: str) -> None:
    value: object = (0,) if name != "repetitions" else 0
    with pytest.raises(ValueError, match=f"{name} must be"):
        PopulationBenchmark(**{name: value})  # type: ignore[arg-type]
