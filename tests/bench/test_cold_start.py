"""The benchmark of how training starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dgvf_agents.bench import cold_start
from dgvf_agents.cli import main
from dgvf_agents.execution.compile_cache import FOLDER


def test_every_mode_is_measured_with_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caches = []

    def measure(case: dict[str, object]) -> dict[str, object]:
        cache = Path(os.environ[FOLDER])
        caches.append(cache.name)
        os.environ[FOLDER] = str(cache.parent)  # measured here, not in a new process
        return {"first_update_s": 0.25, "compiled_s": None, "total_s": 1.5}

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv(FOLDER, "before")
    monkeypatch.setattr(cold_start, "measure_start", measure)
    monkeypatch.setattr(cold_start.ColdStartBenchmark, "isolated", False)
    main(["bench", "start", "--steps", "100", "200", "--output", str(tmp_path / "start.json")])
    assert caches == [f"{mode}-{steps}" for steps in (100, 200) for mode in ("False", "auto", "True", "auto")]
    assert os.environ[FOLDER] == "before"
    report = json.loads((tmp_path / "start.json").read_text())
    assert report["command"] == "dgvf bench start --steps 100 200"
    assert [row["compile"] for row in report["rows"]] == 2 * ["False", "auto", "True", "auto, full cache"]
    assert "0.2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_case_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_start, "MODES", {"auto": "auto"})
    (row,) = cold_start.ColdStartBenchmark(steps=(240,)).run()
    assert row["compiled_s"] is None  # too short to be compiled
    assert 0 < row["first_update_s"] < row["total_s"]


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"steps must be >= 1, got \(0,\)"):
        cold_start.ColdStartBenchmark((0,))
