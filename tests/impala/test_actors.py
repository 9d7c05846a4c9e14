"""Actors, the batch made of their rollouts, and learning from it: without Ray, all in one process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents import DGVFImpala
from dgvf_agents.agents.rollout import bootstrap_positions
from dgvf_agents.core.types import Rollout
from dgvf_agents.impala import actors as actors_module
from dgvf_agents.impala.actors import EnvironmentActor, RemoteEnvs
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.transport import batch_of, pack
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import TINY_MAP
from tests.impala.in_process import InProcessFleet
from tests.impala.models import Normalizing, small_model
from tests.random_rollouts import side_by_side
from tests.small_agents import BATCH, BOX, Samples, weights_of

CPU = torch.device("cpu")


def rooms(num_envs: int, seed: int | None) -> VecEnv:
    """Short episodes."""
    return make_vec("CollectObjects-v0", num_envs, seed, env_kwargs={"layout": TINY_MAP, "wrong_order": "terminate"})


def _model(env: Any = rooms, policy: str = "PaperCnnPolicy", **changes: Any) -> DGVFImpala:
    return small_model(env, policy, **{"actors": 2, **changes})


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> list[Rollout]:
    """The rollouts of actors, before they are packed."""
    rollouts: list[Rollout] = []

    def recorded(rollout: Rollout, *arguments: Any) -> Any:
        rollouts.append(rollout)
        return pack(rollout, *arguments)

    monkeypatch.setattr(actors_module, "pack", recorded)
    return rollouts


def _joined(rollouts: list[Rollout], index_terminated: bool) -> Rollout:
    """A batch of rollouts side by side, which bootstraps from the positions that actors' batches have."""
    batch = side_by_side(rollouts)
    ends = batch.truncated | batch.terminated if index_terminated else batch.truncated
    index, slot = map(torch.from_numpy, bootstrap_positions(ends.numpy()))
    return batch._replace(bootstrap_index=index, bootstrap_slot=slot)


# --- the batch --------------------------------------------------------------------------------------------------------


PICTURE = spaces.Box(0, 255, (12, 12, 1), np.uint8)


def stacked_pictures(num_envs: int, seed: int | None) -> VecEnv:
    return VecFrameStack(make_vec_env(lambda: Samples(PICTURE, spaces.Discrete(3)), num_envs, seed), 4)


def dicts(num_envs: int, seed: int | None) -> VecEnv:
    space = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
    return make_vec_env(lambda: Samples(space, spaces.Box(-2, 2, (2,), np.float32)), num_envs, seed)


@pytest.mark.parametrize(
    ("env", "policy", "changes"),
    [
        (rooms, "PaperCnnPolicy", {}),
        (rooms, "PaperCnnPolicy", {"question_encoder": "independent"}),
        (stacked_pictures, "PaperCnnPolicy", {}),
        (dicts, "MultiInputPolicy", {}),
        (dicts, "MultiInputPolicy", {"use_sde": True}),
    ],
)
def test_the_batch_is_the_actors_rollouts_side_by_side(
    env: Any, policy: str, changes: dict[str, Any], raw: list[Rollout]
) -> None:
    model = _model(env, policy, n_steps=12, **changes)
    actors = [EnvironmentActor(model._actor_spec(), i, 0) for i in range(2)]
    for _ in range(2):
        raw.clear()
        packed = [actor.rollout(model._parameters()) for actor in actors]
        features = model.task.reads_features
        batch, expected = batch_of(packed, {}, CPU, features), _joined(raw, features)
        assert batch.rewards.shape == (12, 4)
        torch.testing.assert_close(batch.given(), expected.given(), rtol=0, atol=0)
    if env is not dicts:
        assert batch.terminated[:-1].any()
    if env is stacked_pictures:
        assert len(packed[0].observed[""].parts) < 2 * 13 * 4


def test_log_probabilities_are_those_of_the_parameters_that_acted() -> None:
    model = _model(n_steps=12)
    actor = EnvironmentActor(model._actor_spec(), 0, 0)
    before = model._parameters()
    model.learner.set_theta({name: value + 0.1 for name, value in model.learner.theta.items()})
    model._sync_policy()
    after = model._parameters()._replace(version=1)
    for parameters, other in ((before, after), (after, before), (before._replace(version=1), after)):
        rollout = actor.rollout(parameters)  # of another learner if the version is the same as before
        assert rollout.version == parameters.version
        batch = batch_of([rollout], {}, CPU, True)
        for given, agrees in ((parameters, True), (other, False)):
            model._functions.show(torch.tensor(given.theta))
            _, log_probs, _ = model.policy.evaluate_actions(batch.observations.flatten(0, 1), batch.actions.flatten())  # type: ignore[union-attr, arg-type]
            assert torch.allclose(log_probs, batch.behavior_log_probs.flatten(), atol=1e-5) == agrees  # type: ignore[union-attr]


def test_actors_and_incarnations_differ_and_seeds_repeat() -> None:
    spec = _model()._actor_spec()
    parameters = _model()._parameters()

    def actions(actor: int, incarnation: int) -> list[Any]:
        one = EnvironmentActor(spec, actor, incarnation)
        return [one.rollout(parameters).actions.tolist() for _ in range(3)]

    assert actions(0, 0) == actions(0, 0)
    assert actions(0, 0) != actions(1, 0)
    assert actions(0, 0) != actions(0, 1)


def test_unseeded_actors_draw_exploration_matrices_of_their_own() -> None:
    def same_observations(num_envs: int, seed: int | None) -> VecEnv:
        return dicts(num_envs, 3)

    model = _model(same_observations, "MultiInputPolicy", use_sde=True, seed=None)
    spec, parameters = model._actor_spec(), model._parameters()
    first, second = (EnvironmentActor(spec, actor, 0).rollout(parameters) for actor in range(2))
    assert all((first.observed[name].parts == second.observed[name].parts).all() for name in first.observed)
    assert first.actions[0].tolist() != second.actions[0].tolist()


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("questions", ["shared", "independent"])
@pytest.mark.parametrize("lag", [0, 2])
def test_the_learner_s_updates_are_those_of_the_embedded_learner_on_the_same_batches(
    questions: str, lag: int, raw: list[Rollout], in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcessFleet, "lag", lag)
    changes: dict[str, Any] = {"question_encoder": questions, "learning_rate": 1e-2, "ent_coef": 0.01}
    distributed, embedded = _model(**changes), _model(actors=0, **changes)
    assert torch.equal(weights_of(distributed), weights_of(embedded))
    distributed.learn(8 * 20)
    assert len(raw) == 16
    for first in range(0, 16, 2):
        batch = _joined(raw[first : first + 2], questions == "shared")
        embedded.learner.step(batch, 1e-2, 6e-4)
    assert distributed.meta_updates == embedded.meta_updates == 2
    torch.testing.assert_close(distributed.learner.theta, embedded.learner.theta, rtol=0, atol=0)
    torch.testing.assert_close(distributed.learner.eta, embedded.learner.eta, rtol=0, atol=0)


def test_steps_callbacks_episodes_and_logs(in_process: None, tmp_path: Path) -> None:
    class Count(BaseCallback):
        steps: list[int]
        fleet: Any

        def _on_training_start(self) -> None:
            self.steps, self.fleet = [], self.model._fleet  # type: ignore[attr-defined]

        def _on_step(self) -> bool:
            self.steps.append(self.num_timesteps)
            return True

        def _on_rollout_end(self) -> None:
            assert self.model.rollout_buffer.advantages.shape == (5, 4)  # type: ignore[attr-defined]
            assert self.model._n_updates == len(self.steps) - 1  # type: ignore[attr-defined]

    count = Count()
    model = _model(tensorboard_log=str(tmp_path))
    model.learn(6 * 20, [count, StopTrainingOnMaxEpisodes(10_000)], log_interval=2)
    assert count.steps == [20, 40, 60, 80, 100, 120]
    assert count.fleet.stopped
    assert model._fleet is None
    sent = [info["episode"]["r"] for rollout in count.fleet.rollouts for info in rollout.infos]
    assert len(sent) >= 3
    assert [episode["r"] for episode in model.ep_info_buffer or ()] == sent
    assert count.fleet.records == 3
    assert (tmp_path / "DGVFImpala_1").is_dir()


def test_an_error_stops_the_actors(in_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fleets = []

    def fail(self: InProcessFleet, *arguments: Any) -> Any:
        fleets.append(self)
        raise RuntimeError("no rollouts")

    monkeypatch.setattr(InProcessFleet, "collect", fail)
    with pytest.raises(RuntimeError, match="no rollouts"):
        _model().learn(20)
    assert fleets[0].stopped


def test_actors_use_the_learner_s_running_statistics(in_process: None) -> None:
    model = _model("CartPole-v1", "MlpPolicy", policy_kwargs={"features_extractor_class": Normalizing})
    model.learn(3 * 20)
    parameters = model._parameters()
    assert any(array.any() for name, array in parameters.statistics.items() if name.endswith("running_mean"))
    actor = EnvironmentActor(model._actor_spec(), 0, 0)
    batch = batch_of([actor.rollout(parameters)], {}, CPU, True)
    _, log_probs, _ = model.policy.evaluate_actions(batch.observations.flatten(0, 1), batch.actions.flatten())  # type: ignore[union-attr, arg-type]
    torch.testing.assert_close(log_probs, batch.behavior_log_probs.flatten(), rtol=0, atol=1e-5)  # type: ignore[union-attr]


def test_without_ray_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"actors must be 0 without Ray, which the extra `ray` installs, dgvf\[ray\]"):
        _model().learn(20)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_model_is_saved_loaded_and_trained_further(in_process: None, tmp_path: Path) -> None:
    settings = ActorSettings(calls_in_flight=3, max_failures=7)
    model = _model(actor_settings=settings, envs_per_actor=1).learn(4 * 20)
    model.save(tmp_path / "model")
    loaded = DGVFImpala.load(tmp_path / "model", rooms, device="cpu")
    assert (loaded.actors, loaded.n_envs, loaded.envs_per_actor) == (2, 4, 1)
    assert loaded.actor_settings is None  # they belong to a machine
    assert isinstance(loaded.env, RemoteEnvs)
    assert loaded.learner.unroll_updates == model.learner.unroll_updates == 1  # unrolls continue
    observations = rooms(4, 0).reset()
    np.testing.assert_array_equal(
        loaded.predict(observations, deterministic=True)[0], model.predict(observations, deterministic=True)[0]
    )
    loaded.learn(3 * 20, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded._n_updates) == (7 * 20, 7)
    assert not torch.equal(weights_of(loaded), weights_of(model))


def test_a_model_changes_between_actors_and_none(in_process: None, tmp_path: Path) -> None:
    _model().learn(2 * 20).save(tmp_path / "model")
    embedded = DGVFImpala.load(tmp_path / "model", rooms(4, 0), device="cpu", actors=0)
    embedded.learn(20, reset_num_timesteps=False).save(tmp_path / "model")
    assert embedded.num_timesteps == 60
    distributed = DGVFImpala.load(tmp_path / "model", rooms, device="cpu", actors=1)
    assert distributed.learn(20, reset_num_timesteps=False).num_timesteps == 80
    with pytest.raises(ValueError, match="env must be an environment id or a function"):
        DGVFImpala.load(tmp_path / "model", rooms(4, 0), device="cpu", actors=2)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["none", "discovered"])
def test_compiled_updates_off_policy_give_the_same_numbers(
    task: str, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With parameters two updates old, so that ratios are not 1."""
    monkeypatch.setattr(InProcessFleet, "lag", 2)
    weights = []
    for compile in (False, True):
        model = _model(auxiliary_task=task, compile=compile).learn(9 * BATCH)
        weights.append(weights_of(model))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)
