"""`dgvf train --learners N` and `--restarts R`: runs that other processes train, and how these end."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
import torch.distributed as dist

from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder, read_origins
from dgvf_agents.train.learners import LearnerDiedError, LearnerError, train_in_processes
from dgvf_agents.train.recorder import TrainingInterruptedError
from dgvf_agents.train.stability import probe
from tests.run_folders import tiny_config

CONFIG = tiny_config(
    algorithm="impala",
    env="CollectObjectsSmall-v0",
    env_wrapper="tests.train.test_learners:Failing",
    steps=800,
    learners=2,
    question_encoder="shared",
    checkpoint_every=200,
    log_every=160,
    evaluate_every=400,
)
ALONE = dataclasses.replace(CONFIG, learners=1)


class LocalError(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: str, another: str) -> None:
        super().__init__(one + another)


class Failing(gym.Wrapper):
    """Does what the environment variable FAILURE says after 60 steps, in the learner that it names."""

    steps = 0

    def step(self, action: Any) -> Any:
        what, _, learner = os.environ.get("FAILURE", "").partition(" ")
        rank = dist.get_rank() if dist.is_initialized() else 0
        self.steps += 1
        if self.steps == 60 and learner == str(rank):
            own = Path(os.environ["PROCESSES"], str(os.getpid()))
            if not own.exists():
                own.touch()
                fail(what, first=len(list(own.parent.iterdir())) == 1)
        return self.env.step(action)


def fail(what: str, first: bool) -> None:
    if what == "killed" or (what == "killed-once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exits":
        os._exit(3)
    if what == "interrupts":
        os.kill(os.getppid(), signal.SIGINT)
    if what == "raises":
        raise ValueError("broken environment")
    if what == "raises-locally":
        raise LocalError("broken ", "environment")


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file for every process that failed; in the end none is left."""
    folder = tmp_path / "processes"
    folder.mkdir()
    monkeypatch.setenv("PROCESSES", str(folder))
    yield folder
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_learner_0_writes_a_run_that_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train_in_processes(CONFIG, path, show_progress=False)
    folder = RunFolder(path)
    assert folder.is_finished()
    assert [file.stem for file in folder.checkpoints()] == ["0000000200", "0000000400", "0000000600", "0000000800"]
    rows = [line.split(",") for line in folder.progress_file.read_text().splitlines()]
    steps, updates, meta = (rows[0].index(name) for name in ("time/total_timesteps", "train/n_updates", "meta/updates"))
    assert [row[steps] for row in rows[1:]] == ["160", "320", "480", "640", "800"]
    assert (rows[-1][updates], rows[-1][meta]) == ("19", "6")
    assert len(list(path.glob("events.out.tfevents.*"))) == 1
    assert evaluate(path, 2)[0] >= 0
    assert [row.steps for row in probe(path)] == [600, 800]  # the complete ones
    folder.checkpoints()[-1].unlink()
    with pytest.raises(FileExistsError, match="must not hold a run already"):
        train_in_processes(CONFIG, path, show_progress=False)
    with pytest.raises(ValueError, match=r"differs in learners \(2, not 3\)"):
        train_in_processes(dataclasses.replace(CONFIG, learners=3), path, False, resume=True)
    train_in_processes(CONFIG, path, show_progress=False, resume=True)
    assert folder.is_finished()
    assert len(folder.progress_file.read_text().splitlines()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("learner", [0, 1])
def test_training_restarts_after_a_learner_was_killed(
    learner: int, tmp_path: Path, processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILURE", f"killed-once {learner}")
    train_in_processes(CONFIG, tmp_path / "run", show_progress=False, restarts=2)
    assert [origin.steps for origin in read_origins(RunFolder(tmp_path / "run"))] == [0, 400]
    assert RunFolder(tmp_path / "run").is_finished()


def test_training_restarts_no_more_often_than_allowed(
    tmp_path: Path, processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILURE", "killed 0")
    with pytest.raises(LearnerDiedError, match=r"learner 0 died: killed by signal 9 \(SIGKILL\)"):
        train_in_processes(ALONE, tmp_path / "run", show_progress=False, restarts=1)
    assert [origin.steps for origin in read_origins(RunFolder(tmp_path / "run"))] == [0, 200]
    assert len(list(processes.iterdir())) == 2


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        ("raises 1", ValueError, "^broken environment$"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("raises 0", ValueError, "^broken environment$"),
                ("raises-locally 1", LearnerError, r"(?s)in learner 1:.*LocalError: broken environment"),
                ("exits 1", LearnerDiedError, "^learner 1 died: exit status 3$"),
                ("killed 1", LearnerDiedError, "^learner 1 died: killed by signal 9"),
            )
        ),
    ],
)
def test_the_first_cause_is_raised_and_ends_all_learners(
    failure: str, error: Any, message: str, tmp_path: Path, processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILURE", failure)
    with pytest.raises(error, match=message) as raised:
        train_in_processes(CONFIG, tmp_path / "run", show_progress=False, restarts=0 if "killed" in failure else 3)
    if "raises" in failure:
        assert "in learner" in str(raised.value.__cause__)
    assert len(list(processes.iterdir())) == 1


@pytest.mark.parametrize("config", [ALONE, pytest.param(CONFIG, marks=pytest.mark.slow)])
def test_ctrl_c_writes_a_checkpoint(
    config: TrainConfig, tmp_path: Path, processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILURE", "interrupts 0")
    usual = signal.getsignal(signal.SIGINT)
    long = dataclasses.replace(config, steps=1_000_000, checkpoint_every=1_000_000)
    with pytest.raises(TrainingInterruptedError):
        train_in_processes(long, tmp_path / "run", show_progress=False, restarts=2)
    assert RunFolder(tmp_path / "run").checkpoints()
    assert signal.getsignal(signal.SIGINT) is usual


@pytest.mark.slow
def test_a_killed_learner_finds_its_actors_again(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder = RunFolder(tmp_path / "run")
    config = dataclasses.replace(ALONE, env_wrapper=None, actors=1, steps=4000, evaluate_every=4000)

    def kill() -> None:
        while not folder.checkpoints():
            time.sleep(0.1)
        multiprocessing.active_children()[0].kill()

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    train_in_processes(config, folder.path, show_progress=False, restarts=1)
    killing.join(1.0)
    assert folder.is_finished()
    assert "RAY_ADDRESS" not in os.environ
    assert [origin.steps > 0 for origin in read_origins(folder)] == [False, True]


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:0", "device must be 'cuda', 'auto' or 'cpu' for several learners, got 'cuda:0'"),
        ("auto", "learners must be <= 1, the number of CUDA devices, got 2"),
    ],
)
def test_each_learner_needs_a_device(device: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=message):
        train_in_processes(dataclasses.replace(CONFIG, device=device), Path("never"))
