"""Policies that people bring: what A2C trains is trained the same way, or refused when the model is made."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.extractors import AtariCNNExtractor, MultiInputExtractor, window_space
from dgvf_agents.agents.policies import ALIASES
from dgvf_agents.core.argument_checks import UnsupportedSpaceError
from tests import small_agents
from tests.small_agents import BOX, Samples

IMAGE = spaces.Box(0, 255, (1, 36, 36), np.uint8)
VECTORS = spaces.Dict({"a": BOX, "b": spaces.Discrete(4)})
CONTINUOUS = spaces.Box(-2.0, 2.0, (2,), np.float32)
SMALL: dict[str, Any] = {**small_agents.SMALL, "questions": 3, "unroll_length": 1}


def _model(policy: Any = "MlpPolicy", observed: spaces.Space = BOX, actions: Any = None, **changes: Any) -> DGVFA2C:
    return DGVFA2C(policy, Samples(observed, actions or spaces.Discrete(3)), **{**SMALL, **changes})


SECOND: dict[str, Callable[[], nn.Module]] = {
    "twice": nn.PReLU,
    "lstm": lambda: nn.LSTM(8, 8, batch_first=True),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
    "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(8, 8)),
    "hardsigmoid": nn.Hardsigmoid,
}
"""The second layer by kind, where it is not linear."""


class Own(BaseFeaturesExtractor):
    """A layer, and what `kind` says."""

    def __init__(self, observation_space: spaces.Space, kind: str = "") -> None:
        super().__init__(observation_space, 8)
        self.kind, self.first, self.second = kind, nn.Linear(3, 8), SECOND.get(kind, lambda: nn.Linear(8, 8))()
        if kind == "frozen":
            self.first.requires_grad_(False)
        if kind == "twice":
            self.net = nn.Sequential(self.first)
        if kind == "tied":
            self.third = nn.Linear(8, 8)
            self.third.weight = self.second.weight

    def forward(self, observations: Tensor) -> Tensor:
        x = torch.tanh(self.first(observations))
        if self.kind == "lstm":
            return self.second(x[:, None])[0][:, -1]
        if self.kind == "attention":
            return self.second(x.view(-1, 2, 4)).flatten(1)
        if self.kind == "twice":
            return self.second(self.net(self.second(x[:, :3])))
        if self.kind == "tied":
            return self.third(torch.tanh(self.second(x)))
        if self.kind == "checkpoint":
            return torch.utils.checkpoint.checkpoint(self.second, x, use_reentrant=False)
        if self.kind == "function":
            return Doubled.apply(x)
        return self.second(x)


class Doubled(torch.autograd.Function):
    forward = staticmethod(lambda context, x: 2 * x)
    backward = staticmethod(lambda context, gradient: 2 * gradient)


def _own(kind: str) -> dict[str, Any]:
    return {"features_extractor_class": Own, "features_extractor_kwargs": {"kind": kind}}


class OwnLayers(nn.Module):
    """As in Stable-Baselines3's page on custom policies."""

    latent_dim_pi, latent_dim_vf = 6, 5

    def __init__(self, features: int) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(features, 6), nn.Sequential(nn.Linear(features, 5), nn.ReLU())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return torch.tanh(self.policy(features))

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.value(features)


class OwnLayersPolicy(ActorCriticPolicy):
    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = OwnLayers(self.features_dim)  # type: ignore[assignment]


NETWORKS: dict[str, tuple[Any, spaces.Space, dict[str, Any]]] = {
    "MlpPolicy": ("MlpPolicy", BOX, {}),
    "CnnPolicy": ("CnnPolicy", IMAGE, {}),
    "MultiInputPolicy": ("MultiInputPolicy", VECTORS, {}),
    "Stable-Baselines3's class": (ActorCriticPolicy, BOX, {}),
    "extractor": ("MlpPolicy", BOX, _own("")),
    "net_arch as dict, extractor": ("MlpPolicy", BOX, {**_own(""), "net_arch": {"pi": [4], "vf": [6, 8]}}),
    "two extractors": ("MlpPolicy", BOX, {**_own(""), "share_features_extractor": False}),
    "own layers": (OwnLayersPolicy, BOX, {}),
    "frozen": ("MlpPolicy", BOX, _own("frozen")),
    "twice": ("MlpPolicy", BOX, _own("twice")),
    "tied": ("MlpPolicy", BOX, _own("tied")),
    "lstm": ("MlpPolicy", BOX, _own("lstm")),
    "attention": ("MlpPolicy", BOX, _own("attention")),
}


def _parameters(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.policy.named_parameters()}


@pytest.mark.parametrize(("policy", "observed", "kwargs"), NETWORKS.values(), ids=NETWORKS.keys())
def test_networks_start_as_a2c_s_and_every_task_trains_them(
    policy: Any, observed: spaces.Space, kwargs: dict[str, Any]
) -> None:
    theirs = A2C(policy, Samples(observed, spaces.Discrete(3)), policy_kwargs=kwargs, seed=0, device="cpu")
    started = _parameters(theirs)
    theirs.learn(30)
    trained = {name for name, value in _parameters(theirs).items() if not torch.equal(value, started[name])}
    for task in ("none", "discovered", "reward-prediction"):
        for storage in ("graph", "recompute") if task == "discovered" else ("graph",):
            model = _model(policy, observed, policy_kwargs=kwargs, auxiliary_task=task, storage=storage)
            before = _parameters(model)
            assert before.keys() == started.keys()
            assert all(torch.equal(value, started[name]) for name, value in before.items())
            model.learn(30)
            after = _parameters(model)
            assert {name for name, value in after.items() if not torch.equal(value, before[name])} == trained
            assert all(type(parameter) is nn.Parameter for parameter in model.policy.parameters())
            assert all(torch.equal(after[name], value) for name, value in _as_of_policy(model).items())
            assert model.meta_updates == (5 if task == "discovered" else 0)


def _as_of_policy(model: DGVFA2C) -> dict[str, Tensor]:
    """θ under the policy's names."""
    state = model._functions.state_dicts(model.learner.theta, {})["policy"]
    return {name: state[name] for name, _ in model.policy.named_parameters()}


def test_parameters_are_frozen_and_thawed_at_any_time() -> None:
    model = _model(policy_kwargs={**_own(""), "optimizer_class": torch.optim.AdamW}).learn(20)
    for frozen in (True, False):
        model.policy.features_extractor.requires_grad_(not frozen)
        before = model.policy.features_extractor.first.weight.detach().clone()
        model.learn(20)
        assert torch.equal(model.policy.features_extractor.first.weight, before) == frozen


@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["checkpoint", "function", "weight_norm", "hardsigmoid"])
def test_what_cannot_be_differentiated_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ValueError, match=r"features_extractor_class must be differentiable twice by .* got Own: "):
        _model(policy_kwargs=_own(kind))
    if kind == "hardsigmoid":  # has one derivative
        _model(policy_kwargs=_own(kind), auxiliary_task="none").learn(10)


class OwnForward(ActorCriticPolicy):
    def forward(self, *arguments: Any, **more: Any) -> Any:
        return super().forward(*arguments, **more)


class OwnDistribution(ActorCriticPolicy):
    def _build(self, lr_schedule: Any) -> None:
        self.action_dist = type("Mine", (CategoricalDistribution,), {})(3)
        super()._build(lr_schedule)


def test_overridden_methods_and_distributions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"policy must not override forward, got OwnForward: .* _build_mlp_extractor"):
        _model(OwnForward)
    with pytest.raises(ValueError, match=r"policy must have the action_dist .* CategoricalDistribution, got .*Mine"):
        _model(OwnDistribution)


def test_an_assigned_policy_is_refused_and_its_weights_are_taken() -> None:
    other, model = _model(seed=7).policy, _model(learning_rate=1e-9)
    with pytest.raises(ValueError, match=r"policy must not be assigned .*load_state_dict"):
        model.policy = other
    model.policy.load_state_dict(other.state_dict())
    model.learn(10)
    torch.testing.assert_close(dict(model.policy.state_dict()), dict(other.state_dict()), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda policy: setattr(policy, "action_net", nn.Linear(64, 3)), "keep the parameters .* action_net.bias"),
        (
            lambda policy: policy.mlp_extractor.policy_net.append(nn.Linear(64, 64)),
            r"keep .*policy_net\.4\.bias",
        ),
        (lambda policy: setattr(policy, "forward", lambda *arguments: None), "not override forward"),
        (lambda policy: setattr(policy, "action_dist", None), "have the action_dist"),
    ],
)
def test_replaced_parts_of_a_policy_are_refused(replace: Any, message: str) -> None:
    model = _model().learn(10)
    replace(model.policy)
    with pytest.raises(ValueError, match=f"^policy must {message}"):
        model.learn(10)


def _made(policy: str, kwargs: dict[str, Any], sde: bool) -> dict[str, Any]:
    """What an argument may change: modules, parameters, and what acting and updates read."""
    observed = {"CnnPolicy": IMAGE, "PaperCnnPolicy": IMAGE, "ResNetPolicy": IMAGE, "MultiInputPolicy": VECTORS}
    model = _model(policy, observed.get(policy, BOX), CONTINUOUS, policy_kwargs=kwargs, use_sde=sde)
    dist = model.policy.action_dist
    settings = [getattr(dist, name, None) for name in ("use_expln", "full_std")]
    settings += [model.policy.squash_output, model._optimizer, str(model.policy), model._functions._encoder.preprocess]
    return {"settings": str(settings), **{name: value.tolist() for name, value in model.learner.theta.items()}}


@cache
def _usual(policy: str, sde: bool) -> dict[str, Any]:
    return _made(policy, {}, sde)


ARGUMENTS: dict[str, tuple[Any, bool]] = {
    "net_arch": ([5], False),
    "activation_fn": (nn.ELU, False),
    "ortho_init": (False, False),
    "share_features_extractor": (False, False),
    "features_extractor_class": (Own, False),
    "features_extractor_kwargs": ({"features_dim": 9}, False),
    "normalize_images": (False, False),
    "log_std_init": (-1.0, False),
    "full_std": (False, True),
    "use_expln": (True, True),
    "squash_output": (True, True),
    "optimizer_class": (torch.optim.Adam, False),
    "optimizer_kwargs": ({"eps": 0.5}, False),
}
AS_IN_A2C = {
    *(("CnnPolicy", "activation_fn"), ("MlpPolicy", "normalize_images"), ("PaperMlpPolicy", "normalize_images")),
    *(("MultiInputPolicy", "normalize_images"), ("MultiInputPolicy", "share_features_extractor")),
    ("MlpPolicy", "share_features_extractor"),  # whose extractor has no parameters
}
"""Without effect, in Stable-Baselines3 too, on these observations and without layers of `net_arch`."""


@pytest.mark.parametrize("policy", ALIASES)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_of_a_policy_is_used_or_refused(policy: str, name: str) -> None:
    value, sde = ARGUMENTS[name]
    if name == "optimizer_kwargs":
        value = {"momentum": 0.5} if policy == "MlpPolicy" else value
    usual = _usual(policy, sde)
    try:
        changed = _made(policy, {name: value}, sde) != usual
    except (TypeError, ValueError, RuntimeError) as error:
        refused = str(error)
    else:
        assert changed == ((policy, name) not in AS_IN_A2C)
        return
    # the layers of an extractor may have another shape, and an extractor refuses what it has no argument for
    assert any(word in refused for word in (name, "features_dim")) or name == "features_extractor_class"


class Sign(gym.Env):
    """One step; the sign of the input, far inside the declared bounds, is the right action."""

    def __init__(self, bound: float, dtype: Any) -> None:
        self.observation_space = spaces.Box(-bound, bound, (2,), dtype)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x = self.np_random.choice([-1, 1], 2).astype(self.observation_space.dtype)
        return self.x, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self.x, float(action == (self.x[0] > 0)), True, False, {}


@pytest.mark.parametrize(
    ("policy", "bound", "dtype"), [("MlpPolicy", 1e10, np.float32), ("PaperMlpPolicy", 2**31 - 1, np.int64)]
)
def test_declared_bounds_far_away_do_not_blind_the_encoder(policy: str, bound: float, dtype: Any) -> None:
    given = {"n_steps": 20, "learning_rate": 3e-3, "auxiliary_task": "none"}
    model = DGVFA2C(policy, Sign(bound, dtype), **{**SMALL, **given}).learn(2_000)
    assert evaluate_policy(model, model.get_env(), 100)[0] > 0.9


@pytest.mark.parametrize(
    "actions",
    [
        spaces.Box(0, 5, (2,), np.int64),
        spaces.Box(-1.0, 1.0, (2, 1), np.float64),
        spaces.MultiDiscrete([3, 3], dtype=np.int32),
    ],
    ids=str,
)
def test_predictions_are_actions_of_the_space_as_in_training(actions: spaces.Space) -> None:
    model = _model("MlpPolicy", BOX, actions, auxiliary_task="none").learn(20)  # `Samples` refuses any others
    for deterministic in (True, False):
        action, _ = model.predict(BOX.sample(), deterministic=deterministic)
        assert actions.contains(action)
        assert model.predict(np.stack([BOX.sample()] * 3))[0].dtype == actions.dtype


def test_a_pickled_model_learns_on() -> None:
    model = _model().learn(20)
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.learn(20, reset_num_timesteps=False)
    assert copy.num_timesteps == model.num_timesteps
    assert all(value.isfinite().all() for value in copy.policy.parameters())
    with pytest.raises(TypeError, match=r"env must be such that it can be pickled, got .*: use save\(path\)"):
        pickle.dumps(DGVFA2C("PaperMlpPolicy", "PuddleWorld-v0", **SMALL))


def test_layers_answers_and_questions_are_of_the_same_architecture(tmp_path: Path) -> None:
    kwargs = {"net_arch": {"pi": [4], "vf": [6, 8]}}
    model = _model(policy_kwargs=kwargs, question_window=2).learn(30)
    assert model.answer_net is not None
    assert model.answer_net.in_features == 4 + 8
    widths = [part.out_features for part in model.task.network.modules() if isinstance(part, nn.Linear)]  # type: ignore[attr-defined]
    assert widths == [4, 3]  # the policy's, then the questions
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", device="cpu")
    assert all(
        torch.equal(value, loaded.policy.state_dict()[name]) for name, value in model.policy.state_dict().items()
    )


SIDE = 36
FRAMES = gym.spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
SCALED = gym.spaces.Box(0.0, 1.0, (2, SIDE, SIDE), np.float32)
PLACE = gym.spaces.Box(-1.0, 3.0, (2,), np.float32)


def test_every_image_has_convolutions_of_its_own_and_the_rest_one_network() -> None:
    space = gym.spaces.Dict({"above": FRAMES, "below": FRAMES, "place": PLACE, "speed": PLACE})
    torch.manual_seed(0)  # with other initial values all four ReLUs may be 0
    extractor = MultiInputExtractor(space, cnn_output_dim=16, hidden=(8, 4))
    assert extractor.features_dim == 16 + 16 + 4
    generator = torch.Generator().manual_seed(0)
    observations = {
        name: torch.rand(3, *inner.shape, generator=generator)
        for name, inner in space.spaces.items()  # type: ignore[misc]
    }
    whole = extractor(observations)
    assert whole.shape == (3, 36)
    parts = {"above": slice(0, 16), "below": slice(16, 32), "place": slice(32, 36), "speed": slice(32, 36)}
    for name, part in parts.items():
        changed = extractor({**observations, name: 1.0 - observations[name]}) != whole
        assert changed[:, part].any(), name
        changed[:, part] = False
        assert not changed.any(), name


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (SCALED, r"images, uint8 in \[0, 255\].*: pass policy_kwargs=\{'normalize_images': False\}"),
        (gym.spaces.Box(0, 255, (1, 35, 60), np.uint8), "images of side >= 36"),
    ],
)
def test_what_is_no_picture_for_these_convolutions_is_refused(space: gym.Space, message: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        AtariCNNExtractor(space)
    assert AtariCNNExtractor(SCALED, 8, normalized_image=True).features_dim == 8
    several = gym.spaces.Dict({"image": SCALED, "place": PLACE})
    assert MultiInputExtractor(several, 8, hidden=(4,), normalized_image=True).features_dim == 8 + 4


def test_observations_that_cannot_be_joined_have_no_windows() -> None:
    for space in (gym.spaces.Box(-1.0, 1.0, ()), gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, ())})):
        with pytest.raises(ValueError, match=r"question_window must be 1 for observations of Box.*, got 2"):
            window_space(space, 2)
        assert window_space(space, 1) == space
