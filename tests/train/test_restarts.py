"""A supervised learner: what it is restarted after, and what not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.restarts import dying_with_learners, lasting_cluster, supervise
from dgvf_agents.train.train_learners import LearnerDiedError


def _killed(journal: Path, times: int, resume: bool) -> None:
    """A learner that kills itself the first so many times."""
    with journal.open("a") as file:
        file.write(f"{resume}\n")
    if len(journal.read_text().splitlines()) <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def _exits(journal: Path, status: int, resume: bool) -> None:
    _killed(journal, 0, resume)
    sys.exit(status)


def _waits(journal: Path, resume: bool) -> None:
    _killed(journal, 0, resume)
    time.sleep(60)


@pytest.mark.parametrize(
    ("first", "expected"),
    [(False, [False, True, True]), pytest.param(True, [True, True, True], marks=pytest.mark.slow)],
)
def test_a_killed_learner_is_resumed(first: bool, expected: list[bool], tmp_path: Path) -> None:
    assert supervise(partial(_killed, tmp_path / "journal", 2), 3, first) == 0
    assert (tmp_path / "journal").read_text().split() == [str(resume) for resume in expected]


def test_no_more_often_than_allowed(tmp_path: Path) -> None:
    assert supervise(partial(_killed, tmp_path / "journal", 9), 1, False) == 128 + signal.SIGKILL
    assert len((tmp_path / "journal").read_text().split()) == 2


def test_not_after_an_error(tmp_path: Path) -> None:
    assert supervise(partial(_exits, tmp_path / "journal", 2), 5, False) == 2
    assert len((tmp_path / "journal").read_text().split()) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 1)])
def test_not_after_a_signal_to_the_supervisor(number: signal.Signals, status: int, tmp_path: Path) -> None:
    journal, usual = tmp_path / "journal", signal.getsignal(number)

    def terminate() -> None:
        while not journal.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=terminate).start()
    assert supervise(partial(_waits, journal), 5, False) == status
    assert len(journal.read_text().split()) == 1
    assert signal.getsignal(number) is usual


def _loses_a_learner(journal: Path, status: int | None, resume: bool) -> None:
    with dying_with_learners():
        _killed(journal, 0, resume)
        if not resume:
            raise LearnerDiedError(1, status)


def test_after_one_of_several_learners_was_killed(tmp_path: Path) -> None:
    assert supervise(partial(_loses_a_learner, tmp_path / "journal", -signal.SIGKILL), 5, False) == 0
    assert (tmp_path / "journal").read_text().split() == ["False", "True"]


def test_not_after_one_of_several_learners_failed(tmp_path: Path) -> None:
    assert supervise(partial(_loses_a_learner, tmp_path / "journal", 3), 5, False) == 1
    assert len((tmp_path / "journal").read_text().split()) == 1


def test_runs_without_actors_need_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgvf_agents.impala.cluster", None)
    with lasting_cluster(TrainConfig()):
        pass
    with lasting_cluster(TrainConfig(algorithm="impala", actors=2, address="10.0.0.1:6379")):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [[], ["--algorithm", "impala", "--actors", "1"], ["--algorithm", "impala", "--learners", "2"]]
)
def test_a_run_is_finished_although_its_learner_is_killed(kind: list[str], tmp_path: Path) -> None:
    if "--actors" in kind:
        pytest.importorskip("ray")
    options = ["--steps", "4000", "--checkpoint-every", "500", "--evaluate-every", "4000", "--compile", "False"]
    options += ["--restarts", "3", "--out", str(tmp_path / "run"), "--questions", "4"]
    command = [sys.executable, "-m", "dgvf_agents.cli", "train", "collect-objects-small", "discovered", *options, *kind]
    supervisor = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while not list((tmp_path / "run").glob("checkpoints/*")):
            time.sleep(0.1)
            assert supervisor.poll() is None
        learner = _learner_of(supervisor.pid)
        os.kill(_learner_of(learner) if "--learners" in kind else learner, signal.SIGKILL)
        _, told = supervisor.communicate(timeout=300)
    finally:
        supervisor.kill()
    assert supervisor.returncode == 0, told
    assert "the learner was killed by SIGKILL; resumed, 1 of 3" in told


def _learner_of(supervisor: int) -> int:
    """The child that is a spawned Python process, neither Ray's nor the resource tracker."""
    for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise AssertionError("there is no learner")
