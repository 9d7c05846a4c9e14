"""`dgvf bench atari` through its real main, with tiny settings."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch

from dgvf_agents.bench import atari
from dgvf_agents.bench.memory import Peak
from dgvf_agents.bench.timing import PARTS, Stopwatch
from dgvf_agents.cli import main
from dgvf_agents.options import AtariMethod
from dgvf_agents.train.config import TrainConfig, atari_config
from dgvf_envs.atari import PAPER

SMALL = ["--game", "Pong", "--n-envs", "2", "--n-steps", "4", "--questions", "3", "--unroll-lengths", "1"]
SMALL += ["--device", "cpu", "--no-compile", "--seconds", "0.01", "--repetitions", "1"]


@pytest.mark.slow
def test_tables_and_report_of_cases_measured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the processes and the size of frames that make it slow."""

    def small_frames(game: str, method: AtariMethod) -> TrainConfig:
        small = dataclasses.replace(PAPER, frame_size=36)
        return dataclasses.replace(atari_config(game, method), atari=small, unroll_length=2)

    monkeypatch.setattr(atari, "atari_config", small_frames)
    monkeypatch.setattr(atari.AtariBenchmark, "isolated", False)
    output = tmp_path / "report.json"
    main(["bench", "atari", *SMALL, "--output", str(output)])
    report = json.loads(output.read_text())
    assert report["command"].startswith("dgvf bench atari --game Pong --n-envs 2")
    assert set(report["hardware"]) == {"processor", "cores"}
    environments, speed, plain, discovered, graph, recompute = report["rows"]
    assert {row["device"] for row in report["rows"]} == {"cpu"}
    assert environments["vector_steps_per_s"] > 0
    assert list(speed["steps_per_s"]) == list(atari.AGENTS)
    assert all(rate > 0 for rate in speed["steps_per_s"].values())
    for row in (plain, discovered):
        assert set(row["fractions"]) == set(PARTS)
        assert sum(row["fractions"].values()) == pytest.approx(1.0)
        assert all(row["fractions"][part] > 0 for part in ("environment", "acting", "inner updates"))
    assert plain["fractions"]["meta-gradient"] == 0 < discovered["fractions"]["meta-gradient"]
    assert [(row["unroll_length"], row["storage"]) for row in (graph, recompute)] == [(1, "graph"), (1, "recompute")]
    assert graph["copies_mib"] == recompute["copies_mib"] > 0
    assert all(row["ms_per_update"] > 0 for row in (graph, recompute))
    shown = capsys.readouterr().out
    assert "Where the time goes" in shown
    assert "Growth with the unroll length L" in shown


@pytest.mark.slow
def test_cases_in_processes_of_their_own(tmp_path: Path) -> None:
    main(["bench", "atari", *SMALL, "--output", str(tmp_path / "report.json")])
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["measure"] for row in rows] == ["environments", "speed", "parts", "parts", "growth", "growth"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game": "Breakuot"}, "did you mean Breakout"),
        ({"seconds": 0.0}, "seconds must be > 0, got 0.0"),
        ({"n_envs": 0}, "n_envs must be >= 1, got 0"),
        ({"unroll_lengths": ()}, r"unroll_lengths must have a value, got \(\)"),
        ({"unroll_lengths": (2, 0)}, r"unroll_lengths must be >= 1, got \(2, 0\)"),
        ({"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda' or 'cuda:<index>', got 'gpu'"),
    ],
)
def test_bad_settings_are_named(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        atari.AtariBenchmark(**changes)


class Cook:
    def cook(self) -> None:
        time.sleep(0.03)
        self.chop()

    def chop(self) -> None:
        time.sleep(0.01)


def test_time_within_a_part_of_its_own_is_not_counted_twice() -> None:
    cook, watch = Cook(), Stopwatch()
    watch.time(cook, "cook", "cooking")
    watch.time(cook, "chop", "chopping")
    start = time.perf_counter()
    cook.cook()
    cook.chop()
    total = time.perf_counter() - start
    assert watch.seconds["cooking"] >= 0.03
    assert watch.seconds["chopping"] >= 0.02
    assert sum(watch.seconds.values()) <= total


def test_the_peak_is_over_what_there_was() -> None:
    kept = torch.ones(2**20)
    peak = Peak()
    del kept
    assert peak.mib() < 8
    more = torch.ones(16 * 2**20)
    assert 40 < peak.mib() < 80
    del more
    assert peak.mib() > 40
