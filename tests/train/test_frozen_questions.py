"""Runs on the frozen questions of another run."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.core.types import Params
from dgvf_agents.train.checkpoint import experienced_cumulants, frozen_eta, load_model
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build, train, train_population
from tests.kill_harness import differences
from tests.train.test_checkpoint import CONFIG as RUN

CONFIG = dataclasses.replace(
    RUN, steps=320, questions=6, meta_learning_rate=0.1, evaluate_every=160, checkpoints_kept=3
)
FROZEN = dataclasses.replace(CONFIG, task="random", seed=5, questions_from="../source")
PRINCIPAL = dataclasses.replace(FROZEN, principal_questions=2)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Experience would take most of the time of these short runs."""
    with mock.patch("dgvf_agents.train.checkpoint._STEPS", 50):
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source`, `frozen` and `principal`."""
    folder = tmp_path_factory.mktemp("runs")
    for name, config in (("source", CONFIG), ("frozen", FROZEN), ("principal", PRINCIPAL)):
        train(config, folder / name, show_progress=False)
    return folder


def model_in(run: Path) -> DGVFA2C:
    return load_model(RunFolder(run).read_config(), RunFolder(run).latest_checkpoint())


def eta_in(run: Path) -> Params:
    return model_in(run).learner.eta


def test_questions_are_those_of_the_other_run_and_stay(runs: Path) -> None:
    source, frozen = eta_in(runs / "source"), eta_in(runs / "frozen")
    own = build(dataclasses.replace(CONFIG, task="random", seed=5))
    assert source.keys() == frozen.keys() == own.learner.eta.keys()
    for name, value in source.items():
        assert torch.equal(value, frozen[name])
    assert any(not torch.equal(value, own.learner.eta[name]) for name, value in source.items())


def test_the_agent_is_a_fresh_one(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """θ is initialized as without the other run's questions."""
    built: list[DGVFA2C] = []
    monkeypatch.setattr(DGVFA2C, "learn", lambda model, *arguments, **options: built.append(model))
    shutil.copytree(runs / "source", tmp_path / "source")
    train(FROZEN, tmp_path / "run", show_progress=False)
    own = build(dataclasses.replace(CONFIG, task="random", seed=5))
    for name, value in own.learner.theta.items():
        assert torch.equal(value, built[0].learner.theta[name])


def test_principal_questions_are_fewer_answers(runs: Path) -> None:
    model = model_in(runs / "principal")
    assert model.answer_net is not None
    assert model.answer_net.out_features == model.task.num_answers == 2
    eta, source = model.learner.eta, eta_in(runs / "source")
    for name, value in source.items():
        assert torch.equal(value, eta[f"network.{name}"])
    cumulants = experienced_cumulants(model_in(runs / "source"), CONFIG).numpy()
    assert cumulants.shape == (50 * 4, 6)
    _, _, rows = np.linalg.svd(cumulants - cumulants.mean(axis=0))
    assert np.abs((eta["components"].numpy() * rows[:2]).sum(axis=1)) == pytest.approx([1.0, 1.0], abs=1e-4)


def test_the_experience_holds_the_final_observations_of_each_environment(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step moves by at most 0.075 on each axis, and episodes end after 12."""
    model = model_in(runs / "source")
    monkeypatch.setattr(type(model.task.network), "ask", lambda network, eta, observations: (observations, None))
    arrivals = experienced_cumulants(model, CONFIG).reshape(50, 4, 2)
    moved = (arrivals[1:] - arrivals[:-1]).abs().amax(-1)
    starts = torch.arange(1, 50) % 12 == 0
    assert (moved[~starts] <= 0.075 + 1e-6).all()
    assert (moved[starts] > 0.075).any()


@pytest.mark.parametrize("name", ["frozen", "principal"])
def test_a_stopped_run_is_resumed_to_the_same_end_without_the_other(name: str, runs: Path, tmp_path: Path) -> None:
    again = shutil.copytree(runs / name, tmp_path / name)
    for file in RunFolder(again).checkpoints():
        if int(file.stem) > 160:
            file.unlink()
    train(RunFolder(again).read_config(), again, show_progress=False, resume=True)
    assert differences(runs / name, again) == []


def test_runs_on_the_questions_of_different_runs_are_trained_at_once(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "source", tmp_path / "source")
    train(dataclasses.replace(CONFIG, seed=9), tmp_path / "second", show_progress=False)
    configs = [FROZEN, dataclasses.replace(FROZEN, seed=6, questions_from="../second")]
    paths = [tmp_path / "a", tmp_path / "b"]
    assert train_population(configs, paths) == [None, None]
    for path, source in zip(paths, ("source", "second"), strict=True):
        for name, value in eta_in(tmp_path / source).items():
            assert torch.equal(value, eta_in(path)[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": 5}, r"a run with the same questions, got .*source with 6, not 5"),
        ({"policy": "PaperMlpPolicy"}, "a run with the same policy"),
        ({"question_discount": 0.5}, "a run with the same question_discount"),
        ({"questions_from": "../principal"}, "a run of discovered or random questions"),
        ({"questions_from": "../unfinished"}, "must be a finished run"),
        ({"env": "CartPole-v1", "env_kwargs": {}, "evaluation_kwargs": {}}, "must fit this run, got ../source"),
    ],
)
def test_questions_that_do_not_fit_are_refused(changes: dict[str, Any], message: str, runs: Path) -> None:
    RunFolder(runs / "unfinished").write_config(CONFIG)
    with pytest.raises(ValueError, match=f"questions_from .*{message}"):
        train(dataclasses.replace(FROZEN, **changes), runs / "new", show_progress=False)
    assert not (runs / "new").exists()


def test_a_shipped_run_goes_by_its_name(tmp_path: Path) -> None:
    shipped = RunFolder.existing(Path("demo"))
    taken = frozen_eta(dataclasses.replace(shipped.read_config(), task="random", questions_from="demo"), tmp_path)
    assert taken is not None
    expected = eta_in(shipped.path)
    assert taken.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in taken.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "discovered"}, "task must be 'random' with questions_from, got 'discovered'"),
        ({"question_encoder": "shared"}, "question_encoder must be 'independent' with questions_from"),
        ({"questions_from": None}, "principal_questions must be None without questions_from, got 2"),
        ({"principal_questions": 0}, r"principal_questions must be in 1 ... 6, got 0"),
        ({"principal_questions": 7}, r"principal_questions must be in 1 ... 6, got 7"),
        ({"question_discount": None}, "question_discount must be a number with principal_questions, got None"),
        ({"actors": -1}, "actors must be an integer >= 0, got -1"),
        ({"actors": 2}, "actors must be 0 unless the algorithm is impala, got 2"),
        ({"learners": 2}, "learners must be 1 unless the algorithm is impala, got 2"),
        ({"final_ent_coef": 0.1, "ent_coef": 0.0}, "ent_coef must be > 0, since the schedule is geometric"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PRINCIPAL, **changes)
