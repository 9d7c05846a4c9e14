"""Every benchmark through its real main, with tiny settings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgvf_agents.bench import harness, training
from dgvf_agents.bench.harness import Benchmark
from dgvf_agents.bench.impala import RLLIB, speed_rows
from dgvf_agents.cli import main
from dgvf_agents.execution.cache import FOLDER
from dgvf_agents.options import AtariMethod
from dgvf_agents.train.config import TrainConfig, atari_config
from dgvf_envs.atari import PAPER

slow = partial(pytest.param, marks=pytest.mark.slow)
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


TINY: dict[str, tuple[str, int, str]] = {
    "envs": ("--ids PuddleWorld-v0 --copies 1 3 --games pong --game-copies 2", 3, "vector env"),
    "agents": ("--worlds PuddleWorld-v0 --threads 1 --unroll-lengths 2 --questions 8", 4, "discovered GVFs"),
    "atari": (
        "--game Pong --n-envs 2 --n-steps 4 --unroll-lengths 1 --no-compile --device cpu",
        3,
        "SB3 A2C, our envs",
    ),
    "population": ("--members 2 3 --worlds PuddleWorld-v0", 2, "population"),
    "impala": ("--worlds PuddleWorld-v0 --no-compile --n-envs 4 --n-steps 5 --unroll-length 2", 3, "time, to IMPALA"),
    "ppo": ("", 1, "SB3 PPO"),
}
"""Options of each benchmark, the number of its rows, and a column."""
RATIOS = {
    "to SyncVectorEnv": ("vector env", "SyncVectorEnv"),
    "to make_atari_env": ("vector env", "make_atari_env"),
    "time, discovered / our A2C": ("our A2C", "discovered GVFs"),
    "discovered / SB3": ("discovered GVFs", "SB3 A2C"),
    "time, discovered / random": ("random", "discovered"),
    "ratio": ("population", "alone"),
}


@pytest.mark.parametrize("name", [*("envs", "population", "impala"), *map(slow, ("agents", "atari", "ppo"))])
def test_every_benchmark_measures_and_compares(name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(game: str, method: AtariMethod) -> TrainConfig:
        return dataclasses.replace(atari_config(game, method), atari=dataclasses.replace(PAPER, frame_size=36))

    made = training.grid_agent
    monkeypatch.setattr(training, "grid_agent", lambda *given, **sizes: made(*given, **{"unroll_length": 2, **sizes}))
    monkeypatch.setattr(training, "atari_config", small)
    monkeypatch.setattr(training, "_PPO_SETTINGS", {"CartPole-v1": {"n_steps": 64}})
    options, number, column = TINY[name]
    report, shown = bench(name, *options.split(), "--seconds", "0.05", "--repetitions", "1")
    assert report["command"].startswith(f"dgvf bench {name} {options}")
    assert report["versions"]["numpy"] == np.__version__
    assert report["hardware"]["cores"] >= 1
    assert len(report["rows"]) == number
    assert column in shown
    assert "JAX" not in shown  # which was not measured
    for row in report["rows"]:
        assert all(value > 0 for name, value in row.items() if isinstance(value, float) and "MiB" not in name)
        for ratio, (one, other) in RATIOS.items():
            assert ratio not in row or row[ratio] == pytest.approx(row[one] / row[other])


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


def test_ratios_of_impala_are_to_the_faster_of_rllib_and_to_as_many_actors() -> None:
    own = {("IMPALA", 0): 60.0, ("IMPALA", 2): 90.0, ("discovered GVFs", 0): 20.0, ("discovered GVFs", 2): 45.0}
    slow, fast, _ = RLLIB
    rows = speed_rows({**own, (fast, None): 30.0, (slow, None): 25.0})
    assert [row["to RLlib"] for row in rows] == pytest.approx([2.0, 3.0, 2 / 3, 1.5, 1.0, 25 / 30])
    assert [row.get("time, to IMPALA") for row in rows] == [None, None, 3.0, 2.0, None, None]
    (alone,) = speed_rows({("IMPALA", 0): 60.0})
    assert "to RLlib" not in alone


def test_the_first_hour_counts_whole_processes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ("import dgvf_envs", "dgvf --help")
    monkeypatch.setattr(training, "_COMMANDS", (*shown, training._MAKE_TRAIN))
    report, _ = bench("first-hour", "--no-training", "--repetitions", "2")
    assert tuple(row["command"] for row in report["rows"]) == shown
    assert all(0.05 < row["seconds"] < 60 for row in report["rows"])
