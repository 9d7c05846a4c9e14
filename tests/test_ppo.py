"""DGVFPPO as Stable-Baselines3's PPO, with auxiliary tasks, and where it stands in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch.utils._pytree import tree_map_only

from dgvf_agents import DGVFPPO
from dgvf_agents.agents.arguments import question_network
from dgvf_agents.agents.policies import MLPExtractor
from dgvf_agents.agents.ppo_learner import PPOLearner, PPOSettings
from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.core.tasks import AuxiliaryTask, RandomGVFs, RewardPrediction
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.options import EncoderMode, Task
from dgvf_envs.sb3_adapter import make_vec
from tests.random_rollouts import random_rollout
from tests.small_agents import Samples, SaveAt

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "device": "cpu"}
ROLLOUT = 4 * 16


def model_of(task: str = "discovered", env: Any = "PuddleWorld-v0", **changes: Any) -> DGVFPPO:
    policy_kwargs = {"features_extractor_kwargs": {"hidden": (16,)}}
    num_envs = {"n_envs": 4} if isinstance(env, str) else {}
    given = {**SMALL, **num_envs, "questions": 6, "unroll_length": 3, "policy_kwargs": policy_kwargs, **changes}
    return DGVFPPO("PaperMlpPolicy", env, auxiliary_task=task, **given)


VECTOR, CHOICE = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(3)
IMAGE, REAL = gym.spaces.Box(0, 255, (3, 36, 36), np.uint8), gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SEVERAL = gym.spaces.Dict({"vector": VECTOR, "choice": gym.spaces.Discrete(4)})


SPACES: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("MlpPolicy", lambda: "CartPole-v1", {}),
    ("MlpPolicy", lambda: Samples(VECTOR, gym.spaces.MultiBinary(3)), {}),
    ("MlpPolicy", lambda: Samples(VECTOR, gym.spaces.MultiDiscrete([3, 2])), {}),
    ("MlpPolicy", lambda: Samples(VECTOR, REAL), {"normalize_advantage": False}),
    ("MlpPolicy", lambda: Samples(VECTOR, gym.spaces.Box(-1.0, 1.0, (2, 2))), {}),
    ("MlpPolicy", lambda: Samples(VECTOR, REAL), {"use_sde": True, "sde_sample_freq": 4}),
    (
        "MlpPolicy",
        lambda: Samples(VECTOR, CHOICE),
        {"clip_range_vf": 0.1, "target_kl": 1e-4, "n_epochs": 9},
    ),
    ("MlpPolicy", lambda: Samples(VECTOR, CHOICE), {"batch_size": 24, "ent_coef": 0.01, "clip_range": 0.01}),
    ("MultiInputPolicy", lambda: Samples(SEVERAL, CHOICE), {}),
    ("CnnPolicy", lambda: Samples(IMAGE, CHOICE), {}),
]


@pytest.mark.parametrize(("policy", "env", "changes"), SPACES)
@pytest.mark.filterwarnings("ignore:batch_size should divide", "ignore:You have specified a mini-batch size")
def test_without_a_task_it_learns_what_ppo_learns(policy: str, env: Callable[[], Any], changes: dict[str, Any]) -> None:
    given = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 3, "device": "cpu", **changes}
    theirs = PPO(policy, env(), **given).learn(3 * 64)
    ours = DGVFPPO(policy, env(), auxiliary_task="none", **given).learn(3 * 64)
    for (name, own), other in zip(ours.policy.named_parameters(), theirs.policy.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0.0, atol=1e-6, msg=name)
    assert ours._n_updates == theirs._n_updates


@pytest.mark.parametrize(("policy", "env", "changes"), SPACES)
@pytest.mark.filterwarnings("ignore:batch_size should divide", "ignore:You have specified a mini-batch size")
def test_questions_are_discovered_in_all_spaces(policy: str, env: Callable[[], Any], changes: dict[str, Any]) -> None:
    given = {**SMALL, **changes, "auxiliary_task": "discovered", "target_kl": None, "questions": 4, "unroll_length": 2}
    model = DGVFPPO(policy, env(), **given)
    before = {name: value.clone() for name, value in model.learner.eta.items()}
    model.learn(2 * 16)
    assert (model.meta_updates, model.meta_skipped) == (1, 0)
    assert not any(torch.equal(value, before[name]) for name, value in model.learner.eta.items())


@pytest.mark.parametrize("task", get_args(Task))
@pytest.mark.parametrize("mode", get_args(EncoderMode))
def test_every_task_trains_the_encoder(task: str, mode: Any) -> None:
    env = "CollectObjectsSmall-v0" if task == "pixel-control" else "PuddleWorld-v0"
    model = model_of(task, env, encoder_mode="joint" if task == "none" else mode)
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    model.learn(4 * ROLLOUT)
    for name, value in model.policy.named_parameters():
        assert torch.isfinite(value).all(), name
        assert not torch.equal(value, before[name]), name
    assert model.meta_updates == (3 if task == "discovered" else 0)
    assert model._n_updates == 4 * 2


def test_an_auxiliary_loss_may_be_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardPrediction, "loss", lambda *arguments: torch.zeros(()))
    model = model_of("reward-prediction")
    before = model.learner.theta["answers.weight"].clone()
    assert torch.equal(model.learn(ROLLOUT).learner.theta["answers.weight"], before)


@pytest.mark.parametrize("changes", [{"question_encoder": "shared"}, {"question_discount": None, "question_window": 2}])
def test_all_kinds_of_questions_are_discovered(changes: dict[str, Any]) -> None:
    model = model_of(**changes)
    before = {name: value.clone() for name, value in model.learner.eta.items()}
    model.learn(3 * ROLLOUT)
    assert model.meta_skipped == 0
    assert not any(torch.equal(value, before[name]) for name, value in model.learner.eta.items())


DRAWN: list[torch.Tensor] = []


class WithDropout(MLPExtractor):
    """An extractor with dropout, which notes its masks in training."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features = super().forward(observations)
        if not self.training:
            return features
        DRAWN.append(torch.rand_like(features) < 0.5)
        return features * DRAWN[-1]


DROPPING = {"features_extractor_class": WithDropout, "features_extractor_kwargs": {"hidden": (16,)}}


@pytest.mark.parametrize(("task", "kwargs"), [("none", {}), ("discovered", {}), ("discovered", DROPPING)])
@pytest.mark.parametrize("steps", [2 * ROLLOUT, 2 * ROLLOUT + 5 * 4])
@pytest.mark.filterwarnings("ignore:not restored from pickles")
def test_training_goes_on_from_a_file_bitwise(tmp_path: Path, task: str, kwargs: dict[str, Any], steps: int) -> None:
    own = {"policy_kwargs": kwargs} if kwargs else {}
    whole = model_of(task, **own).learn(4 * ROLLOUT)
    model_of(task, **own).learn(steps + ROLLOUT, SaveAt(tmp_path / "model.zip", steps))
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    env = make_vec("PuddleWorld-v0", 4, 7)
    resumed = DGVFPPO.load(tmp_path / "model", env, device="cpu", custom_objects=own)
    resumed.learn(4 * ROLLOUT - steps, reset_num_timesteps=False)
    for own, other in ((resumed.learner.theta, whole.learner.theta), (resumed.learner.eta, whole.learner.eta)):
        torch.testing.assert_close(own, other, rtol=0.0, atol=0.0)
    assert resumed.meta_updates == whole.meta_updates


def test_meta_gradients_repeat_the_dropout_of_their_steps() -> None:
    space = gym.spaces.Box(-9.0, 9.0, (5,), np.float32)
    env = DummyVecEnv([lambda: Samples(space, CHOICE)] * 3)
    model = model_of(env=env, n_steps=4, batch_size=6, policy_kwargs=DROPPING, objective="end")
    model.learner.ppo = PPOSettings(batch_size=6, n_epochs=2)
    model.learner.step(random_rollout(0), 0.01, 0.0)
    last, after = DRAWN[-3:], len(DRAWN) + 1  # the meta-loss has a mask of its own
    model.learner.step(random_rollout(1), 0.01, 0.0)
    torch.testing.assert_close(DRAWN[after : after + 3], last[::-1])


class Rows(KVWriter):
    """Keeps what is logged about training."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        if row := {name: value for name, value in key_values.items() if name.startswith("train/")}:
            self.rows.append(row)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "changes", [{"use_sde": True, "clip_range_vf": 0.1, "max_grad_norm": 0.1}, {"target_kl": 1e-3, "n_epochs": 9}]
)
def test_it_logs_what_ppo_logs(changes: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    given = {"n_steps": 64, "batch_size": 16, "n_epochs": 2, "seed": 3, "device": "cpu", **changes}
    logged, printed = [], []
    for kind, task in ((PPO, {}), (DGVFPPO, {"auxiliary_task": "none"})):
        model = kind("MlpPolicy", Samples(VECTOR, REAL), verbose=1, **given, **task)
        rows = Rows()
        model.set_logger(Logger(None, [rows]))
        model.learn(4 * 64)
        logged.append(rows.rows)
        printed.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("Early")])
    for theirs, ours in zip(*logged, strict=True):
        for name, value in theirs.items():
            assert ours[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert len(logged[0]) == 3
    assert printed[0] == printed[1]
    assert len(printed[1]) == (3 if "target_kl" in changes else 0)


class _Target(AuxiliaryTask):
    """Has meta-parameters, and reads the features that the answers bootstrap from."""

    num_answers = 2
    reads_features = True

    def __init__(self, model: DGVFPPO) -> None:
        self.model, self.calls = model, 0

    def initial_meta_params(self) -> Params:
        return {"scale": torch.tensor([2.0, -1.0])}

    def loss(self, answers: torch.Tensor, bootstraps: torch.Tensor, eta: Params, rollout: Rollout) -> torch.Tensor:
        given = self.model._functions.answer(self.model.learner.theta, rollout.next_observations)  # type: ignore
        torch.testing.assert_close(given, bootstraps)
        self.calls += 1
        return ((answers - eta["scale"]) ** 2).sum(-1).mean()


class _OtherLoss(RandomGVFs):
    def loss(self, *arguments: Any) -> torch.Tensor:
        return super().loss(*arguments) * 2.0


def test_tasks_of_ones_own_get_meta_parameters_and_features() -> None:
    model = model_of(lambda model: _Target(model), learning_rate=1e-2).learn(20 * ROLLOUT)  # type: ignore[arg-type]
    assert model.task.calls == 20 * 2 * 4  # type: ignore[attr-defined]
    observations = torch.as_tensor(model._last_obs)
    answers = model._functions.answer(
        model.learner.theta, model._functions.encode(model.learner.theta, observations, batch_dims=1)
    )
    torch.testing.assert_close(answers, torch.tensor([2.0, -1.0]).expand_as(answers), rtol=0.0, atol=0.1)


def test_an_interrupted_iteration_leaves_one_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The policy acts, and is saved, with the weights of the steps that were taken."""
    model, steps = model_of(), []
    before, step = model.learner.theta, PPOLearner._stepped

    def interrupted(self: PPOLearner, *arguments: Any) -> Any:
        steps.append(arguments)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PPOLearner, "_stepped", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.learn(ROLLOUT)
    acting = {name: value.clone() for name, value in model._functions.params().items()}
    assert not any(torch.equal(value, before[name]) for name, value in acting.items())
    model.save(tmp_path / "model")
    for trained in (model, DGVFPPO.load(tmp_path / "model", device="cpu")):
        torch.testing.assert_close(trained.learner.theta, acting, rtol=0.0, atol=0.0)


def test_divergence_is_reported_with_the_iteration_and_replaces_no_file(tmp_path: Path) -> None:
    model = model_of(env=Samples(VECTOR, REAL), learning_rate=lambda progress: 1e30 if progress < 0.6 else 1e-3)
    model.save(tmp_path / "model")
    good = (tmp_path / "model.zip").read_bytes()
    with pytest.raises(NotFiniteError, match="must be finite after"):
        model.learn(4 * 16)
    with pytest.raises(NotFiniteError, match="must be finite after"):
        model.save(tmp_path / "model")
    assert (tmp_path / "model.zip").read_bytes() == good


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 0), ("batch_size", 1), ("n_epochs", 0), ("target_kl", -1), ("answer_lambda", 5)]
)
def test_an_attribute_that_is_changed_is_checked(name: str, value: Any) -> None:
    model = model_of().learn(ROLLOUT)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"^{name} must "):
        model.learn(ROLLOUT)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"auxiliary_task must not override ask\(\) or loss\(\) .*a _OtherLoss"):
        model_of(lambda model: _OtherLoss(question_network(model.policy, 2, False)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        model_of(batch_size=1)
    with pytest.raises(ValueError, match="clip_range must be > 0, got -1"):
        model_of(clip_range=-1.0)
    with pytest.warns(UserWarning, match="batch_size should divide n_steps x n_envs = 64, got 24"):
        model_of(batch_size=24)


def test_answers_have_a_lambda_of_their_own() -> None:
    given = ({"gae_lambda": 0.3}, {"gae_lambda": 0.3, "answer_lambda": 0.3}, {"gae_lambda": 0.3, "answer_lambda": 0.9})
    usual, same, other = (model_of(**changes).learn(2 * ROLLOUT).learner.eta for changes in given)
    torch.testing.assert_close(usual, same, rtol=0.0, atol=0.0)
    assert not torch.equal(usual["cumulants.weight"], other["cumulants.weight"])


def test_files_keep_what_ppo_has_of_its_own(tmp_path: Path) -> None:
    model = model_of(clip_range=lambda progress: 0.1 + 0.2 * progress, target_kl=0.5, answer_lambda=0.3)
    model.learn(ROLLOUT)
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="not restored from pickles: clip_range"):
        loaded = DGVFPPO.load(tmp_path / "model")
    assert loaded.clip_range(0.5) == pytest.approx(0.2)  # type: ignore[operator]
    assert (loaded.target_kl, loaded.answer_lambda, loaded.batch_size) == (0.5, 0.3, 16)
    same = tree_map_only(torch.Tensor, torch.clone, loaded.learner.theta)
    torch.testing.assert_close(same, model.learner.theta, rtol=0.0, atol=0.0)
