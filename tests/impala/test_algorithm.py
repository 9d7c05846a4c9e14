"""DGVFImpala as a Stable-Baselines3 algorithm."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecNormalize

from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.core.optimizers import SGD, Adam, RMSProp
from dgvf_agents.core.targets import VTraceTargets
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.impala.settings import ActorSettings
from dgvf_envs.sb3_adapter import make_vec
from tests.impala.models import NETWORKS, SMALL, Normalizing, small_model
from tests.small_agents import BATCH, COPIES, SaveAt, puddle, weights_of
from tests.storage.test_resume import assert_same_training

# --- the paper's hyperparameters --------------------------------------------------------------------------------------


def test_the_defaults_are_the_paper_s_table() -> None:
    model = DGVFImpala("ResNetPolicy", "CollectObjectsSmall-v0", seed=0, device="cpu", compile=False)
    samples = 32 * 20
    assert (model.n_envs, model.n_steps) == (32, 20)
    rates = [model.lr_schedule(progress) for progress in (1.0, 0.5, 0.0)]
    assert rates == [6e-4, 3e-4, 0.0]
    assert model.vf_coef == 0.5 / 2  # of the squared error
    assert model.ent_coef == 0.01
    assert model.gamma == 0.99
    assert model.meta_learning_rate == 6e-4
    assert model.questions == model.task.num_answers == 128
    assert model.unroll_length == 10
    assert model.auxiliary_coefficient == 1e-4
    assert (model.encoder_mode, model.question_encoder, model.question_discount) == ("joint", "shared", None)
    rule, settings = model.learner.functions.rule, model.learner.settings
    assert rule.targets == VTraceTargets(1.0, 1.0)
    assert rule.numbers.max_grad_norm == 40.0 / samples
    assert rule.optimizer == RMSProp(0.99, 0.1 / samples**2, initial_moment=1 / samples**2, epsilon_outside=False)
    assert settings.meta_max_grad_norm == 1.0 / samples
    assert settings.meta_max_discount_grad_norm == 10.0 / samples
    assert settings.meta_skip_norm == 1e6 / samples
    (group,) = model.learner.meta_optimizer_state["param_groups"]
    assert group["eps"] == 1e-8 / samples
    assert {value.shape for name, value in model.learner.eta.items() if name.endswith("weight")} == {
        (256, 256),
        (128, 256),
        (128, 128),
    }


@pytest.mark.parametrize(
    ("changes", "optimizer"),
    [
        ({"rms_prop": "pytorch", "rms_prop_eps": 0.01, "rms_prop_decay": 0.9}, RMSProp(0.9, 0.01**2)),
        ({"rms_prop_decay": 0.8}, RMSProp.tensorflow(0.1, 0.8)),
        ({"inner_optimizer": RMSProp(0.9, 0.2, initial_moment=0.0)}, RMSProp(0.9, 0.2)),
        ({"inner_optimizer": Adam(epsilon=1e-3)}, Adam(epsilon=1e-3)),
        ({"policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 0.3}}}, None),
    ],
)
def test_epsilon_and_the_initial_moment_are_chosen_explicitly(
    changes: dict[str, Any], optimizer: RMSProp | Adam | None
) -> None:
    means, sums = (small_model(loss_reduction=reduction, **changes) for reduction in ("mean", "sum"))
    found, converted = (model.learner.functions.rule.optimizer for model in (means, sums))
    assert found == (optimizer or RMSProp.tensorflow(0.3))
    if isinstance(found, Adam):
        assert converted == Adam(epsilon=found.epsilon / BATCH)
    else:
        epsilon, moment = found.epsilon / BATCH**2, found.initial_moment / BATCH**2
        assert converted == dataclasses.replace(found, epsilon=epsilon, initial_moment=moment)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rho_bar": 2.0, "c_bar": 3.0}, "c_bar must be <= rho_bar"),
    ({"inner_optimizer": SGD()}, "loss_reduction must be 'mean' unless"),
    ({"actors": 1.5}, "actors must be an integer >= 0"),
    ({"actors": 2, "envs_per_actor": 3}, "envs_per_actor must divide n_envs = 4"),
    ({"actor_settings": {}}, "actor_settings must be None or"),
    ({"learners": 0}, "learners must be >= 1"),
    ({"learners": 2, "policy_kwargs": {"features_extractor_class": Normalizing}}, "learners must be 1 for"),
    *(
        ({"actors": 2, "env": env}, "env must be an environment id or a function")
        for env in (puddle(), gym.make("PuddleWorld-v0"), gym.make_vec("PuddleWorld-v0", 4))
    ),
    ({"actors": 2, "env": lambda num_envs, seed: puddle()}, "env must return .* of num_envs = 1"),
    ({"env": lambda num_envs, seed: gym.make("PuddleWorld-v0")}, "env must return .* of num_envs = 4"),
    ({"actors": 2, "env": lambda n, seed: VecNormalize(make_vec("PuddleWorld-v0", n))}, "env must not be a"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        small_model(**arguments)
    for settings in ({"calls_in_flight": 0}, {"timeout": 0.0}, {"first_delay": -1.0}):
        with pytest.raises(ValueError, match="must be >"):
            ActorSettings(**settings)


# --- learning ---------------------------------------------------------------------------------------------------------


def test_residual_networks_are_compiled_on_the_cpu_only_if_asked() -> None:
    """Eagerly they are faster there."""
    for policy, given, mode in (
        ("ResNetPolicy", "auto", False),
        ("PaperCnnPolicy", "auto", "auto"),
        ("ResNetPolicy", True, True),
    ):
        assert small_model("CollectObjectsSmall-v0", policy, compile=given).compilation.mode == mode


@pytest.mark.parametrize(("policy", "task"), [("PaperCnnPolicy", "none"), ("ResNetPolicy", "discovered")])
def test_every_task_trains_every_parameter(policy: str, task: str) -> None:
    model = small_model("CollectObjectsSmall-v0", policy, auxiliary_task=task)
    policy_before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    eta_before = model.learner.eta
    model.learn(16 * BATCH)
    for name, parameter in model.policy.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert not torch.equal(parameter, policy_before[name]), name
    assert model.meta_updates == (5 if task == "discovered" else 0)
    for name, value in model.learner.eta.items():
        assert torch.equal(value, eta_before[name]) == (task != "discovered"), name


def test_settings_may_change_while_training() -> None:
    model = small_model().learn(2 * BATCH)
    model.rho_bar, model.c_bar, model.max_grad_norm = 2.0, 1.5, 20.0
    model.learn(BATCH, reset_num_timesteps=False)
    rule = model.learner.functions.rule
    assert (rule.targets, rule.numbers.max_grad_norm) == (VTraceTargets(2.0, 1.5), 1.0)
    model.c_bar = 3.0
    with pytest.raises(ValueError, match=r"c_bar must be <= rho_bar = 2.0, got 3.0"):
        model.learn(BATCH, reset_num_timesteps=False)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("questions", "steps", "at_rollout_end"),
    [
        ("shared", 5 * BATCH + COPIES, False),
        ("independent", 5 * BATCH + 3 * COPIES, False),
        ("independent", 6 * BATCH, False),
        ("shared", 6 * BATCH, True),
    ],
)
def test_training_goes_on_from_the_middle_of_an_unroll(
    questions: str, steps: int, at_rollout_end: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bitwise; the file holds updates of an unroll, and part of a rollout, simulated with independent questions."""
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)  # nothing is to run compiled
    path, total, simulated = tmp_path / "model.zip", 12 * BATCH, questions == "independent"
    changes = {"question_encoder": questions, "compile": "auto" if simulated else False, "learning_rate": 1e-2}
    model = small_model(puddle(), **changes).learn(total, SaveAt(path, steps, at_rollout_end))
    resumed = DGVFImpala.load(path, puddle(), device="cpu")
    assert resumed.num_timesteps == steps
    assert resumed.learner.unroll_updates in (1, 2, 3)
    resumed.learn(total - steps, reset_num_timesteps=False)
    assert (resumed._collector._simulation is not None) == simulated
    assert_same_training(resumed, model)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [torch.zeros(1, 3), torch.full((1, COPIES), math.nan), None])
def test_log_probabilities_in_a_file_are_checked(value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(puddle())
    get_state = model._collector.get_state

    def damaged() -> dict[str, Any]:
        state = get_state()
        return {**state, "collection": state["collection"]._replace(log_probs=value)}

    monkeypatch.setattr(model._collector, "get_state", damaged)
    model.learn(BATCH, SaveAt(tmp_path / "model.zip", COPIES))
    with pytest.raises(ValueError, match="log_probs must be"):
        DGVFImpala.load(tmp_path / "model.zip", puddle(), device="cpu")


def test_a_file_of_the_other_algorithm_is_refused(tmp_path: Path) -> None:
    DGVFA2C("MlpPolicy", puddle(), device="cpu").save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"a DGVFImpala's .*or plain data of your own, got"):
        DGVFImpala.load(tmp_path / "model", puddle(), device="cpu")


@pytest.mark.parametrize("questions", ["shared", "independent"])
def test_on_policy_it_is_a2c_with_the_same_settings(questions: str) -> None:
    """Acting and learning take turns, so importance ratios are 1 and V-trace's targets are A2C's returns."""
    same: dict[str, Any] = {
        **SMALL, "n_envs": COPIES, "vf_coef": 0.3, "max_grad_norm": 0.4, "ent_coef": 0.02, "auxiliary_coefficient": 0.1,
        "auxiliary_weighting": "gradient-norm", "question_encoder": questions, "question_discount": 0.9,
        "meta_max_discount_grad_norm": None, "meta_learning_rate": 1e-2, "meta_skip_norm": 1e3, "rms_prop_eps": 1e-3,
        "policy_kwargs": NETWORKS["PaperMlpPolicy"],
    }  # fmt: skip
    impala = DGVFImpala("PaperMlpPolicy", "PuddleWorld-v0", rms_prop="pytorch", loss_reduction="mean", **same)
    a2c = DGVFA2C("PaperMlpPolicy", "PuddleWorld-v0", **same)
    before = weights_of(a2c)
    assert torch.equal(weights_of(impala), before)
    for model in (impala, a2c):
        model.learn(8 * BATCH)
    assert impala.meta_updates == a2c.meta_updates == 2
    torch.testing.assert_close(weights_of(impala), weights_of(a2c), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(impala.learner.eta, a2c.learner.eta, rtol=1e-2, atol=1e-4)
