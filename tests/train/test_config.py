"""The presets on Atari, and what training makes of them."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path

import pytest
import torch

from dgvf_agents import DGVFImpala
from dgvf_agents.agents.extractors import ResNetExtractor
from dgvf_agents.cli import main
from dgvf_agents.options import Algorithm, AtariRules, Method
from dgvf_agents.train import train as train_module
from dgvf_agents.train.config import (
    ATARI_METHODS,
    METHODS,
    TrainConfig,
    atari_config,
    differences,
    impala_config,
    preset,
)
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build, train
from dgvf_envs.atari import MODERN, PAPER


def test_the_preset_is_the_table_of_the_paper() -> None:
    expected = {
        "n_steps": 20,
        "n_envs": 32,
        "vf_coef": 0.5 / 2,  # the table's is on half the squared error
        "ent_coef": 0.01,
        "learning_rate": 6e-4,
        "final_learning_rate": 0.0,
        "rms_prop_eps": 0.1,
        "max_grad_norm": 40.0,
        "loss_reduction": "sum",
        "meta_learning_rate": 6e-4,
        "unroll_length": 10,
        "meta_max_grad_norm": 1.0,
        "meta_max_discount_grad_norm": 10.0,
        "questions": 128,
        "question_discount": None,
        "steps": 200_000_000 // 4,
    }
    coefficients = {"discovered": 1e-4, "random": 1e-4, "pixel-control": 1e-4, "reward-prediction": 1e-3}
    for method in ATARI_METHODS:
        config = atari_config("Breakout", method)
        assert {name: getattr(config, name) for name in expected} == expected
        task, mode = ("none", "joint") if method == "a2c" else (method, "auxiliary")
        assert (config.task, config.encoder_mode, config.atari, config.final_ent_coef) == (task, mode, PAPER, None)
        if method in coefficients:
            assert config.auxiliary_coefficient == coefficients[method]
    assert set(coefficients) == {*ATARI_METHODS} - {"a2c"}


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
@pytest.mark.parametrize("method", METHODS)
def test_presets_give_no_task_what_it_ignores(method: Method, algorithm: Algorithm) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = build(preset("collect-objects-small", method, algorithm))
    assert type(model).__name__ == f"DGVF{algorithm.upper()}"


@pytest.mark.parametrize(("rules", "expected"), [("paper", PAPER), ("modern", MODERN)])
def test_configurations_are_read_as_they_were_written(rules: AtariRules, expected: object, tmp_path: Path) -> None:
    config = dataclasses.replace(atari_config("ms_pacman", "discovered", rules), seed=3)
    assert (config.env, config.atari, config.frames_per_step) == ("MsPacman", expected, 4)
    folder = RunFolder(tmp_path)
    folder.write_config(config)
    assert folder.read_config() == config
    written = json.loads(folder.config_file.read_text())
    assert written["atari"] == dataclasses.asdict(config.atari)  # type: ignore[arg-type]
    assert written["question_discount"] is None


def test_a_configuration_with_other_fields_is_refused_by_their_names() -> None:
    with pytest.raises(ValueError, match=r"must have fields of this version, got speed$"):
        TrainConfig.from_fields({"speed": 1})


def test_bad_settings_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"game must be a single-player game of ale-py, got 'Breakuot'; did you mean Breakout"
    ):
        atari_config("Breakuot", "a2c")
    with pytest.raises(ValueError, match=r"evaluation_kwargs must be empty on Atari, got \{'a': 1\}"):
        dataclasses.replace(atari_config("Pong", "a2c"), evaluation_kwargs={"a": 1})


def test_impala_has_the_table_and_the_networks_of_joint_learning() -> None:
    small = dataclasses.replace(PAPER, frame_size=36)
    config = impala_config("Breakout", "discovered")
    config = dataclasses.replace(config, atari=small, n_envs=2, n_steps=3, compile=False)
    atari = atari_config("Breakout", "discovered")
    wanted = atari.fields(apart_from=["atari", "n_envs", "n_steps", "compile"])
    assert differences(config.fields(), wanted) == (
        "encoder_mode ('joint', not 'auxiliary'), question_encoder ('shared', not 'independent'), "
        "algorithm ('impala', not 'a2c'), policy ('ResNetPolicy', not 'PaperCnnPolicy')"
    )
    model = build(config)
    assert isinstance(model, DGVFImpala)
    assert isinstance(model.policy.features_extractor, ResNetExtractor)
    assert {name.split(".")[0] for name in model.learner.eta} == {"cumulants", "discounts"}


@pytest.mark.parametrize("method", ["discovered", "pixel-control", "a2c"])
def test_the_command_trains_it(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[TrainConfig, Path]] = []
    monkeypatch.setattr(train_module, "train", lambda config, path, resume: trained.append((config, path)))
    monkeypatch.chdir(tmp_path)
    main(["train", "impala", *([] if method == "discovered" else [method]), "--game", "ms_pacman", "--seed", "3"])
    ((config, path),) = trained
    assert config == dataclasses.replace(impala_config("MsPacman", method), seed=3)  # type: ignore[arg-type]
    assert path == Path("runs") / f"MsPacman-{'none' if method == 'a2c' else method}-impala-3"


def test_a_run_of_impala_is_trained_resumed_and_evaluated(tmp_path: Path) -> None:
    config = TrainConfig(
        algorithm="impala", policy="MlpPolicy", question_encoder="shared", steps=120, n_envs=2, questions=2,
        unroll_length=2, compile=False,
        checkpoint_every=60, evaluate_every=60, log_every=20, evaluation_episodes=2,
    )  # fmt: skip
    whole = train(config, tmp_path / "whole", show_progress=False)
    assert isinstance(whole, DGVFImpala)
    train(config, tmp_path / "part", show_progress=False)
    folder = RunFolder(tmp_path / "part")
    folder.latest_checkpoint().unlink()
    resumed = train(config, tmp_path / "part", show_progress=False, resume=True)
    assert isinstance(resumed, DGVFImpala)
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(resumed.policy.state_dict()[name], value), name
    mean, _ = evaluate(tmp_path / "part", episodes=2)
    assert 0.0 <= mean <= 3.0
