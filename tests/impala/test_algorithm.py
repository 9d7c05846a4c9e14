"""DGVFImpala as a Stable-Baselines3 algorithm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecCheckNan, VecEnv

from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.core.optimizers import SGD, Adam, RMSProp
from dgvf_agents.core.targets import VTraceTargets
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.options import Task
from dgvf_envs.sb3_adapter import make_vec
from tests.agents.test_updates import BOX, Samples
from tests.helpers import TINY_MAP
from tests.storage.test_resume import COPIES, SaveAt, assert_same_training, puddle, rooms

SMALL: dict[str, Any] = {
    "n_steps": 5,
    "questions": 6,
    "unroll_length": 3,
    "learning_rate": 1e-3,
    "seed": 0,
    "compile": False,
    "device": "cpu",
}
BATCH = COPIES * SMALL["n_steps"]
NETWORKS: dict[str, dict[str, Any]] = {
    "PaperMlpPolicy": {"features_extractor_kwargs": {"hidden": (16,)}},
    "PaperCnnPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
    "ResNetPolicy": {"features_extractor_kwargs": {"features_dim": 16}},
}


def _model(env: Any = "PuddleWorld-v0", policy: str = "PaperMlpPolicy", **changes: Any) -> DGVFImpala:
    num_envs = {"n_envs": COPIES} if isinstance(env, str) else {}
    kwargs = {"policy_kwargs": NETWORKS[policy]} if policy in NETWORKS else {}
    return DGVFImpala(policy, env, **{**SMALL, **num_envs, **kwargs, **changes})


def _weights(model: DGVFA2C | DGVFImpala) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()]).clone()


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
    assert rule.optimizer == RMSProp(0.99, 0.1 / samples**2, initial_moment=1 / samples**2)
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
        ({"rms_prop_decay": 0.8}, RMSProp(0.8, 0.1, initial_moment=1.0)),
        ({"inner_optimizer": RMSProp(0.9, 0.2, initial_moment=0.0)}, RMSProp(0.9, 0.2)),
        ({"inner_optimizer": Adam(epsilon=1e-3)}, Adam(epsilon=1e-3)),
        ({"policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 0.3}}}, None),
    ],
)
def test_epsilon_and_the_initial_moment_are_chosen_explicitly(
    changes: dict[str, Any], optimizer: RMSProp | Adam | None
) -> None:
    means, sums = (_model(loss_reduction=reduction, **changes) for reduction in ("mean", "sum"))
    found, converted = (model.learner.functions.rule.optimizer for model in (means, sums))
    assert found == (optimizer or RMSProp(0.99, 0.3, initial_moment=1.0))
    if isinstance(found, Adam):
        assert converted == Adam(epsilon=found.epsilon / BATCH)
    else:
        assert isinstance(found, RMSProp)
        assert converted == RMSProp(
            found.decay, found.epsilon / BATCH**2, initial_moment=found.initial_moment / BATCH**2
        )


def test_other_optimizers_have_no_summed_losses() -> None:
    assert _model(inner_optimizer=SGD(), loss_reduction="mean").learner.functions.rule.optimizer == SGD()
    with pytest.raises(ValueError, match=r"loss_reduction must be 'mean' unless .* RMSProp or Adam, got SGD"):
        _model(inner_optimizer=SGD())


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("questions", ["shared", "independent"])
def test_on_policy_it_is_a2c_with_the_same_settings(questions: str) -> None:
    """Acting and learning take turns, so importance ratios are 1 and V-trace's targets are A2C's returns."""
    same: dict[str, Any] = {
        **SMALL,
        "n_envs": COPIES,
        "vf_coef": 0.3,
        "max_grad_norm": 0.4,
        "ent_coef": 0.02,
        "auxiliary_coefficient": 0.1,
        "auxiliary_weighting": "gradient-norm",
        "question_encoder": questions,
        "question_discount": 0.9,
        "meta_max_discount_grad_norm": None,
        "meta_learning_rate": 1e-2,
        "meta_skip_norm": 1e3,
        "rms_prop_eps": 1e-3,
        "policy_kwargs": NETWORKS["PaperMlpPolicy"],
    }
    impala = DGVFImpala("PaperMlpPolicy", "PuddleWorld-v0", rms_prop="pytorch", loss_reduction="mean", **same)
    a2c = DGVFA2C("PaperMlpPolicy", "PuddleWorld-v0", **same)
    before = _weights(a2c)
    assert torch.equal(_weights(impala), before)
    for model in (impala, a2c):
        model.learn(8 * BATCH)
    assert impala.meta_updates == a2c.meta_updates == 2
    torch.testing.assert_close(_weights(impala), _weights(a2c), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(impala.learner.eta, a2c.learner.eta, rtol=1e-2, atol=1e-4)


def test_residual_networks_are_compiled_on_the_cpu_only_if_asked() -> None:
    """Eagerly they are faster there."""
    policies = {"ResNetPolicy": False, "PaperCnnPolicy": "auto"}
    for policy, expected in policies.items():
        assert _model("CollectObjectsSmall-v0", policy, compile="auto").compilation.mode == expected
    assert _model("CollectObjectsSmall-v0", "ResNetPolicy", compile=True).compilation.mode is True


@pytest.mark.parametrize("policy", ["PaperCnnPolicy", "ResNetPolicy"])
@pytest.mark.parametrize("task", [task for task in get_args(Task) if task != "pixel-control"])
def test_every_task_trains_every_parameter(policy: str, task: str) -> None:
    model = _model("CollectObjectsSmall-v0", policy, auxiliary_task=task)
    policy_before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    eta_before = model.learner.eta
    model.learn(16 * BATCH)
    for name, parameter in model.policy.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert not torch.equal(parameter, policy_before[name]), name
    assert model.meta_updates == (5 if task == "discovered" else 0)
    for name, value in model.learner.eta.items():
        assert torch.equal(value, eta_before[name]) == (task != "discovered"), name


@pytest.mark.parametrize(
    ("observations", "actions", "policy"),
    [
        (BOX, spaces.Box(-2, 2, (2,), np.float32), "MlpPolicy"),
        (BOX, spaces.MultiDiscrete([2, 3]), "MlpPolicy"),
        (BOX, spaces.MultiBinary(2), "MlpPolicy"),
        (spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}), spaces.Discrete(3), "MultiInputPolicy"),
    ],
)
@pytest.mark.parametrize("use_sde", [False, True])
def test_all_spaces_train(observations: spaces.Space, actions: spaces.Space, policy: str, use_sde: bool) -> None:
    if use_sde and not isinstance(actions, spaces.Box):
        return
    model = _model(Samples(observations, actions), policy, use_sde=use_sde, question_window=2)
    before = _weights(model)
    model.learn(8 * 5)
    assert model._rollout is not None
    assert model._rollout.behavior_log_probs.shape == (5, 1)  # type: ignore[union-attr]
    assert (_weights(model) != before).any()
    action, _ = model.predict(observations.sample())
    assert actions.contains(action)


def test_settings_may_change_while_training() -> None:
    model = _model().learn(2 * BATCH)
    model.rho_bar, model.c_bar, model.max_grad_norm = 2.0, 1.5, 20.0
    model.learn(BATCH, reset_num_timesteps=False)
    rule = model.learner.functions.rule
    assert (rule.targets, rule.numbers.max_grad_norm) == (VTraceTargets(2.0, 1.5), 1.0)
    model.c_bar = 3.0
    with pytest.raises(ValueError, match=r"c_bar must be <= rho_bar = 2.0, got 3.0"):
        model.learn(BATCH, reset_num_timesteps=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rho_bar": -1.0}, "rho_bar must be > 0, got -1.0"),
        ({"rms_prop": "torch"}, "rms_prop must be one of"),
        ({"rms_prop_decay": 1.0}, r"rms_prop_decay must lie in \[0, 1\), got 1.0"),
        ({"loss_reduction": "total"}, "loss_reduction must be one of"),
        ({"question_encoder": "joint"}, "question_encoder must be one of"),
        ({"learning_rate": -1.0}, "learning_rate must be a?.*>= 0, got -1.0"),
        ({"n_envs": 0}, "n_envs must be >= 1, got 0"),
    ],
)
def test_arguments_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _model(**changes)


# --- experience -------------------------------------------------------------------------------------------------------


class Counter(gym.Env):
    """Shows how many steps were taken in the episode, which ends after three; pays as much."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.array([self.steps], np.float32), float(self.steps), self.steps == 3, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_steps_that_reset_an_environment_are_not_learned_from(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([Counter] * 2, autoreset_mode=mode)
    model = _model(env, n_steps=8).learn(16)
    rollout = model._rollout
    assert rollout is not None
    expected = [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0]
    for b in range(2):
        assert rollout.observations[:, b, 0].tolist() == expected  # type: ignore[index]
        assert rollout.next_observations[:, b, 0].tolist() == [value + 1 for value in expected]  # type: ignore[index]
        assert rollout.rewards[:, b].tolist() == [value + 1 for value in expected]
        assert rollout.terminated[:, b].tolist() == [value == 2.0 for value in expected]


def test_questions_read_the_features_of_final_observations() -> None:
    """Those of terminated episodes too, which returns do not bootstrap from."""
    model = _model(make_vec_env(Counter, 2), n_steps=8).learn(16)
    rollout, task = model._rollout, model.task
    assert rollout is not None
    assert rollout.terminated[:-1].sum() == 4
    features = model._asked(task, rollout).next_observations
    indexed = rollout.next_observations.flatten(0, 1)[rollout.bootstrap_index]  # type: ignore[union-attr]
    ends = rollout.segment_end
    assert torch.equal(indexed[rollout.bootstrap_slot][ends], rollout.next_observations[ends])  # type: ignore[index]
    assert features.shape == (8, 2, 16)  # type: ignore[union-attr]


def test_simulated_rollouts_train_the_same_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper that changes nothing hides the world, which is then not simulated."""
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)  # nothing is to run compiled

    def trained(wrap: bool) -> DGVFImpala:
        options = {"layout": TINY_MAP, "wrong_order": "terminate"}
        env: VecEnv = make_vec("CollectObjects-v0", COPIES, 1, env_kwargs=options)
        model = _model(VecCheckNan(env) if wrap else env, compile="auto", n_steps=8, learning_rate=1e-2)
        return model.learn(8 * 8 * COPIES)

    simulated, in_turn = trained(False), trained(True)
    assert simulated._collector.actor._simulation is not None
    assert in_turn._collector.actor._simulation is None
    for model in (simulated, in_turn):
        assert model._rollout is not None
        assert model._rollout.terminated[:-1].any()
    torch.testing.assert_close(simulated._rollout.given(), in_turn._rollout.given())  # type: ignore[union-attr]
    torch.testing.assert_close(_weights(simulated), _weights(in_turn))
    torch.testing.assert_close(simulated.learner.eta, in_turn.learner.eta)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "at_rollout_end"),
    [(5 * BATCH + COPIES, False), (5 * BATCH + 3 * COPIES, False), (6 * BATCH, False), (6 * BATCH, True)],
)
@pytest.mark.parametrize(("questions", "simulated"), [("shared", False), ("independent", True)])
def test_training_goes_on_from_the_middle_of_an_unroll(
    questions: str, steps: int, at_rollout_end: bool, simulated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bitwise; the unroll has three updates, so the file holds one or two of them, and part of a rollout."""
    if simulated:
        monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
        monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)  # nothing is to run compiled
    compile = "auto" if simulated else False
    path, total = tmp_path / "model.zip", 12 * BATCH
    settings: dict[str, Any] = {"question_encoder": questions, "compile": compile, "learning_rate": 1e-2}
    model = _model(puddle(), **settings).learn(total, SaveAt(path, steps, at_rollout_end))
    resumed = DGVFImpala.load(path, puddle(), device="cpu")
    assert resumed.num_timesteps == steps
    assert resumed.learner.unroll_updates in (1, 2, 3)
    resumed.learn(total - steps, reset_num_timesteps=False)
    assert (resumed._collector.actor._simulation is not None) == simulated
    assert_same_training(resumed, model)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["PaperCnnPolicy", "ResNetPolicy"])
def test_a_model_is_loaded_as_it_was_saved(policy: str, tmp_path: Path) -> None:
    model = _model(rooms(), policy, rho_bar=2.0, rms_prop="pytorch", gamma=0.9).learn(4 * BATCH)
    model.save(tmp_path / "model")
    loaded = DGVFImpala.load(tmp_path / "model", device="cpu")
    assert loaded.learner.functions.rule.targets == VTraceTargets(2.0, 1.0)
    assert (loaded.rms_prop, loaded.gamma, loaded.question_encoder) == ("pytorch", 0.9, "shared")
    observations = rooms().reset()
    for deterministic in (False, True):
        torch.manual_seed(0)
        expected = model.predict(observations, deterministic=deterministic)[0]
        torch.manual_seed(0)
        np.testing.assert_array_equal(loaded.predict(observations, deterministic=deterministic)[0], expected)
    resumed = DGVFImpala.load(tmp_path / "model", rooms(), device="cpu")
    for one in (model, resumed):
        one.learn(5 * BATCH, reset_num_timesteps=False)
    assert_same_training(resumed, model)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[], torch.zeros(1, 3), torch.full((1, COPIES), math.nan), None])
def test_log_probabilities_in_a_file_are_checked(value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.zip"
    model = _model(puddle())
    get_state = type(model._collector).get_state

    def damaged(self: Any) -> dict[str, Any]:
        state = get_state(self)
        return {**state, "collection": state["collection"]._replace(log_probs=value)}

    monkeypatch.setattr(type(model._collector), "get_state", damaged)
    model.learn(BATCH, SaveAt(path, COPIES))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="log_probs must be"):
        DGVFImpala.load(path, puddle(), device="cpu")


def test_a_file_of_the_other_algorithm_is_refused_before_training(tmp_path: Path) -> None:
    """Its attributes are others, and its rollouts lack what V-trace needs."""
    env: VecEnv = make_vec("PuddleWorld-v0", COPIES, 0)
    a2c = DGVFA2C(
        "PaperMlpPolicy", env, seed=0, device="cpu", compile=False, policy_kwargs=NETWORKS["PaperMlpPolicy"],
        questions=6, question_encoder="shared", question_discount=None,
    )  # fmt: skip
    a2c.learn(3 * 20).save(tmp_path / "model")
    with pytest.raises(ValueError, match="a DGVFImpala's, or plain data of your own, got"):
        DGVFImpala.load(tmp_path / "model", make_vec("PuddleWorld-v0", COPIES, 0), device="cpu")
