from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pygame
import pytest

from dgvf_agents import cli
from dgvf_agents.bench.environments import EnvsBenchmark

IDS = ["PuddleWorld-v0", "CollectObjectsSmall-v0"]


def test_the_command_measures_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dgvf bench envs` itself, with settings that take no time."""
    monkeypatch.chdir(tmp_path)
    output = Path("results") / "envs.json"
    arguments = ["--ids", *IDS, "--copies", "1", "3", "--seconds", "0.01", "--repetitions", "2"]
    cli.main(["bench", "envs", *arguments, "--games", "--output", str(output)])

    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [output]
    report = json.loads(output.read_text())
    assert report["command"].startswith("dgvf bench envs")
    games = {"games": [], "game_copies": [16], "threads": 1}
    assert report["settings"] == {"ids": IDS, "copies": [1, 3], "seconds": 0.01, "repetitions": 2, **games}
    assert {"python", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch"} <= report["versions"].keys()
    assert report["versions"]["numpy"] == np.__version__
    assert report["hardware"]["cores"] >= 1
    assert report["hardware"]["processor"]
    assert [(row["id"], row["copies"]) for row in report["rows"]] == [(env_id, n) for env_id in IDS for n in (1, 3)]
    for row in report["rows"]:
        assert row["vector_steps_per_s"] > 0
        assert row["ratio"] == pytest.approx(row["vector_steps_per_s"] / row["sync_steps_per_s"])
    shown = capsys.readouterr().out
    assert all(env_id in shown for env_id in IDS)
    assert not pygame.display.get_init()


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    output = tmp_path / "envs.json"
    output.write_text("old")
    rows = EnvsBenchmark(("PuddleWorld-v0",), (2,), (), seconds=0.001, repetitions=1, output=output).run()
    assert json.loads(output.read_text())["rows"] == rows
    assert list(tmp_path.iterdir()) == [output]


def test_without_an_output_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = EnvsBenchmark(("CollectObjects-v0",), (2,), (), seconds=0.001, repetitions=1).run()
    assert len(rows) == 1
    assert list(tmp_path.iterdir()) == []


def test_games_are_measured_three_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "envs.json"
    benchmark = EnvsBenchmark((), (), ("pong",), (2,), seconds=0.001, repetitions=1, output=output)
    (row,) = benchmark.run()
    assert (row["game"], row["copies"], row["threads"]) == ("Pong", 2, 1)
    assert row["ratio"] == pytest.approx(row["vector_steps_per_s"] / row["sync_steps_per_s"])
    assert row["sb3_ratio"] == pytest.approx(row["vector_steps_per_s"] / row["sb3_steps_per_s"])
    assert min(row["vector_steps_per_s"], row["sync_steps_per_s"], row["sb3_steps_per_s"]) > 0
    report = json.loads(output.read_text())
    assert report["rows"] == [row]
    assert "ale-py" in report["versions"]
    assert "Pong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 0.0}, r"^seconds must be > 0, got 0\.0"),
        ({"repetitions": 0}, "^repetitions must be >= 1, got 0"),
        ({"copies": (16, 0)}, r"^copies must be >= 1, got \(16, 0\)"),
        ({"threads": 0}, "^threads must be >= 1, got 0"),
        ({"game_copies": (0,)}, r"^game_copies must be >= 1, got \(0,\)"),
    ],
)
def test_bad_settings_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnvsBenchmark(**settings)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["bench", "envs", "--help"]])
def test_help_is_given(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 0
    assert "usage: dgvf" in capsys.readouterr().out


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "everything"])
    assert stopped.value.code != 0
    assert "everything" in capsys.readouterr().err
