"""`dgvf bench impala` through its real main, with tiny settings and without Ray; the numbers of its tables."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dgvf_agents.bench import impala
from dgvf_agents.bench.impala import ImpalaBenchmark, speed_rows
from dgvf_agents.cli import main
from dgvf_agents.impala.algorithm import DGVFImpala


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impala, "find_spec", lambda name: None)
    monkeypatch.setattr(impala, "_rllib_rates", lambda case, actors: {})
    monkeypatch.setattr(ImpalaBenchmark, "isolated", False)


@pytest.mark.usefixtures("without_ray")
def test_speed_and_parts_of_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report.json"
    small = ["--n-envs", "4", "--n-steps", "5", "--unroll-length", "2", "--seconds", "0.05", "--repetitions", "1"]
    main(["bench", "impala", "--worlds", "PuddleWorld-v0", "--no-compile", *small, "--output", str(output)])
    speed, parts = json.loads(output.read_text())["rows"]
    assert speed["steps_per_s"].keys() == {"none-0", "discovered-0"}
    shown = capsys.readouterr().out
    for rate in speed["steps_per_s"].values():
        assert f"{rate:,.0f}" in shown
    # observations of two float32 numbers at 6 times, and an action, a reward, two flags and a log-probability at 5
    assert parts["rollout_bytes"] == 4 * (6 * 2 * 4 + 5 * (8 + 4 + 1 + 1 + 4)) + 4
    assert parts["parameter_bytes"] == 4 * (2 * 128 + 128 + 128 * 128 + 128 + 128 * 5 + 5 + 128 + 1)
    assert parts["update_discovered_gflop"] > 2 * parts["update_none_gflop"] > 0
    assert 0 < parts["environment_ms"] < 1000
    assert 0 < parts["acting_ms"] < 1000


@pytest.mark.usefixtures("without_ray")
def test_parts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--n-envs", "2", "--n-steps", "2", "--unroll-length", "2", "--seconds", "0.01"]
    main(["bench", "impala", "--worlds", "PuddleWorld-v0", "--no-compile", *small, "--measures", "parts"])
    shown = capsys.readouterr().out
    assert "Milliseconds per batch" in shown
    assert "environment steps per second" not in shown


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(("world", "plays"), [("Pong", True), ("PuddleWorld-v0", False)])
def test_games_are_also_played_with_a_bfloat16_encoder_if_asked(
    world: str, plays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: dict[str, DGVFImpala] = {}

    def rates_of(rates: dict[str, Any], *given: Any) -> dict[str, float]:
        models.update({name: rate.args[0] for name, rate in rates.items()})
        return dict.fromkeys(rates, 1.0)

    monkeypatch.setattr(impala, "median_rates", rates_of)
    monkeypatch.setattr(impala, "_compile", lambda model: None)
    settings = ImpalaBenchmark(worlds=(world,), actors=(0,), n_envs=1, compile=False, mixed_precision=True)
    row = impala.speed(settings.cases()[0], settings)
    assert {name: model.mixed_precision for name, model in models.items()} == {
        "none-0": False,
        **({"bfloat16-0": True} if plays else {}),
        "discovered-0": False,
    }
    assert models["none-0"].auxiliary_task == "none"
    assert all(model.auxiliary_task == "none" for name, model in models.items() if name == "bfloat16-0")
    shown = [agent["agent"] for agent in speed_rows([{"world": world, **row}])]
    assert ("IMPALA, bfloat16 encoder" in shown) == plays


def test_a_learner_has_the_threads_that_were_asked_for_and_parts_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    measures = dict.fromkeys(impala.MEASURES, lambda case, settings: {"threads": torch.get_num_threads()})
    monkeypatch.setattr(impala, "MEASURES", measures)
    settings = ImpalaBenchmark(worlds=("PuddleWorld-v0",), threads=before + 1)
    try:
        found = {case["measure"]: settings.measure(case)["threads"] for case in settings.cases()}
    finally:
        torch.set_num_threads(before)
    assert found == {"speed": before + 1, "parts": 1}


def test_ratios_are_to_the_faster_of_rllib_and_to_plain_impala_with_as_many_actors() -> None:
    rates = {
        "none-0": 60.0,
        "none-2": 90.0,
        "discovered-0": 20.0,
        "discovered-2": 45.0,
        "rllib-0": 30.0,
        "rllib-1": 25.0,
    }
    rows = speed_rows([{"world": "W", "steps_per_s": rates}])
    assert [row["to_rllib"] for row in rows] == ["2.00x", "3.00x", "0.67x", "1.50x", "1.00x", "0.83x"]
    assert [row["time"] for row in rows] == ["–", "–", "3.00x", "2.00x", "–", "–"]
    assert [row["actors"] for row in rows] == ["0", "2", "0", "2", "", ""]
    without = speed_rows([{"world": "W", "steps_per_s": {"none-0": 60.0}}])
    assert without[0]["to_rllib"] == "–"


def test_the_page_computes_a_cluster_from_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    page_of = importlib.import_module("impala_benchmarks").impala
    parts = {"environment_ms": 50.0, "acting_ms": 350.0, "transport_ms": 100.0, "update_none_ms": 1500.0}
    parts |= {"update_discovered_ms": 3000.0, "update_none_gflop": 69.0, "rollout_bytes": 1e6, "parameter_bytes": 4e6}
    settings = {"n_envs": 8, "n_steps": 20, "unroll_length": 10, "repetitions": 1, "seconds": 5.0}
    report = {"command": "", "hardware": {"processor": "", "cores": 2}, "versions": {}, "settings": settings}
    speed = {"measure": "speed", "world": "Pong", "steps_per_s": {"none-0": 100.0}}
    page = page_of([{**report, "rows": [speed, {"measure": "parts", "world": "Pong", **parts}]}])
    assert "| Pong | 50.0 (2%) | 350.0 (18%) | 100.0 (5%) | 1500.0 (75%) | 3000.0 | 69.00 | 1,000 |" in page
    assert "200 actors collect 80,000 steps/s" in page  # 200 actors, 160 steps in 0.4 s each
    # 4 times 69 GFLOP on a tenth of 19.5 TFLOP/s take 141.5 ms, for 640 steps
    assert "| 10% | 141.5 | 4,522 | 4,522 | learner | 28 | 28 |" in page
    assert "### A cluster" not in page_of([{**report, "rows": [speed]}])
    gpu = {**report, "hardware": {**report["hardware"], "accelerator": "a GPU"}}  # type: ignore[dict-item]
    updates = {"measure": "parts", "world": "Pong", **parts, "update_discovered_gflop": 600.0}
    page = page_of([{**gpu, "rows": [updates]}])
    assert "Updates on a GPU" in page
    assert "| Pong | discovered GVFs | 3000.0 | 53 | 0.2 |" in page  # 160 steps and 600 GFLOP in 3 s
    assert "### A cluster" not in page
    page = page_of([{**report, "rows": [speed, updates]}, {**gpu, "rows": [updates]}])
    assert "| a GPU, measured | 6000.0 | 107 | 107 | learner | 1 | 1 |" in page  # 160 steps in 1.5 s


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"actors must be divisors of n_envs = 32, got 5"):
        ImpalaBenchmark(actors=(0, 5))
    with pytest.raises(ValueError, match="n_steps must be >= 1"):
        ImpalaBenchmark(n_steps=0)
    with pytest.raises(ValueError, match="Ponng"):
        ImpalaBenchmark(worlds=("Ponng",))
