"""What an algorithm cannot be built with is named, with its value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.policies import BasePolicy

from dgvf_agents import DGVFA2C, DGVFPPO
from dgvf_agents.agents.arguments import inner_optimizer_for
from dgvf_agents.agents.schedules import GeometricSchedule, scheduled, value_at
from dgvf_agents.core.optimizers import SGD
from dgvf_agents.core.tasks import RewardPrediction
from dgvf_envs.sb3_adapter import make_vec
from tests.small_agents import BATCH, BOX, Samples, small_model


class _Nameless(RewardPrediction):
    def num_answers(self) -> int:  # type: ignore[override]
        return 1


class Still(BasePolicy):
    """Never moves, and values nothing."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, *arguments: Any, **options: Any) -> None:
        super().__init__(observation_space, action_space)

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        return torch.full((len(observation),), 4)


CHOICE, IMAGE = spaces.Discrete(2), spaces.Box(0, 255, (3, 9, 9), np.uint8)
BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"question_discount": 1.0}, r"question_discount must lie in \[0, 1\) or be None, got 1.0"),
    ({"gamma": 1.01}, r"^gamma must lie in \[0, 1\], got 1.01"),
    ({"n_envs": 0}, "^n_envs must "),
    ({"env": "CartPole-v1", "n_envs": 10**9}, "^n_envs must be <= 65536"),
    ({"stats_window_size": 0}, "^stats_window_size must "),
    ({"sde_sample_freq": 0}, "^sde_sample_freq must "),
    ({"inner_optimizer": "adam"}, "^inner_optimizer must "),
    ({"rollout_buffer_class": ReplayBuffer}, "^rollout_buffer_class must "),
    ({"auxiliary_task": "pixels"}, "auxiliary_task must be one of .*got 'pixels'"),
    ({"auxiliary_task": None}, "auxiliary_task must be one of .*'none'.*got None"),
    ({"auxiliary_task": RewardPrediction()}, "auxiliary_task must be .* got a RewardPrediction: pass lambda model"),
    ({"auxiliary_task": RewardPrediction}, "got the class RewardPrediction: pass lambda model: RewardPrediction"),
    (
        {"auxiliary_task": lambda model: _Nameless()},
        "num_answers of auxiliary_task must be an integer >= 0, got <bound",
    ),
    ({"auxiliary_task": lambda model: "none"}, "auxiliary_task must return an AuxiliaryTask.*'none'"),
    ({"compile": "yes"}, "compile must be True, False or 'auto', got 'yes'"),
    ({"seed": "0"}, r"seed must be an integer in \[0, 2\^32\) or None, got '0'"),
    ({"seed": -1}, r"seed must be an integer in \[0, 2\^32\) or None, got -1"),
    ({"policy_kwargs": "x"}, "policy_kwargs must be a dict or None, got 'x'"),
    ({"policy_kwargs": {"activation_fn": "relu"}}, "activation_fn must be a class of modules.*got 'relu'"),
    ({"policy_kwargs": {"activation_fn": torch.tanh}}, "activation_fn must be a class of modules"),
    ({"policy_kwargs": {"activation_fn": torch.nn.Tanh()}}, "activation_fn must be a class of modules"),
    ({"policy_kwargs": {"log_std_init": "a"}}, "log_std_init must be a finite number, got 'a'"),
    ({"policy_kwargs": {"ortho_init": "no"}}, "ortho_init must be True or False, got 'no'"),
    ({"ent_coef": 1e308}, r"^ent_coef must be a finite number in single precision >= 0, got 1e\+308"),
    *(
        ({name: lambda remaining: remaining - 0.5}, f"^{name} must give finite numbers >= 0, got -0.5 where 0 of the")
        for name in ("learning_rate", "ent_coef", "meta_learning_rate", "auxiliary_coefficient")
    ),
    *(
        ({name: lambda remaining, given=given: given}, f"^{name} must give finite numbers >= 0, got .* where 1 of the")
        for name in ("learning_rate", "ent_coef", "meta_learning_rate")
        for given in ("0.1", None, [1], 1j, np.nan, -1.0)
    ),
    (
        {"env": make_vec("PuddleWorld-v0", 4, 0), "n_envs": 8},
        "^n_envs must be None or 4, the number of environments of env, got 8",
    ),
    *(
        ({"policy_kwargs": {"net_arch": layers}}, r"net_arch must be a list of integers >= 1, a dict .* got ")
        for layers in (-3, [-3], [0], "x", [1.5], [True], ["8"], [[8]], {"pi": -3}, {"pi": [-3]}, {"policy": [8]}, {8})
    ),
    # combinations that mean nothing
    *(
        ({"policy": policy}, f"^policy must be a policy's name or an ActorCriticPolicy class, got {found}")
        for policy, found in ((Still, "Still"), (torch.nn.Linear, "Linear"), (3, "3"))
    ),
    ({"env": None}, "^env must be an environment or its id, got None"),
    ({"device": None}, "^device must be a device name .* got None"),
    *(({name: "x"}, f"^{name} must be True or False, got 'x'") for name in ("use_sde", "monitor_wrapper")),
    ({"verbose": None}, "^verbose must be an integer >= 0, got None"),
    ({"tensorboard_log": 3}, "^tensorboard_log must be a path or None, got 3"),
    ({"rollout_buffer_kwargs": 3}, "^rollout_buffer_kwargs must be a dict or None, got 3"),
    *(
        (
            {"policy": "MlpPolicy", "policy_kwargs": kwargs},
            r"^policy_kwargs must be keyword arguments that fit, got \{'",
        )
        for kwargs in (
            {"x": 1},
            {"features_extractor_class": "x"},
            {"features_extractor_kwargs": {"x": 1}},
            {"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"betas": 3}},
        )
    ),
    ({"policy": "MlpPolicy", "auxiliary_task": "pixel-control"}, "observations must be images"),
    ({"env": "Pendulum-v1", "auxiliary_task": "pixel-control"}, "auxiliary_task must not be"),
    ({"n_envs": 1, "n_steps": 1, "normalize_advantage": True}, "normalize_advantage must be False"),
    ({"inner_optimizer": SGD(), "policy_kwargs": {"optimizer_class": torch.optim.SGD}}, "inner_optimizer must be None"),
    ({"use_sde": True}, "gSDE"),
    ({"env": Samples(spaces.Dict({"a": BOX}), CHOICE), "policy": "MlpPolicy"}, "MultiInputPolicy"),
    ({"policy": "MultiInputPolicy"}, "observation_space must be a Dict"),
    ({"env": Samples(BOX, spaces.Discrete(3, start=1))}, "action_space must count from 0"),
    ({"policy": "PaperCnnPolicy"}, "observation_space must have planes"),
    ({"policy": "CnnPolicy"}, "observation_space must have images .* use PaperCnnPolicy"),
    ({"env": Samples(spaces.Dict({"a": IMAGE}), CHOICE), "policy": "MultiInputPolicy"}, "'a': .*MultiInputExtractor"),
]


@pytest.mark.parametrize("env", ["PuddleWorld-v0", "CartPole-v1"])
def test_a_seed_of_numpy_is_one_of_python(env: str) -> None:
    weights = [small_model(env, "MlpPolicy", seed=seed).learner.theta for seed in (np.int64(3), 3)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_model(**changes)


@pytest.mark.parametrize("name", ["gamma", "gae_lambda", "n_envs", "size"])
def test_a_rollout_buffer_has_only_arguments_of_its_own(name: str) -> None:
    with pytest.raises(ValueError, match=f"^rollout_buffer_kwargs must .*'{name}'"):
        small_model(rollout_buffer_kwargs={name: 1})


@pytest.mark.parametrize("loss", [torch.zeros(2), 0.0, None])
def test_a_task_s_loss_is_a_scalar(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardPrediction, "loss", lambda *arguments: loss)
    with pytest.raises(ValueError, match=r"^loss of auxiliary_task must be a scalar tensor, got "):
        small_model(auxiliary_task=lambda model: RewardPrediction()).learn(BATCH)


@pytest.mark.parametrize(("name", "value"), [("unroll_length", 0), ("objective", "Sum"), ("meta_skip_norm", "1")])
def test_an_attribute_that_is_changed_is_checked(name: str, value: Any) -> None:
    model = small_model().learn(BATCH)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"^{name} must "):
        model.learn(BATCH)


def test_logs_stay_in_their_folder(tmp_path: Path) -> None:
    model = small_model(tensorboard_log=str(tmp_path / "logs"))
    with pytest.raises(ValueError, match=r"tb_log_name must name a folder inside tensorboard_log, got '\.\./x'"):
        model.learn(1, tb_log_name="../x")


def test_learning_needs_an_environment(tmp_path: Path) -> None:
    small_model().save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"env must be given to load\(\) or set_env\(\) before learn\(\), got None"):
        DGVFA2C.load(tmp_path / "model").learn(1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.zip"
    small_model().save(path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *BAD_ARGUMENTS[:3],
        ({"verbose": "a"}, "^verbose must be an integer >= 0, got 'a'"),
        ({"n_envs": 7}, r"n_envs must be .*, as the model was saved, got 7: pass env"),
        ({"trusted": "no"}, "^trusted must be True or False, got 'no'"),
        ({"policy_kwargs": {}}, "policy_kwargs must be those in the file"),
        ({"custom_objects": []}, "custom_objects must be a dict or None"),
        ({"custom_objects": {"unroll_length": "x"}}, "^unroll_length must be an integer >= 1, got 'x'"),
        ({"use_sde": True}, "^use_sde must be False unless actions are a Box, got True"),
        ({"custom_objects": {"learning_rats": 0.5}}, "custom_objects must name attributes .*, got learning_rats"),
        ({"learning_rats": 0.5}, r"load\(\) must name attributes of the model, got learning_rats"),
        ({"auxiliary_task": "none", "gamma": 0.5}, r"^load\(\) must keep .*: auxiliary_task 'discovered', got 'none'$"),
        ({"env": make_vec("PuddleWorld-v0", 4), "n_envs": 7}, "n_envs must be 4, as env has it, got 7"),
    ],
)
def test_bad_arguments_of_load_are_named(saved: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DGVFA2C.load(saved, **changes)


@pytest.mark.parametrize("name", ["learning_rate", "ent_coef", "meta_learning_rate"])
def test_a_schedule_that_gives_no_number_on_the_way_is_named(name: str) -> None:
    model = small_model(**{name: lambda remaining: float("nan") if 0.0 < remaining < 0.5 else 1e-3})
    with pytest.raises(ValueError, match=f"^{name} must give finite numbers >= 0, got nan where 0"):
        model.learn(12 * BATCH)


NUMBER = spaces.Box(-1.0, 1.0, (), np.float32)

OTHER_SPACES: list[tuple[spaces.Space, str]] = [
    (spaces.Text(3), "must be one of Box, .* got Text"),
    (spaces.Tuple([BOX]), "must be one of Box, .* got Tuple"),
    (NUMBER, r"must have at least one axis and none that is empty, .* of shape \(\)"),
    (spaces.Box(-1.0, 1.0, (2, 0), np.float32), r"must have at least one axis .* of shape \(2, 0\)"),
    (spaces.MultiDiscrete([[2, 3], [2, 2]]), r"must have one axis if it is a MultiDiscrete, got"),
    (spaces.Dict({}), "must have at least one part, got Dict"),
    (spaces.Dict({"a": spaces.Text(3)}), "must be one of Box, .* got Text"),
    (spaces.Dict({"a": NUMBER}), "must have at least one axis"),
    (spaces.Dict({"a": spaces.Dict({"b": BOX})}), "must not have a Dict within a Dict"),
    (spaces.Dict({"a": spaces.Discrete(3, start=1)}), "must count from 0"),
]


@pytest.mark.parametrize(("space", "message"), OTHER_SPACES, ids=lambda value: str(value)[:30])
def test_observations_of_other_spaces_are_refused(space: spaces.Space, message: str) -> None:
    policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    with pytest.raises(ValueError, match=f"observation_space {message}"):
        small_model(Samples(space, spaces.Discrete(2)), policy)


def test_actions_of_other_spaces_are_refused() -> None:
    for space in (spaces.Text(3), spaces.Dict({"a": spaces.Discrete(2)}), spaces.Tuple([spaces.Discrete(2)])):
        with pytest.raises(ValueError, match=f"action_space must be Discrete, .* got {type(space).__name__}"):
            small_model(Samples(BOX, space))


@pytest.mark.parametrize("layers", [None, [], [8], (8, 4), [np.int64(8)], {"pi": [8], "vf": []}, {"vf": [8]}, {}])
def test_layers_may_be_given_in_several_ways(layers: Any) -> None:
    heads = small_model(policy_kwargs={"net_arch": layers}).policy.mlp_extractor
    given = layers if isinstance(layers, dict) else {"pi": layers or [], "vf": layers or []}
    for part, modules in (("pi", heads.policy_net), ("vf", heads.value_net)):
        widths = [module.out_features for module in modules if isinstance(module, torch.nn.Linear)]
        assert widths == list(given.get(part, []))


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        (torch.optim.Adagrad, {}, "optimizer_class must be RMSpropTFLike, .* got Adagrad. Pass inner_optimizer="),
        (torch.optim.Adam, {"amsgrad": True}, "optimizer_kwargs must have amsgrad=False, got True"),
        (torch.optim.Adam, {"alpha": 0.9}, "optimizer_kwargs must be arguments of Adam, got 'alpha'"),
    ],
)
def test_what_has_no_counterpart_is_refused(kind: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inner_optimizer_for(kind, kwargs)


@pytest.mark.parametrize("kind", [DGVFA2C, DGVFPPO])
@pytest.mark.parametrize("given", [{"questions": 64}, {"unroll_length": 5}])
def test_arguments_of_questions_that_nothing_asks_for_are_warned_of(kind: Any, given: dict[str, int]) -> None:
    ((name, value),) = given.items()
    cases: list[dict[str, Any]] = [{}, {"auxiliary_task": "discovered", **given}, given]
    cases.append({"auxiliary_task": "reward-prediction", **given})
    with pytest.warns(UserWarning, match=rf"^{name}={value} has no effect while auxiliary_task is '") as told:
        [kind("MlpPolicy", "CartPole-v1", device="cpu", **arguments) for arguments in cases]
    assert [str(one.message).split()[-1] for one in told] == ["'none'", "'reward-prediction'"]


def test_an_inner_optimizer_needs_no_counterpart_of_the_policys() -> None:
    kwargs = {"optimizer_kwargs": {"momentum": 0.9}}  # of PyTorch's RMSprop, which no update uses
    given = {"auxiliary_task": "discovered", "inner_optimizer": SGD(), "compile": False}
    model = DGVFA2C("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, **given)  # type: ignore[arg-type]
    assert model.learner.functions.rule.optimizer == SGD()


def test_a_geometric_schedule_multiplies_by_the_same_factor_from_start_to_end() -> None:
    values = [GeometricSchedule(0.3, 0.003)(1.0 - done / 10) for done in range(11)]
    assert values[0] == pytest.approx(0.3)
    assert values[5] == pytest.approx(0.03)
    assert values[-1] == pytest.approx(0.003)
    np.testing.assert_allclose(np.divide(values[1:], values[:-1]), 0.01**0.1)


@pytest.mark.parametrize(("start", "end", "named"), [(0.0, 1.0, "start"), (1.0, 0.0, "end"), (1.0, -1.0, "end")])
def test_a_geometric_schedule_refuses_what_has_no_order_of_magnitude(start: float, end: float, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} must be > 0"):
        GeometricSchedule(start, end)


def test_schedules_of_hyperparameters_are_linear_or_geometric() -> None:
    for name, middle in (("learning_rate", 0.2), ("ent_coef", 0.0632)):
        schedule = scheduled(name, 0.4, 0.01 if name == "ent_coef" else 0.0)
        assert value_at(schedule, 0.5) == pytest.approx(middle, rel=1e-3)
        assert scheduled(name, 0.3, None) == value_at(0.3, 0.5) == 0.3
