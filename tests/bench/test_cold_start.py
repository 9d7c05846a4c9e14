"""The benchmark of how training starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgvf_agents.bench import cold_start
from dgvf_agents.cli import main


def test_every_mode_is_measured_with_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caches = []

    def measure(mode: str, steps: int, cache: Path) -> dict[str, object]:
        caches.append(cache.name)
        return {"compile": mode, "steps": steps, "first_update_s": 0.25, "compiled_s": None, "total_s": 1.5}

    monkeypatch.setattr(cold_start, "measure", measure)
    main(["bench", "start", "--steps", "100", "200", "--output", str(tmp_path / "start.json")])
    assert caches == ["0", "auto-100", "2", "auto-100", "4", "auto-200", "6", "auto-200"]
    report = json.loads((tmp_path / "start.json").read_text())
    assert report["command"] == "dgvf bench start --steps 100 200"
    assert [row["compile"] for row in report["rows"]] == 2 * ["False", "auto", "True", "auto, full cache"]
    assert "0.2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_case_in_a_process_of_its_own(tmp_path: Path) -> None:
    row = cold_start.measure("auto", 240, tmp_path)
    assert row["compiled_s"] is None  # too short to be compiled
    assert 0 < row["first_update_s"] < row["total_s"]


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"steps must be >= 1, got \(0,\)"):
        cold_start.ColdStartBenchmark((0,))
