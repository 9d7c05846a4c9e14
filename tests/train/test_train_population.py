"""Runs that are trained at once against the same runs alone."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.population.population import Population
from dgvf_agents.train import train as train_module
from dgvf_agents.train.config import TrainConfig, preset
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.recorder import TrainingInterruptedError
from dgvf_agents.train.train import train, train_population

TIMES = ("time/time_elapsed", "time/fps")


CONFIG = dataclasses.replace(
    preset("puddle-world", "discovered"),
    steps=960,
    n_envs=4,
    questions=4,
    unroll_length=3,
    compile=False,
    log_every=120,
    evaluate_every=240,
    evaluation_episodes=4,
    checkpoint_every=400,
    env_kwargs={"reward_scale": 0.5, "start": "random", "max_episode_steps": 30},
    evaluation_kwargs={"max_episode_steps": 30},
)


def config(seed: int, **changes: Any) -> TrainConfig:
    return dataclasses.replace(CONFIG, seed=seed, **changes)


def configs() -> list[TrainConfig]:
    return [config(0), config(1, learning_rate=1e-3, gamma=0.95), config(2, ent_coef=0.5, final_ent_coef=0.1)]


def assert_equal_runs(found: Path, expected: Path) -> None:
    """All metrics, and the checkpoints' parameters."""
    tables = [pd.read_csv(path / "progress.csv").drop(columns=[*TIMES], errors="ignore") for path in (found, expected)]
    assert len(tables[0]) == 8
    pd.testing.assert_frame_equal(*tables, rtol=2e-3, atol=1e-5)
    files = [RunFolder(path).checkpoints() for path in (found, expected)]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    ends = [DGVFA2C.load(paths[-1], device="cpu").get_parameters() for paths in files]
    torch.testing.assert_close(ends[0], ends[1], rtol=2e-3, atol=2e-5)


def test_runs_trained_at_once_are_those_trained_alone(tmp_path: Path) -> None:
    paths = [tmp_path / f"run-{p}" for p in range(3)]
    assert train_population(configs(), paths) == [None, None, None]
    for p, own in enumerate(configs()):
        train(own, tmp_path / f"alone-{p}", show_progress=False)
        assert_equal_runs(paths[p], tmp_path / f"alone-{p}")
        assert RunFolder(paths[p]).is_finished()
    for path, lost in zip(paths, (0, 1, 2), strict=True):  # the next time, they are not equally far
        for file in RunFolder(path).checkpoints()[3 - lost :]:
            file.unlink()
    assert train_population(configs(), paths) == [None, None, None]
    assert all(RunFolder(path).is_finished() for path in paths)


@pytest.mark.slow
def test_interrupted_runs_continue_at_once_or_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, update, count = [tmp_path / f"run-{p}" for p in range(3)], Population.update, [0]

    def stopping(self: Population) -> None:
        update(self)
        count[0] += 1
        if count[0] == 17:  # in the middle of an unroll
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Population, "update", stopping)
        with pytest.raises(TrainingInterruptedError):
            train_population(configs(), paths)
    assert all(RunFolder(path).checkpoints()[-1].name.endswith(f"{17 * 20}.zip") for path in paths)
    train(configs()[0], paths[0], show_progress=False, resume=True)
    assert train_population(configs(), paths) == [None, None, None]
    for p, own in enumerate(configs()):
        train(own, tmp_path / f"alone-{p}", show_progress=False)
        tables = [pd.read_csv(path / "progress.csv") for path in (paths[p], tmp_path / f"alone-{p}")]
        np.testing.assert_allclose(tables[0]["train/value_loss"], tables[1]["train/value_loss"], rtol=2e-3, atol=1e-5)
        np.testing.assert_allclose(tables[0]["eval/mean_reward"], tables[1]["eval/mean_reward"], rtol=1e-3)


def test_a_run_that_diverges_stops_and_the_others_go_on(tmp_path: Path) -> None:
    paths = [tmp_path / f"run-{p}" for p in range(2)]
    diverging, other = config(0, learning_rate=1e30, final_learning_rate=1e30), config(1)
    failures = train_population([diverging, dataclasses.replace(other, final_learning_rate=0.0)], paths)
    assert isinstance(failures[0], NotFiniteError)
    assert failures[1] is None
    assert not RunFolder(paths[0]).is_finished()
    train(other, tmp_path / "alone", show_progress=False)
    assert_equal_runs(paths[1], tmp_path / "alone")


@pytest.mark.parametrize("failing", [0, 1])
def test_what_keeps_a_run_from_beginning_is_what_is_raised(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, record = [tmp_path / f"run-{p}" for p in range(2)], train_module.record_origin

    def full(folder: RunFolder, *arguments: Any) -> None:
        if folder.path == paths[failing]:
            raise OSError("No space left on device")
        record(folder, *arguments)

    monkeypatch.setattr(train_module, "record_origin", full)
    with pytest.raises(OSError, match="No space left"):
        train_population([config(0), config(1)], paths)
