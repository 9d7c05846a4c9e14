"""What `docs/files.md` promises of run folders from strangers."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from dgvf_agents.cli import main
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import train
from tests.helpers import refusal
from tests.train.test_checkpoint import CONFIG

RUN = dataclasses.replace(CONFIG, steps=160, log_every=20, evaluate_every=80)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "good"
    train(RUN, path, show_progress=False)
    return path


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    """A run that is not finished."""
    shutil.copytree(good, tmp_path / "run")
    change(tmp_path / "run", steps=240)
    return tmp_path / "run"


def change(run: Path, **fields: object) -> None:
    file = run / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def one_line(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    [line] = refusal(capsys, *arguments)
    return line


BOMB = gzip.compress(b"steps,episode,return,length\n" + b"1,1,1,1\n" * 2**23)
ROW = b"time/total_timesteps,b\n"
MALFORMED = {
    "config.json": [
        b"[" * 100_000,
        b"\xff",
        b"[]",
        b'{"env": []}',
        b'{"algorithm": null}',
        b'{"seed": "x"}',
        b"{" * 2**21,
    ],
    "origin.json": [b"[1]", b'[{"steps": 1}]', b"["],
    "progress.csv": [ROW + b"1\n", ROW + b"x,1\n", b"b\n1\n", ROW + b'1,"' + b"x" * 2**18, b"\xff", b"x" * 2**26],
    "evaluations.csv.gz": [b"x", BOMB, BOMB[:1000], gzip.compress(b"steps\n1\n"), gzip.compress(b"\xff")],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_of_a_run_gets_one_line(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for contents in MALFORMED[name]:
        (run / name).write_bytes(contents)
        assert name in one_line(capsys, "train", "--resume", run)
    (run / name).unlink()
    os.mkfifo(run / name)
    assert name.split(".")[0] in one_line(capsys, "train", "--resume", run)


@pytest.mark.parametrize("env", ["CollectObjectsSmall-v0", "CartPole-v1"])
def test_an_environment_that_is_not_the_checkpoint_s_gets_one_line(
    env: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run, env=env, env_kwargs={}, evaluation_kwargs={})
    for command in (["evaluate"], ["watch", "--video", run / "x.mp4"]):
        assert "config.json must have the observation_space" in one_line(capsys, *command, run)


@pytest.mark.parametrize("size", [10**9, 0, "x", None])
def test_sizes_have_a_bound_before_anything_is_allocated(
    size: object, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["n_envs", "evaluation_episodes", "threads", "learners", "n_steps", "questions", "unroll_length"]
    for name in (*names, "question_window"):
        changed = shutil.copytree(run, run.with_name(name))
        change(changed, **{name: size})
        for command in (["train", "--resume"], ["evaluate"], ["probe"], ["atlas"]):
            assert f"{name} must be " in one_line(capsys, *command, changed)


def test_a_run_does_not_decide_what_is_connected_to(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def connect(address: str | None, actors: int) -> None:
        asked.append(address)
        raise ConnectionError("there is no cluster")

    monkeypatch.setattr("dgvf_agents.impala.fleet.connect", connect)
    path = run.with_name("distributed")
    config = dataclasses.replace(RUN, algorithm="impala", actors=2, address="10.0.0.1:6379")
    with pytest.raises(ConnectionError):
        train(config, path, show_progress=False)
    assert "10.0.0.1" not in (path / "config.json").read_text()
    change(path, address="10.0.0.2:6379")
    assert RunFolder(path).read_config().address is None
    for given in ([], ["--address", "10.0.0.3:6379"]):
        with pytest.raises(SystemExit):
            main(["train", "--resume", str(path), *given])
        assert ("--address names a cluster" in capsys.readouterr().err) == (not given)
    assert asked == ["10.0.0.1:6379", None, "10.0.0.3:6379"]


def test_a_run_does_not_lead_elsewhere(good: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run.with_name("other")
    shutil.copytree(good, other)
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    for name in ("checkpoints", "config.json", "progress.csv", "atlas", ".lock"):
        hostile = run.with_name(f"linked-{name}")
        shutil.copytree(run, hostile, ignore=shutil.ignore_patterns(name, ".lock"))
        (hostile / name).symlink_to(other / name)
        commands = (("train", "--resume", hostile), ("evaluate", hostile), ("atlas", hostile), ("probe", hostile))
        training = ("train", "puddle-world", "discovered", "--resume", "--out", hostile)
        for command in (*commands, training):
            assert f"{hostile / name} must not lead out of its run folder" in one_line(capsys, *command)
    shutil.rmtree(run / "checkpoints")
    change(run, task="random", questions_from="../other")
    assert "questions_from ../other" in one_line(capsys, "train", "--resume", run)
    assert before == {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    (run.parent / "link").symlink_to(good)
    main(["evaluate", str(run.parent / "link"), "--episodes", "1"])


HOSTILE = "import pathlib\npathlib.Path('ran').touch()\nfrom gymnasium import Wrapper\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"env": "evil:CartPole-v1"},
        {"env_wrapper": "evil:Wrapper"},
        {"env_wrapper": "minatar:Wrapper"},  # not installed, but in the current folder
        {"env": "ALE/evil:Pong-v5"},
        {"env": "ALE/evil:Pong", "atari": {}},
        {"env": "GymV26Environment-v0", "env_kwargs": {"env_id": "evil:CartPole-v1"}},
        {"env": "GymV21Environment-v0", "evaluation_kwargs": {"env_id": "evil:CartPole-v1"}},
    ],
)
def test_a_run_imports_nothing(fields: dict[str, object], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(run, **fields)
    (run / "ALE").mkdir()
    for name in ("evil", "minatar", "ALE/evil"):
        (run / f"{name}.py").write_text(HOSTILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run)
        patch.syspath_prepend(run)
        for command in (["train", "--resume"], ["evaluate"], ["watch", "--video", "v"], ["atlas"], ["probe"]):
            assert "config.json" in one_line(capsys, *command, run)
    assert not (run / "ran").exists()
