"""What a script written for Stable-Baselines3 does, with our agents in place of its own."""

from __future__ import annotations

import inspect
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper
from torch import nn

from dgvf_agents import DGVFA2C, DGVFPPO
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.agents.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, PaperMlpPolicy
from tests.small_agents import BOX, SMALL, Samples, small_model, weights_of


def _model(env: Any = "CartPole-v1", policy: Any = "MlpPolicy", **changes: Any) -> DGVFA2C:
    return small_model(env, policy, **{"n_envs": None, "policy_kwargs": {"net_arch": [8]}, **changes})


@pytest.mark.parametrize(("base", "agent"), [(A2C, DGVFA2C), (PPO, DGVFPPO)])
def test_arguments_and_defaults_are_those_of_stable_baselines3(base: type, agent: type) -> None:
    theirs, ours = (list(inspect.signature(kind.__init__).parameters.values()) for kind in (base, agent))
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]
    assert all(p.kind is p.KEYWORD_ONLY for p in ours[len(theirs) :])


def test_an_id_makes_one_monitored_copy() -> None:
    model = _model()
    assert model.n_envs == 1
    assert model.env is not None
    assert model.env.env_is_wrapped(Monitor) == [True]
    assert _model(gym.make("CartPole-v1"), monitor_wrapper=False).env.env_is_wrapped(Monitor) == [False]


class Seen(BaseCallback):
    """Notes which events come when."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int]] = []

    def _on_rollout_start(self) -> None:
        self.events.append(("start", self.num_timesteps))

    def _on_step(self) -> bool:
        assert self.locals["new_obs"].shape[0] == self.locals["env"].num_envs
        assert {"actions", "rewards", "dones", "infos", "callback"} <= set(self.locals)
        self.events.append(("step", self.num_timesteps))
        return True

    def _on_rollout_end(self) -> None:
        self.events.append(("end", self.num_timesteps))

    def _on_training_end(self) -> None:
        self.events.append(("over", self.num_timesteps))


def test_callbacks_see_the_same_events_at_the_same_steps() -> None:
    events = []
    for kind, more in ((A2C, {}), (DGVFA2C, SMALL)):
        seen, every = Seen(), EveryNTimesteps(n_steps=7, callback=Seen())
        env = make_vec_env("CartPole-v1", 2, seed=0)
        model = kind("MlpPolicy", env, n_steps=3, **{**more, "device": "cpu"}).learn(20, [seen, every])
        model.learn(10, seen, reset_num_timesteps=False)
        events.append((seen.events, every.callback.events, model.num_timesteps, model._n_updates))
    assert events[0] == events[1]


def test_a_policy_saved_alone_acts_the_same(tmp_path: Path) -> None:
    images = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    several = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
    for policy, space in ((MlpPolicy, BOX), (PaperMlpPolicy, BOX), (CnnPolicy, images), (MultiInputPolicy, several)):
        env = Samples(space, spaces.Box(-2, 2, (2,), np.float32))
        model = _model(env, policy, policy_kwargs={}).learn(20)
        model.policy.save(tmp_path / "policy")
        loaded = policy.load(tmp_path / "policy", device="cpu")
        observation = space.sample()
        for deterministic in (True, False):
            torch.manual_seed(1)
            expected = model.policy.predict(observation, deterministic=deterministic)[0]
            torch.manual_seed(1)
            actual = loaded.predict(observation, deterministic=deterministic)[0]
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)  # weights may lie elsewhere in memory


def test_parameters_come_and_go_by_name() -> None:
    model, other = _model(seed=1).learn(20), _model(seed=2).learn(20)
    parameters = deepcopy(model.get_parameters())
    assert list(parameters) == ["policy", "answer_net", "question_net", "optimizers"]
    with pytest.raises(ValueError, match="invalid object name"):
        other.set_parameters({**parameters, "nothing": {}})
    with pytest.raises(ValueError, match="do not match"):
        other.set_parameters({"policy": parameters["policy"]})
    for name in ("policy", "question_net"):
        cut = dict(list(parameters[name].items())[:-1])
        with pytest.raises((RuntimeError, ValueError)):
            other.set_parameters({**parameters, name: cut})
        last, kept = list(parameters[name])[-1], deepcopy(other.get_parameters()[name])
        other.set_parameters({name: {key: value + 1 for key, value in cut.items()}}, exact_match=False)
        now = other.get_parameters()[name]
        assert torch.equal(now[last], kept[last])
        assert all(torch.equal(now[key], value + 1) for key, value in cut.items())
    other.set_parameters(parameters)
    for model_ in (model, other):  # both optimizers' statistics too: they go on alike
        model_.set_env(make_vec_env("CartPole-v1", 1, seed=5))
        model_.set_random_seed(5)
        model_.learner.restart_unroll()
        model_.learn(30)
    for one, another in zip(model.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(one, another)


@pytest.mark.parametrize("write", ["in place", "to a vector", "to .data", "other .data"])
def test_weights_written_into_the_policy_are_trained_and_saved(write: str, tmp_path: Path) -> None:
    model = _model(learning_rate=0.0).learn(20)
    policy, layer = model.policy, model.policy.action_net
    wanted = 2.0 * weights_of(model)
    if write == "to a vector":
        policy.load_from_vector(wanted.numpy())
    with torch.no_grad():
        for parameter in policy.parameters() if write != "to a vector" else ():
            if write == "in place":
                parameter.mul_(2.0)
            elif write == "to .data":
                parameter.data.mul_(2.0)
            else:
                parameter.data = 2.0 * parameter.data
    model.save(tmp_path / "model")
    for trained in (DGVFA2C.load(tmp_path / "model", device="cpu"), model.learn(20)):
        torch.testing.assert_close(weights_of(trained), wanted, rtol=0.0, atol=0.0)
    assert model.policy.action_net is layer


def test_adam_has_the_epsilon_of_stable_baselines3() -> None:
    """Which is not PyTorch's, where `optimizer_class` is Adam and has no arguments."""
    for given, epsilon in (({}, 1e-5), ({"optimizer_kwargs": {"eps": 1e-3}}, 1e-3), ({"optimizer_kwargs": {}}, 1e-8)):
        model = _model(policy_kwargs={"optimizer_class": torch.optim.Adam, **given})
        theirs = A2C("MlpPolicy", "CartPole-v1", policy_kwargs={"optimizer_class": torch.optim.Adam, **given})
        assert model.learner.functions.rule.optimizer.epsilon == epsilon  # type: ignore[attr-defined]
        assert [m.policy.optimizer.param_groups[0]["eps"] for m in (model, theirs)] == [epsilon] * 2


class Running(BaseFeaturesExtractor):
    """Puts another buffer in place of its own."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, get_flattened_obs_dim(observation_space))
        self.layer = nn.Linear(self.features_dim, self.features_dim)
        self.register_buffer("scale", torch.ones(self.features_dim))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.scale = 0.9 * self.scale + 0.1 * observations.abs().mean(0)
        return self.layer(observations / self.scale)


def test_a_buffer_that_is_replaced_is_saved(tmp_path: Path) -> None:
    custom = {"policy_kwargs": {"features_extractor_class": Running}}
    model = _model(**custom).learn(20)
    scale = model.policy.features_extractor.scale
    assert not torch.equal(scale, torch.ones_like(scale))
    torch.testing.assert_close(next(iter(model._rollout.statistics.values())).shape, scale.shape)
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", device="cpu", custom_objects=custom)
    torch.testing.assert_close(loaded.policy.features_extractor.scale, scale, rtol=0.0, atol=0.0)


class Noisy(BaseFeaturesExtractor):
    """Normalizes over the batch and drops units."""

    def __init__(self, observation_space: spaces.Space, hidden: tuple[int, ...] = ()) -> None:
        size = get_flattened_obs_dim(observation_space)
        super().__init__(observation_space, size)
        self.batch_norm = nn.BatchNorm1d(size)
        self.layers = nn.Sequential(nn.Flatten(), self.batch_norm, nn.Linear(size, size), nn.Dropout(0.5), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


def _noisy(**changes: Any) -> DGVFA2C:
    return _model(make_vec_env("CartPole-v1", 4, seed=0), policy_kwargs={"features_extractor_class": Noisy}, **changes)


def test_running_statistics_move_in_updates_only_and_acting_is_free_of_dropout() -> None:
    model = _noisy()
    _, callback = model._setup_learn(100)
    norm = model.policy.features_extractor.batch_norm
    before = norm.running_mean.clone()
    observations = model.env.reset()
    actions = [model.policy.predict_values(torch.from_numpy(observations)) for _ in range(2)]
    assert torch.equal(*actions)
    for _ in range(2):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    assert torch.equal(norm.running_mean, before)
    model.train()
    mean = model._rollout.observations.flatten(0, 1).mean(0)
    torch.testing.assert_close(norm.running_mean, 0.9 * before + 0.1 * mean)
    weight = norm.weight.detach().clone()
    model.learn(60)
    assert not torch.equal(norm.weight, weight)


def test_dropout_needs_the_graph() -> None:
    with pytest.raises(ValueError, match="storage must be 'graph'"):
        _noisy(storage="recompute")


class NormalizedHeads(ActorCriticPolicy):
    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Sequential(nn.BatchNorm1d(self.mlp_extractor.latent_dim_pi), self.action_net)


def test_batch_normalization_in_heads_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy must have dropout .* got action_net.0: BatchNorm1d"):
        _model(policy=NormalizedHeads, policy_kwargs={}, auxiliary_task="none")


def test_a_policy_s_actions_reach_the_environment_within_its_space() -> None:
    """`Samples` refuses any others; drawn ones lie outside at this standard deviation."""
    env = Samples(BOX, spaces.Box(-0.1, 0.1, (2,), np.float32))
    model = _model(env, policy_kwargs={"log_std_init": 1.0}).learn(20)
    assert model.rollout_buffer.actions.std() > 1
    squashed = _model(env, use_sde=True, policy_kwargs={"squash_output": True}).learn(20)
    assert np.abs(squashed.rollout_buffer.actions).max() > 0.1  # in [-1, 1], stretched for the environment


def test_exploration_matrices_are_drawn_as_often_as_asked() -> None:
    for frequency, expected in ((-1, 2), (2, 8)):  # twice at the first step, as Stable-Baselines3 draws
        model = _model("Pendulum-v1", use_sde=True, sde_sample_freq=frequency)
        drawn = ActorCriticPolicy.reset_noise
        with mock.patch.object(ActorCriticPolicy, "reset_noise", autospec=True, side_effect=drawn) as reset_noise:
            model.learn(10)
        assert reset_noise.call_count == expected


class WithoutLastObservations(VecEnvWrapper):
    """Forgets what was observed last in an episode."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            info.pop("terminal_observation", None)
        return observations, rewards, dones, infos


def _forgetful(limit: int | None = None) -> WithoutLastObservations:
    return WithoutLastObservations(make_vec_env("CartPole-v1", 2, seed=0, env_kwargs={"max_episode_steps": limit}))


@pytest.mark.parametrize("task", ["none", "reward-prediction"])
def test_last_observations_that_nothing_depends_on_may_be_missing_as_in_a2c(task: str) -> None:
    weights = []
    for env in (_forgetful(), make_vec_env("CartPole-v1", 2, seed=0)):
        model = _model(env, auxiliary_task=task).learn(100)
        assert model.ep_info_buffer  # episodes ended
        weights.append(weights_of(model))
    assert torch.equal(*weights)


@pytest.mark.parametrize("task", ["none", "discovered", "random"])
def test_last_observations_that_are_needed_and_missing_are_named(task: str) -> None:
    env = _forgetful(limit=5 if task == "none" else None)
    with pytest.raises(ValueError, match=r"infos must hold terminal_observation .*environment \d"):
        _model(env, auxiliary_task=task).learn(100)


def test_a_normalized_environment_that_is_loaded_for_evaluation_stays_as_it_is(tmp_path: Path) -> None:
    """The recipe in Stable-Baselines3's documentation, with an environment that gives its state."""
    env = VecNormalize(make_vec_env("PuddleWorld-v0", 2, seed=0))
    _model(env).learn(40).save(tmp_path / "model")
    env.save(str(tmp_path / "env.pkl"))
    evaluation = VecNormalize.load(str(tmp_path / "env.pkl"), make_vec_env("PuddleWorld-v0", 2, seed=1))
    evaluation.training, evaluation.norm_reward = False, False
    DGVFA2C.load(tmp_path / "model", env=evaluation, device="cpu")
    assert (evaluation.training, evaluation.norm_reward) == (False, False)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.6])
def test_the_rollout_buffer_shows_what_a2c_would_have_collected(gae_lambda: float) -> None:
    shown = []

    class Look(RolloutCallback):
        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            shown.append((buffer.returns.copy(), buffer.values.copy(), buffer.episode_starts.copy(), buffer.size()))

    space = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
    env = DummyVecEnv([lambda: Samples(space, spaces.Discrete(3))] * 2)
    model = _model(env, "MultiInputPolicy", n_steps=8, gae_lambda=gae_lambda, gamma=0.9).learn(32, Look())
    returns, values, starts, size = shown[-1]
    assert size == 8
    assert np.array_equal(model.rollout_buffer.returns, returns)  # after training: of the policy that collected it
    rollout = model._rollout
    assert rollout is not None
    ended, terminated = (rollout.terminated | rollout.truncated).numpy(), rollout.terminated.numpy()
    assert np.array_equal(starts[1:].astype(bool), ended[:-1])
    for copy in range(2):
        last = int(np.flatnonzero(terminated[:, copy])[-1])
        future = float(rollout.rewards[last, copy])
        assert returns[last, copy] == pytest.approx(future)
        for t in range(last - 1, last - 3, -1):  # the two steps before in the same episode
            ahead = (1 - gae_lambda) * values[t + 1, copy] + gae_lambda * future
            future = float(rollout.rewards[t, copy]) + 0.9 * ahead
            assert returns[t, copy] == pytest.approx(future, rel=1e-4)


COMPILED: dict[str, tuple[str, spaces.Space, spaces.Space, dict[str, Any]]] = {
    "gsde": ("MlpPolicy", BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {"use_sde": True}),
    "noisy": ("MlpPolicy", BOX, spaces.MultiBinary(2), {"policy_kwargs": {"features_extractor_class": Noisy}}),
    "dict": (
        "MultiInputPolicy",
        spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}),
        spaces.MultiDiscrete([2, 3]),
        {"gae_lambda": 0.9, "normalize_advantage": True},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "observed", "actions", "changes"), COMPILED.values(), ids=COMPILED.keys())
def test_compiled_updates_of_every_kind_give_the_same_numbers(
    policy: str, observed: spaces.Space, actions: spaces.Space, changes: dict[str, Any]
) -> None:
    weights = []
    for compile in (False, True):
        model = _model(Samples(observed, actions), policy, compile=compile, **changes).learn(20)
        weights.append(weights_of(model))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)
