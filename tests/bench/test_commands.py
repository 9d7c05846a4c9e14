"""Every benchmark through its real main, with tiny settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgvf_agents.bench import cold_start, harness, training
from dgvf_agents.bench.cold_start import ColdStartBenchmark
from dgvf_agents.bench.environments import EnvsBenchmark
from dgvf_agents.bench.harness import Benchmark
from dgvf_agents.bench.impala import ImpalaBenchmark, speed_rows
from dgvf_agents.bench.population import PopulationBenchmark
from dgvf_agents.bench.training import AgentsBenchmark, AtariBenchmark
from dgvf_agents.cli import main
from dgvf_agents.execution.cache import FOLDER
from dgvf_agents.options import AtariMethod
from dgvf_agents.train.config import TrainConfig, atari_config
from dgvf_envs.atari import PAPER

Bench = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """The report of a command and what it prints, measured in this process without compilers, JAX and Ray."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setattr(harness, "find_spec", lambda name: None)
    monkeypatch.setattr("dgvf_agents.bench.impala.find_spec", lambda name: None)
    monkeypatch.setattr(Benchmark, "isolated", False)

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        main(["bench", *arguments, "--output", str(tmp_path / "report.json")])
        return json.loads((tmp_path / "report.json").read_text()), capsys.readouterr().out

    return run


def test_envs(bench: Bench) -> None:
    ids = ["PuddleWorld-v0", "CollectObjectsSmall-v0"]
    sizes = ["--copies", "1", "3", "--games", "pong", "--game-copies", "2"]
    report, shown = bench("envs", "--ids", *ids, *sizes, "--seconds", "0.01", "--repetitions", "1")
    assert report["settings"]["ids"] == ids
    assert report["versions"]["numpy"] == np.__version__
    assert report["hardware"]["cores"] >= 1
    *worlds, game = report["rows"]
    assert [(row["id"], row["copies"]) for row in worlds] == [(env_id, n) for env_id in ids for n in (1, 3)]
    for row in report["rows"]:
        assert f"{row['vector_steps_per_s']:,.0f}" in shown
    assert (game["game"], game["copies"]) == ("Pong", 2)
    made = EnvsBenchmark.tables(
        [{**game, "vector_steps_per_s": 600.0, "sync_steps_per_s": 200, "sb3_steps_per_s": 150}]
    )
    (table,) = made.values()
    assert table[["ratio", "to make_atari_env"]].to_numpy().tolist() == [[3.0, 4.0]]


@pytest.mark.slow
def test_agents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training.grid_agent
    monkeypatch.setattr(
        training, "grid_agent", lambda task, world, **sizes: made(task, world, **{"unroll_length": 2, **sizes})
    )
    sizes = ["--threads", "1", "--unroll-lengths", "2", "--questions", "8"]
    report, shown = bench("agents", "--worlds", "PuddleWorld-v0", *sizes, "--seconds", "0.05", "--repetitions", "1")
    speed, *growth = report["rows"]
    assert list(speed["steps_per_s"]) == ["sb3", "sb3-adapter", "none", "discovered"]
    assert min(speed["steps_per_s"].values()) > 0
    times = speed["ms_per_iteration"]
    assert times["discovered"]["learning"] > times["none"]["learning"] > 0 < times["none"]["collecting"]
    sizes_of = [(row["unroll_length"], row["questions"], row["storage"]) for row in growth]
    assert sizes_of == [(2, 128, "graph"), (2, 128, "recompute"), (10, 8, "graph")]
    assert min(row["ms_per_update"] for row in growth) > 0
    assert "discovered GVFs, learning" in shown
    assert "JAX" not in shown  # which was not measured


@pytest.mark.slow
def test_atari(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(game: str, method: AtariMethod) -> TrainConfig:
        return dataclasses.replace(atari_config(game, method), atari=dataclasses.replace(PAPER, frame_size=36))

    monkeypatch.setattr(training, "atari_config", small)
    sizes = ["--game", "Pong", "--n-envs", "2", "--n-steps", "4", "--questions", "3", "--unroll-lengths", "1"]
    report, shown = bench("atari", *sizes, "--device", "cpu", "--no-compile", "--seconds", "0.01", "--repetitions", "1")
    assert report["command"].startswith("dgvf bench atari --game Pong --n-envs 2")
    environments, speed, graph, recompute = report["rows"]
    assert environments["vector_steps_per_s"] > 0
    assert list(speed["steps_per_s"]) == ["sb3", "sb3-adapter", "none", "bfloat16", "discovered"]
    assert [(row["unroll_length"], row["storage"]) for row in (graph, recompute)] == [(1, "graph"), (1, "recompute")]
    assert f"{speed['steps_per_s']['bfloat16']:,.0f}" in shown


def test_population(bench: Bench) -> None:
    sizes = ["--members", "2", "3", "--worlds", "PuddleWorld-v0"]
    report, shown = bench("population", *sizes, "--seconds", "0.05", "--repetitions", "1")
    assert [row["members"] for row in report["rows"]] == [2, 3]
    for row in report["rows"]:
        rates = row["steps_per_s"]
        assert f"{rates['population']:,.0f}" in shown


def test_impala(bench: Bench) -> None:
    sizes = ["--worlds", "PuddleWorld-v0", "--no-compile", "--n-envs", "4", "--n-steps", "5", "--unroll-length", "2"]
    report, shown = bench("impala", *sizes, "--seconds", "0.05", "--repetitions", "1")
    speed, updates = report["rows"]
    assert speed["steps_per_s"].keys() == {"none-0", "discovered-0"}
    assert all(f"{rate:,.0f}" in shown for rate in speed["steps_per_s"].values())
    assert updates["update_discovered_ms"] > updates["update_none_ms"] > 0


def test_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mode has a cache of its own, but the last has the second's."""
    caches = []

    def measure(case: dict[str, object]) -> dict[str, object]:
        cache = Path(cold_start.os.environ[FOLDER])
        caches.append(cache.name)
        cold_start.os.environ[FOLDER] = str(cache.parent)  # measured here, not in a new process
        return {"first_update_s": 0.25, "compiled_s": None, "total_s": 1.5}

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv(FOLDER, "before")
    monkeypatch.setattr(cold_start, "measure_start", measure)
    report, _ = bench("start", "--steps", "100", "200")
    assert caches == [f"{mode}-{steps}" for steps in (100, 200) for mode in ("False", "auto", "True", "auto")]
    assert cold_start.os.environ[FOLDER] == "before"
    assert report["command"] == "dgvf bench start --steps 100 200"
    assert [row["compile"] for row in report["rows"]] == 2 * ["False", "auto", "True", "auto, full cache"]


def test_ratios_of_impala_are_to_the_faster_of_rllib_and_to_as_many_actors() -> None:
    rates = {"none-0": 60.0, "none-2": 90.0, "discovered-0": 20.0, "discovered-2": 45.0, "rllib-0": 30.0, "rllib-1": 25}
    rows = speed_rows([{"measure": "speed", "world": "W", "steps_per_s": rates}])
    assert [row["to_rllib"] for row in rows] == pytest.approx([2.0, 3.0, 2 / 3, 1.5, 1.0, 25 / 30])
    assert [row["time"] for row in rows] == [None, None, 3.0, 2.0, None, None]
    (alone,) = speed_rows([{"measure": "speed", "world": "W", "steps_per_s": {"none-0": 60.0}}])
    assert alone["to_rllib"] is None


@pytest.mark.parametrize(
    ("benchmark", "settings", "message"),
    [
        (EnvsBenchmark, {"copies": (16, 0)}, "copies must"),
        (AgentsBenchmark, {"seconds": 0.0}, "seconds must"),
        (AgentsBenchmark, {"worlds": ("Pong-v5",)}, "worlds must"),
        (AtariBenchmark, {"game": "Breakuot"}, "did you mean Breakout"),
        (AtariBenchmark, {"device": "gpu"}, "device must"),
        (PopulationBenchmark, {"members": (0,)}, "members must"),
        (ColdStartBenchmark, {"steps": (0,)}, "steps must"),
        (ImpalaBenchmark, {"actors": (0, 5)}, "actors must"),
        (ImpalaBenchmark, {"worlds": ("Ponng",)}, "Ponng"),
    ],
)
def test_bad_settings_are_named(benchmark: type[Benchmark], settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        benchmark(**settings)
