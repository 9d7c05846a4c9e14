"""`dgvf train` with distributed actors, which are in this process here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dgvf_agents.impala.actors import RemoteEnvs
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.impala.fleet import fingerprint_of
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.stability import probe
from dgvf_agents.train.train import train
from tests.impala.in_process import InProcessFleet
from tests.train.test_learners import ALONE

CONFIG = dataclasses.replace(ALONE, env_wrapper=None, steps=400, actors=2, address="10.0.0.1:6379", log_every=100)


@pytest.fixture
def fleets(in_process: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of all fleets."""
    started = []
    make = InProcessFleet.__init__

    def noted(self: InProcessFleet, *arguments: Any) -> None:
        started.append(arguments)
        make(self, *arguments)

    monkeypatch.setattr(InProcessFleet, "__init__", noted)
    return started


def test_a_run_is_recorded_and_resumed_with_its_actors(fleets: list[Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train(CONFIG, run, show_progress=False)
    assert isinstance(model.env, RemoteEnvs)
    assert (model.num_timesteps, model._n_updates) == (400, 20)
    folder = RunFolder(run)
    assert [path.stem for path in folder.checkpoints()] == ["0000000200", "0000000400"]
    assert "actors/running" in folder.progress_file.read_text().splitlines()[0]
    folder.checkpoints()[-1].unlink()  # as if killed before the end
    changed = dataclasses.replace(CONFIG, actors=1, address=None)
    resumed = train(changed, run, show_progress=False, resume=True)
    assert isinstance(resumed, DGVFImpala)
    assert (resumed.num_timesteps, resumed._n_updates, resumed.actors) == (400, 20, 1)
    assert folder.read_config() == changed
    (_, actors, settings, is_resumed), (_, other_actors, other_settings, is_other_resumed) = fleets
    assert (actors, other_actors) == (2, 1)
    assert (is_resumed, is_other_resumed) == (False, True)
    assert (settings.address, other_settings.address) == ("10.0.0.1:6379", None)
    assert settings.namespace == other_settings.namespace  # where a resumed run finds its actors
    assert evaluate(run, 2)[0] >= 0


def test_a_resumed_run_takes_over_actors_of_another_process(fleets: list[Any], tmp_path: Path) -> None:
    """Their fingerprints are equal, though configurations come from the command line and from a file."""
    train(dataclasses.replace(CONFIG, envs_per_actor=2), tmp_path, show_progress=False, resume=True)
    RunFolder(tmp_path).checkpoints()[-1].unlink()
    stored = dataclasses.replace(RunFolder(tmp_path).read_config(), address="auto", actors=3)
    train(stored, tmp_path, show_progress=False, resume=True)
    one, other = (fingerprint_of(arguments[0]) for arguments in fleets)
    assert one == other
    assert one != fingerprint_of(dataclasses.replace(fleets[0][0], n_steps=6))


def test_a_distributed_run_can_be_resumed_without_actors(fleets: list[Any], tmp_path: Path) -> None:
    train(CONFIG, tmp_path, show_progress=False, resume=True)
    RunFolder(tmp_path).checkpoints()[-1].unlink()
    embedded = dataclasses.replace(CONFIG, actors=0)
    with pytest.warns(UserWarning, match="the run continues with new episodes"):
        resumed = train(embedded, tmp_path, show_progress=False, resume=True)
    assert resumed.num_timesteps == 400
    assert not isinstance(resumed.env, RemoteEnvs)


def test_a_distributed_run_is_probed_without_actors(fleets: list[Any], tmp_path: Path) -> None:
    small = {"policy": "MlpPolicy", "question_encoder": "independent", "questions": 2, "unroll_length": 2}
    train(dataclasses.replace(CONFIG, steps=200, **small), tmp_path, show_progress=False, resume=True)
    (row,) = probe(tmp_path)
    assert (row.steps, row.spectral_radius > 0.9, len(fleets)) == (200, True, 1)
