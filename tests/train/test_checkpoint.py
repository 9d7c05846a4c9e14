"""Checkpoints of a run: complete and reduced ones, damaged files, full disks and killed processes."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from filelock import FileLock

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train.checkpoint import complete_checkpoints, load_checkpoint, write_checkpoint
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import train
from tests.helpers import refused
from tests.kill_harness import differences
from tests.run_folders import tiny_config
from tests.small_agents import small_model

CONFIG = tiny_config(
    env="PuddleWorld-v0",
    env_kwargs={"start": "random", "max_episode_steps": 12},
    evaluation_kwargs={"max_episode_steps": 5},
    policy="MlpPolicy",
    steps=480,
    checkpoint_every=80,
    log_every=100,
    evaluate_every=200,
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "alone"
    train(CONFIG, path, show_progress=False)
    return path


class StopError(Exception):
    """Ends a run in the middle, like an error in an environment."""


def _stopped(path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, config: TrainConfig = CONFIG) -> RunFolder:
    """A run that ended in an error after `steps` environment steps."""
    collect = DiscoveryAlgorithm.collect_rollouts

    def failing(model: DiscoveryAlgorithm, *arguments: Any, **kwargs: Any) -> bool:
        if model.num_timesteps >= steps:
            raise StopError
        return collect(model, *arguments, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(DiscoveryAlgorithm, "collect_rollouts", failing)
        with pytest.raises(StopError):
            train(config, path, show_progress=False)
    return RunFolder(path)


def _resumed(folder: RunFolder) -> Path:
    train(CONFIG, folder.path, show_progress=False, resume=True)
    return folder.path


@pytest.mark.parametrize(
    "steps", [20, 80, 200, 460, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (100, 320))]
)
def test_a_stopped_run_is_resumed_to_the_same_end(
    steps: int, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, steps)
    assert not folder.is_finished()
    assert differences(alone, _resumed(folder)) == []
    assert folder.is_finished()


def test_a_stopped_run_of_ppo_is_resumed_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Any] = {"algorithm": "ppo", "n_steps": 10, "batch_size": 8, "n_epochs": 2, "target_kl": 0.05}
    config = dataclasses.replace(CONFIG, **own)
    train(config, tmp_path / "alone", show_progress=False)
    folder = _stopped(tmp_path / "run", monkeypatch, 200, config)
    train(config, folder.path, show_progress=False, resume=True)
    assert differences(tmp_path / "alone", folder.path) == []


def test_old_checkpoints_keep_their_networks_only(alone: Path) -> None:
    folder = RunFolder(alone)
    files = {int(path.stem): ModelFile.from_bytes(path.read_bytes()) for path in folder.checkpoints()}
    assert sorted(files) == [80, 160, 240, 320, 400, 480]
    assert [steps for steps, file in files.items() if file.document["training"] is not None] == [400, 480]
    assert not [
        name
        for name in files[80].tensors
        if name.startswith(("training.", "learner.statistics", "learner.meta_optimizer", "learner.unroll"))
    ]
    assert [name for name in files[80].tensors if name.startswith("learner.eta")]
    old = DGVFA2C.load(folder.checkpoint_file(240), training_environments(CONFIG), device="cpu")
    assert (old.num_timesteps, old.meta_updates) == (240, 3)
    assert old.learn(100, reset_num_timesteps=False).num_timesteps == 340


def test_a_finished_run_does_not_change(alone: Path) -> None:
    before = {path: path.read_bytes() for path in alone.rglob("*") if path.is_file() and "tfevents" not in path.name}
    model = train(CONFIG, alone, show_progress=False, resume=True)
    assert model.num_timesteps == 480
    assert {path: path.read_bytes() for path in before} == before


def test_times_keep_counting(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, 200)
    model = load_checkpoint(folder, lambda: training_environments(CONFIG))
    assert model is not None
    before = model.seconds
    assert before > 0
    model.seconds = 1000.0
    write_checkpoint(folder, model, 2)
    _resumed(folder)
    finished = load_checkpoint(folder, lambda: training_environments(CONFIG))
    assert finished is not None
    assert finished.seconds > 1000


def _damage(checkpoint: Path) -> None:
    contents = checkpoint.read_bytes()
    checkpoint.write_bytes(contents[:5000] + bytes([contents[5000] ^ 1]) + contents[5001:])


@pytest.mark.parametrize("last", [240, 480])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    last: int, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the last one of a run that would be finished."""
    path = tmp_path / "run"
    folder = _stopped(path, monkeypatch, 300) if last == 240 else RunFolder(Path(shutil.copytree(alone, path)))
    _damage(folder.checkpoint_file(last))
    assert not folder.is_finished()
    with pytest.warns(UserWarning, match=rf"0000000{last}.zip is skipped: its checksum"):
        train(CONFIG, folder.path, show_progress=False, resume=True)
    assert folder.is_finished()
    assert differences(alone, folder.path) == []


@pytest.mark.filterwarnings("ignore:checkpoint .* is skipped")
def test_a_run_whose_complete_checkpoints_are_damaged_is_refused_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, 300)
    for complete in complete_checkpoints(folder):
        complete.write_bytes(b"no longer a model")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    named = r"got .*run, where 0000000160.zip and 0000000240.zip are damaged .*: restart with another --out, or del"
    with pytest.raises(ValueError, match=named):
        train(CONFIG, folder.path, show_progress=False, resume=True)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before
    assert "To go on" not in refused(capsys, "train", "--resume", str(folder.path))


def test_stale_files_of_more_steps_do_not_reduce_new_checkpoints(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, 20)
    for steps in (2000, 3000, 4000):
        folder.checkpoint_file(steps).parent.mkdir(exist_ok=True)
        folder.checkpoint_file(steps).write_bytes(b"no longer a model")
    model = DGVFA2C.load(RunFolder(alone).checkpoint_file(480), training_environments(CONFIG), device="cpu")
    written = [_written_at(folder, model, steps) for steps in (80, 160, 240)]
    assert complete_checkpoints(folder) == written[-2:]
    for steps in (2000, 3000):  # including complete ones
        shutil.copy(RunFolder(alone).checkpoint_file(480), folder.checkpoint_file(steps))
    assert _written_at(folder, model, 320) in complete_checkpoints(folder)
    for steps in (2000, 3000, 4000):  # and networks alone, behind which older ones are still reduced
        shutil.copy(RunFolder(alone).checkpoints()[0], folder.checkpoint_file(steps))
    written = [_written_at(folder, model, steps) for steps in (400, 480, 560)]
    assert complete_checkpoints(folder) == written[-2:]


def _written_at(folder: RunFolder, model: DGVFA2C, steps: int) -> Path:
    model.num_timesteps = steps
    return write_checkpoint(folder, model, 2)


def test_damaged_checkpoints_are_not_complete_and_never_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, 300)
    damaged, *others = complete_checkpoints(folder)
    damaged.write_bytes(b"no longer a model")
    assert complete_checkpoints(folder) == others
    train(CONFIG, folder.path, show_progress=False, resume=True)  # reduces all but the last two
    assert damaged.read_bytes() == b"no longer a model"
    assert complete_checkpoints(folder) == folder.checkpoints()[-2:]


def test_a_run_without_a_usable_checkpoint_restarts(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _stopped(tmp_path / "run", monkeypatch, 60)
    assert folder.checkpoints() == []
    (folder.path / "checkpoints").mkdir()
    leftover = folder.path / "checkpoints" / ".0000000080.123.tmp.zip"
    leftover.write_bytes(b"half")
    assert differences(alone, _resumed(folder)) == []
    assert not leftover.exists()


def test_a_full_disk_leaves_the_last_good_checkpoint(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = RunFolder(tmp_path / "run"), Path.write_bytes

    def on_a_full_disk(path: Path, contents: bytes) -> int:
        if "0000000240" in path.name:
            write(path, contents[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, contents)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", on_a_full_disk)
        with pytest.raises(OSError, match=r"No space left on device: .*0000000240.zip"):
            train(CONFIG, folder.path, show_progress=False)
    assert folder.latest_checkpoint() == folder.checkpoint_file(160)
    assert not list(folder.path.rglob("*.tmp*"))
    assert differences(alone, _resumed(folder)) == []


def test_a_diverged_model_never_replaces_a_checkpoint(tmp_path: Path) -> None:
    model = small_model(training_environments(CONFIG), "MlpPolicy").learn(40)
    folder = RunFolder(tmp_path)
    good = write_checkpoint(folder, model, 2).read_bytes()
    with torch.no_grad():
        next(model.policy.parameters())[0] = torch.nan
    with pytest.raises(FloatingPointError, match=r"theta\['.*must be finite after 2 updates"):
        write_checkpoint(folder, model, 2)
    assert folder.checkpoint_file(40).read_bytes() == good


def test_a_run_is_resumed_only_with_its_own_configuration(alone: Path) -> None:
    with pytest.raises(ValueError, match=r"gamma \(0.99, not 0.5\), env_kwargs \("):
        train(dataclasses.replace(CONFIG, gamma=0.5, env_kwargs={}), alone, show_progress=False, resume=True)
    with pytest.raises(FileExistsError, match="--resume"):
        train(CONFIG, alone, show_progress=False)


@pytest.mark.parametrize(
    "changes", [{"env": "NoSuchWorld-v0"}, {"questions": 0}, {"policy": "NoPolicy"}, {"evaluation_kwargs": {"no": 1}}]
)
def test_settings_that_fail_before_the_first_step_leave_no_run(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    for has_files in (False, True):
        with pytest.raises((ValueError, TypeError, gymnasium.error.Error)):
            train(dataclasses.replace(CONFIG, **changes), path, show_progress=False)
        assert path.exists() == has_files
        path.mkdir(exist_ok=True)
        (path / "notes.txt").write_text("of the user's")
    assert not RunFolder(path).config_file.exists()
    assert train(dataclasses.replace(CONFIG, steps=20), path, show_progress=False).num_timesteps == 20


def test_two_processes_never_train_one_run(alone: Path) -> None:
    with FileLock(RunFolder(alone).lock_file):
        for resume in (True, False):  # no advice to resume it
            with pytest.raises(ValueError, match="path must not be in use by another training process"):
                train(CONFIG, alone, show_progress=False, resume=resume)


@pytest.mark.parametrize("kills", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_killed_runs_end_bitwise_as_if_never_killed(kills: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.kill_harness", str(tmp_path), str(kills), "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])  # with an empty cache, lines about the compiler come before
    assert (result["kills"], result["different"]) == (kills, [])
    assert sum(count for place, count in result["places"].items() if place != "anywhere") >= kills // 5 + 1
