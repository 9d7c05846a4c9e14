"""The paper's hyperparameters on Atari, and what training makes of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dgvf_agents.core.optimizers import RMSProp
from dgvf_agents.options import AtariRules
from dgvf_agents.train.config import ATARI_METHODS, TrainConfig, atari_config
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build
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


@pytest.mark.parametrize(("rules", "preset"), [("paper", PAPER), ("modern", MODERN)])
def test_configurations_are_read_as_they_were_written(rules: AtariRules, preset: object, tmp_path: Path) -> None:
    config = dataclasses.replace(atari_config("ms_pacman", "discovered", rules), seed=3)
    assert (config.env, config.atari, config.frames_per_step) == ("MsPacman", preset, 4)
    folder = RunFolder(tmp_path)
    folder.write_config(config)
    assert folder.read_config() == config
    written = json.loads(folder.config_file.read_text())
    assert written["atari"] == dataclasses.asdict(config.atari)  # type: ignore[arg-type]
    assert written["question_discount"] is None


def test_a_configuration_with_other_fields_is_refused_by_their_names() -> None:
    with pytest.raises(ValueError, match=r"must have fields of this version, got speed$"):
        TrainConfig.from_fields({"speed": 1})


def test_numbers_for_summed_losses_become_those_for_means() -> None:
    small = dataclasses.replace(PAPER, frame_size=36)
    config = dataclasses.replace(
        atari_config("Breakout", "discovered"), atari=small, n_envs=2, n_steps=3, questions=2, compile=False
    )
    model = build(config)
    rule, settings = model.learner.functions.rule, model.learner.settings
    assert rule.optimizer == RMSProp(0.99, epsilon=0.1 / 36, initial_moment=1 / 36)
    norms = (rule.numbers.max_grad_norm, settings.meta_max_grad_norm, settings.meta_max_discount_grad_norm)
    assert norms == pytest.approx((40 / 6, 1 / 6, 10 / 6))
    assert (model.vf_coef, model.auxiliary_coefficient, model.meta_learning_rate) == (0.25, 1e-4, 6e-4)
    assert {name.split(".")[0] for name in model.learner.eta} == {"encoder", "cumulants", "discounts"}
    plain = build(dataclasses.replace(config, loss_reduction="mean", max_grad_norm=None))
    assert (plain.max_grad_norm, plain.meta_max_grad_norm) == (None, 1.0)
    assert plain.learner.functions.rule.optimizer == RMSProp.tensorflow(0.1)
    pytorch = build(dataclasses.replace(config, rms_prop="pytorch")).learner.functions.rule.optimizer
    assert isinstance(pytorch, RMSProp)
    assert (pytorch.epsilon, pytorch.initial_moment) == (pytest.approx((0.1 / 6) ** 2), 0.0)


def test_bad_settings_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"game must be a single-player game of ale-py, got 'Breakuot'; did you mean Breakout"
    ):
        atari_config("Breakuot", "a2c")
    with pytest.raises(ValueError, match=r"env_kwargs and evaluation_kwargs must be empty on Atari, got \{'a': 1\}"):
        dataclasses.replace(atari_config("Pong", "a2c"), evaluation_kwargs={"a": 1})
