"""`dgvf train --learners N`: runs with several learners."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dgvf_agents.commands import run
from dgvf_agents.core.finite import NotFiniteError
from dgvf_agents.train import train_learners
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.interrupts import StopRequest, TrainingInterruptedError
from dgvf_agents.train.probe import probe
from dgvf_agents.train.train_learners import LearnerDiedError, LearnerError

CONFIG = TrainConfig(
    algorithm="impala",
    env="CollectObjectsSmall-v0",
    steps=400,
    n_envs=4,
    learners=2,
    questions=4,
    question_encoder="shared",
    unroll_length=3,
    compile=False,
    checkpoint_every=200,
    log_every=80,
    evaluate_every=200,
    evaluation_episodes=2,
)


@pytest.mark.slow
def test_learner_0_writes_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train_learners.train_learners(CONFIG, path, show_progress=False)
    folder = RunFolder(path)
    assert folder.is_finished()
    assert [file.stem for file in folder.checkpoints()] == ["0000000200", "0000000400"]
    rows = [line.split(",") for line in folder.progress_file.read_text().splitlines()]
    steps, updates, meta = (rows[0].index(name) for name in ("time/total_timesteps", "train/n_updates", "meta/updates"))
    assert [row[steps] for row in rows[1:]] == ["80", "160", "240", "320", "400"]
    assert (rows[-1][updates], rows[-1][meta]) == ("9", "2")
    assert len(list(path.glob("events.out.tfevents.*"))) == 1
    assert evaluate(path, 2)[0] >= 0
    assert [row.steps for row in probe(path)] == [200, 400]


@pytest.mark.slow
def test_a_run_is_resumed_from_its_checkpoint(tmp_path: Path) -> None:
    train_learners.train_learners(CONFIG, tmp_path, show_progress=False)
    folder = RunFolder(tmp_path)
    folder.checkpoints()[-1].unlink()
    with pytest.raises(FileExistsError, match="path must not hold a run already"):
        train_learners.train_learners(CONFIG, tmp_path, show_progress=False)
    with pytest.raises(ValueError, match=r"differs in learners \(2, not 3\)"):
        train_learners.train_learners(dataclasses.replace(CONFIG, learners=3), tmp_path, False, resume=True)
    train_learners.train_learners(CONFIG, tmp_path, show_progress=False, resume=True)
    assert [file.stem for file in folder.checkpoints()] == ["0000000200", "0000000400"]
    assert len(folder.progress_file.read_text().splitlines()) == 6
    train_learners.train_learners(CONFIG, tmp_path, show_progress=False, resume=True)  # is finished


def _once_training(folder: RunFolder, act: Any) -> threading.Thread:
    """Calls a function once the run has a checkpoint."""

    def wait() -> None:
        until = time.monotonic() + 120
        while not folder.checkpoints() and time.monotonic() < until:
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize("learner", [0, 1])
def test_a_learner_that_is_killed_ends_the_run(learner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = train_learners._Worker.start
    monkeypatch.setattr(train_learners._Worker, "start", lambda *given: started.append(start(*given)) or started[-1])
    long = dataclasses.replace(CONFIG, steps=1_000_000)
    _once_training(RunFolder(tmp_path), lambda: os.kill(started[learner].process.pid, signal.SIGKILL))
    with pytest.raises(LearnerDiedError, match=rf"learner {learner} died: killed by signal 9 \(SIGKILL\)"):
        train_learners.train_learners(long, tmp_path, show_progress=False)
    assert not any(worker.process.is_alive() for worker in started)


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint(tmp_path: Path) -> None:
    long = dataclasses.replace(CONFIG, steps=1_000_000)
    _once_training(RunFolder(tmp_path), lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingInterruptedError):
        train_learners.train_learners(long, tmp_path, show_progress=False)
    assert RunFolder(tmp_path).checkpoints()


# --- failures ---------------------------------------------------------------------------------------------------------


def _worker(learner: int, *outcomes: Any, ends: bool = True, exit_code: int = 0) -> tuple[Any, Any]:
    """A worker whose process has sent these, and the process's end of the pipe."""
    own, others = Pipe()
    for outcome in outcomes:
        others.send(outcome)
    if ends:
        others.close()
    process: Any = SimpleNamespace(join=lambda: None, exitcode=exit_code)
    return train_learners._Worker(learner, process, own), others


def _failed(error: BaseException, learner: int) -> Any:
    try:
        raise error
    except BaseException as raised:
        return train_learners._failure(raised, learner)


LOST = RuntimeError("[../gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:3000")


@pytest.mark.parametrize(
    ("others", "error", "message"),
    [
        ({"exit_code": -9}, LearnerDiedError, r"^learner 1 died: killed by signal 9 \(SIGKILL\)$"),
        ({"exit_code": 3}, LearnerDiedError, "^learner 1 died: exit status 3$"),
        ({"sends": ValueError("n_envs must be >= 1, got 0")}, ValueError, "^n_envs must be >= 1, got 0$"),
        ({"sends": RuntimeError("broken environment")}, RuntimeError, "^broken environment$"),
        ({"sends": NotFiniteError("theta is nan")}, NotFiniteError, "theta is nan"),
    ],
)
def test_the_first_cause_is_reported(others: dict[str, Any], error: Any, message: str) -> None:
    """Learner 0 fails because learner 1 does."""
    sent = [_failed(others["sends"], 1)] if "sends" in others else []
    second, _ = _worker(1, *sent, exit_code=others.get("exit_code", 0))
    first, _ = _worker(0, _failed(LOST, 0))
    with pytest.raises(error, match=message) as raised:
        train_learners._watch([first, second], StopRequest(), Path())
    assert isinstance(raised.value.__cause__, LearnerError)
    assert "in learner 1" in str(raised.value.__cause__)


def test_a_lost_connection_is_reported_if_nothing_else_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_learners, "_GRACE", 0.2)
    first, _ = _worker(0, _failed(LOST, 0))
    second, _open = _worker(1, ends=False)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        train_learners._watch([first, second], StopRequest(), Path())


def test_errors_that_do_not_travel_are_told() -> None:
    class LocalError(Exception):
        pass

    failure = _failed(LocalError("here"), 1)
    assert isinstance(failure.error, LearnerError)
    assert "in learner 1" in str(failure.error)
    assert "LocalError: here" in str(failure.error)


def test_ctrl_c_is_passed_on_to_learner_0() -> None:
    first, end = _worker(0, ends=False)
    second, _ = _worker(1, None)

    def learner() -> None:
        stop = train_learners._stop_request(end)
        while not stop.asked:
            time.sleep(0.01)
        end.send(_failed(TrainingInterruptedError(Path("run")), 0))

    thread = threading.Thread(target=learner, daemon=True)
    thread.start()
    with pytest.raises(TrainingInterruptedError, match="training in run was interrupted"):
        train_learners._watch([first, second], StopRequest(asked=True), Path("run"))
    thread.join()


# --- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learners": 0}, "learners must be >= 1, got 0"),
        ({"algorithm": "a2c"}, "learners must be 1 unless the algorithm is impala, got 2"),
    ],
)
def test_configurations_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


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
        train_learners.train_learners(dataclasses.replace(CONFIG, device=device), Path("never"))


def test_configurations_of_earlier_runs_have_one_learner() -> None:
    fields = dataclasses.asdict(CONFIG)
    del fields["learners"]
    assert TrainConfig.from_fields(fields) == dataclasses.replace(CONFIG, learners=1)
    assert CONFIG.steps_per_update == 2 * 4 * 5


def test_the_command_starts_learners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[Any] = []
    monkeypatch.setattr(train_learners, "train_learners", lambda *given, **options: called.append((given, options)))
    command = ["train", "collect-objects-small", "discovered", "--algorithm", "impala", "--learners", "2"]
    run([*command, "--out", str(tmp_path / "run"), "--resume"])
    (((config, path), options),) = called
    assert (config.learners, config.algorithm, path, options) == (2, "impala", tmp_path / "run", {"resume": True})
