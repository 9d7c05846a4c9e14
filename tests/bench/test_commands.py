"""Every benchmark through its real main, with tiny settings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgvf_agents.bench import harness, training
from dgvf_agents.bench.environments import EnvsBenchmark
from dgvf_agents.bench.harness import Benchmark
from dgvf_agents.bench.impala import RLLIB, ImpalaBenchmark, speed_rows
from dgvf_agents.bench.training import AtariBenchmark, ColdStartBenchmark, PopulationBenchmark
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
    assert [(row["environment"], row["copies"]) for row in worlds] == [(env_id, n) for env_id in ids for n in (1, 3)]
    for row in report["rows"]:
        assert f"{row['vector env']:,.0f}" in shown
        assert row["to SyncVectorEnv"] == pytest.approx(row["vector env"] / row["SyncVectorEnv"])
    assert (game["environment"], game["copies"]) == ("Pong", 2)
    assert game["to make_atari_env"] == pytest.approx(game["vector env"] / game["make_atari_env"])


@pytest.mark.slow
def test_agents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training.grid_agent
    monkeypatch.setattr(
        training, "grid_agent", lambda task, world, **sizes: made(task, world, **{"unroll_length": 2, **sizes})
    )
    sizes = ["--threads", "1", "--unroll-lengths", "2", "--questions", "8"]
    report, shown = bench("agents", "--worlds", "PuddleWorld-v0", *sizes, "--seconds", "0.05", "--repetitions", "1")
    speed, parts, *growth = report["rows"]
    agents = ["SB3 A2C", "SB3 A2C, our envs", "our A2C", "discovered GVFs"]
    assert min(speed[agent] for agent in agents) > 0
    assert speed["time, discovered / our A2C"] == pytest.approx(speed["our A2C"] / speed["discovered GVFs"])
    assert parts["discovered GVFs, learning"] > parts["our A2C, learning"] > 0 < parts["our A2C, collecting"]
    sizes_of = [(row["L"], row["D"], row["storage"]) for row in growth]
    assert sizes_of == [(2, 128, "graph"), (2, 128, "recompute"), (10, 8, "graph")]
    assert min(row["ms per update"] for row in growth) > 0
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
    environments, speed, _, graph, recompute = report["rows"]
    assert environments["vector env"] > 0
    assert speed["discovered / SB3"] == pytest.approx(speed["discovered GVFs"] / speed["SB3 A2C"])
    assert [(row["L"], row["storage"]) for row in (graph, recompute)] == [(1, "graph"), (1, "recompute")]
    assert "our A2C, bfloat16 encoder" in shown


def test_population(bench: Bench) -> None:
    sizes = ["--members", "2", "3", "--worlds", "PuddleWorld-v0"]
    report, shown = bench("population", *sizes, "--seconds", "0.05", "--repetitions", "1")
    assert [row["members"] for row in report["rows"]] == [2, 3]
    for row in report["rows"]:
        assert row["ratio"] == pytest.approx(row["population"] / row["alone"])
        assert f"{row['population']:,.0f}" in shown


def test_impala(bench: Bench) -> None:
    sizes = ["--worlds", "PuddleWorld-v0", "--no-compile", "--n-envs", "4", "--n-steps", "5", "--unroll-length", "2"]
    report, shown = bench("impala", *sizes, "--seconds", "0.05", "--repetitions", "1")
    impala, discovered, updates = report["rows"]
    assert (impala["agent"], discovered["agent"], discovered["actors"]) == ("IMPALA", "discovered GVFs", 0)
    assert discovered["time, to IMPALA"] == pytest.approx(impala["steps/s"] / discovered["steps/s"])
    assert "time, to IMPALA" in shown
    assert updates["update, discovered GVFs"] > updates["update, IMPALA"] > 0


def test_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mode has a cache of its own, but the last has the second's; no update of so few runs compiled."""
    caches = []

    def agent(task: str, world: str, **settings: Any) -> Any:
        caches.append(Path(os.environ[FOLDER]).name)
        return made(task, world, **{**settings, "compile": False, "questions": 2})

    made = training.grid_agent
    monkeypatch.setenv(FOLDER, "before")
    monkeypatch.setattr(training, "grid_agent", agent)
    report, _ = bench("start", "--steps", "80", "160")
    assert caches == [f"{mode}-{steps}" for steps in (80, 160) for mode in ("False", "auto", "True", "auto")]
    assert os.environ[FOLDER] == "before"
    assert report["command"].startswith("dgvf bench start --steps 80 160 --output ")
    assert [row["compile"] for row in report["rows"]] == 2 * ["False", "auto", "True", "auto, full cache"]
    assert all((row["first update"] is None) == (row["steps"] == 80) for row in report["rows"])
    assert all(
        row["end"] > (row["first update"] or 0.0) and row["first compiled update"] is None for row in report["rows"]
    )


@pytest.mark.slow
def test_ppo(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_PPO_SETTINGS", {"CartPole-v1": {"n_steps": 64}})
    report, _ = bench("ppo", "--seconds", "0.05", "--repetitions", "1")
    (row,) = report["rows"]
    assert row["time, discovered / random"] == pytest.approx(row["random"] / row["discovered"])
    assert float(row["difference from SB3"]) < 1e-4 > float(row["SB3 from SB3 + 1e-7"]) > 0.0


def test_ratios_of_impala_are_to_the_faster_of_rllib_and_to_as_many_actors() -> None:
    own = {("IMPALA", 0): 60.0, ("IMPALA", 2): 90.0, ("discovered GVFs", 0): 20.0, ("discovered GVFs", 2): 45.0}
    slow, fast, _ = RLLIB
    rows = speed_rows({**own, (fast, None): 30.0, (slow, None): 25.0})
    assert [row["to RLlib"] for row in rows] == pytest.approx([2.0, 3.0, 2 / 3, 1.5, 1.0, 25 / 30])
    assert [row.get("time, to IMPALA") for row in rows] == [None, None, 3.0, 2.0, None, None]
    (alone,) = speed_rows({("IMPALA", 0): 60.0})
    assert "to RLlib" not in alone


@pytest.mark.parametrize(
    ("benchmark", "settings", "message"),
    [
        (EnvsBenchmark, {"copies": (16, 0)}, "copies must"),
        (EnvsBenchmark, {"seconds": 0.0}, "seconds must"),
        (AtariBenchmark, {"game": "Breakuot"}, "did you mean Breakout"),
        (AtariBenchmark, {"device": "gpu"}, "device must"),
        (PopulationBenchmark, {"members": (-1,)}, "members must"),
        (ColdStartBenchmark, {"steps": (0,)}, "steps must"),
        (ImpalaBenchmark, {"actors": (0, 5)}, "actors must"),
        (ImpalaBenchmark, {"worlds": ("Ponng",)}, "Ponng"),
    ],
)
def test_bad_settings_are_named(benchmark: type[Benchmark], settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        benchmark(**settings).cases()
