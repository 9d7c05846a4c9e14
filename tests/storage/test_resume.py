"""Training that goes on from a file is bitwise training that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize
from torch import nn
from torch.utils._pytree import tree_map_only

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import assert_same
from tests.small_agents import BATCH, COPIES, STEPS, SaveAt, puddle, small_model


def everything(model: DGVFA2C) -> dict[str, Any]:
    """All that training changes, by name."""
    trees = {"θ": model.policy.state_dict(), "η": model.learner.eta, **model.optimizers.state_dict()}
    named = tree_map_only(torch.Tensor, np.asarray, trees)
    names = ("num_timesteps", "_n_updates", "meta_updates", "meta_skipped", "_last_obs", "_last_episode_starts")
    named |= {name: getattr(model, name) for name in names}
    named["episodes"] = [(float(e["r"]), e["l"]) for e in model.ep_info_buffer or ()]
    named["episodes kept"] = None if model.ep_info_buffer is None else model.ep_info_buffer.maxlen
    named["actions"] = model._collector.get_state()["generator"].bit_generator.state
    named["metrics"] = [np.asarray(metric) for metric in model.metrics or ()]
    return named


def assert_same_training(actual: DGVFA2C, expected: DGVFA2C) -> None:
    assert_same(everything(actual), everything(expected))


def assert_goes_on(
    model: DGVFA2C,
    env: Callable[[], VecEnv],
    path: Path,
    total: int,
    steps: int,
    at_rollout_end: bool | None = None,
    **options: Any,
) -> DGVFA2C:
    """Train a model, save it after `steps` of `total` steps, and train the saved one to the same end; returns that one.

    Args:
        model: to train.
        env: makes an environment like the model's.
        path: of the file.
        total: environment steps.
        steps: after which the model is saved.
        at_rollout_end: whether a callback saves it there or in a step; `None`: no callback does.
        options: of `load`.
    """
    if at_rollout_end is None:
        model.learn(steps).save(path)
        model.learn(total - steps, reset_num_timesteps=False)
    else:
        model.learn(total, SaveAt(path, steps, at_rollout_end))
    torch.manual_seed(99)  # some other use of the random generator
    resumed = DGVFA2C.load(path, env(), device="cpu", **options).learn(total - steps, reset_num_timesteps=False)
    assert_same_training(resumed, model)
    return resumed


TASKS = ("discovered", "random", "reward-prediction", "none")
VARIANTS: dict[str, dict[str, Any]] = {
    **{task: {"auxiliary_task": task} for task in TASKS},
    "end objective": {"objective": "end"},
    "recompute": {"storage": "recompute"},
    "myopic": {"horizon": "myopic"},
    "surrogate": {"convention": "surrogate"},
    "adam": {"use_rms_prop": False},
    "unroll of one": {"unroll_length": 1},
    "schedule": {"learning_rate": LinearSchedule(1e-3, 1e-5, 1.0)},
}


PLACES = [("discovered", updates) for updates in (1, 3, 7)] + [(variant, 5) for variant in VARIANTS]
MORE_PLACES = [pytest.param("discovered", updates, marks=pytest.mark.slow) for updates in (2, 4)]


@pytest.mark.parametrize(("variant", "updates"), [*PLACES, *MORE_PLACES])
def test_training_goes_on_from_a_file_as_if_never_stopped(variant: str, updates: int, tmp_path: Path) -> None:
    model, total = small_model(puddle(), **VARIANTS[variant]), (updates + 8) * BATCH
    resumed = assert_goes_on(model, puddle, tmp_path / "model.zip", total, updates * BATCH)
    assert resumed.num_timesteps == total
    assert len(model.ep_info_buffer or ()) > 5  # episodes ended on the way


class Drift(gym.Env):
    """A point that actions push, for ten steps; gives its state."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps, self.place = self.steps + 1, np.clip(self.place + 0.1 * action, -1.0, 1.0).astype(np.float32)
        return self.place.copy(), float(-np.abs(self.place).sum()), False, self.steps == 10, {}

    def get_state(self) -> dict[str, Any]:
        return {"steps": self.steps, "place": self.place.copy(), "random": self.np_random}

    def set_state(self, state: dict[str, Any]) -> None:
        self.steps, self.place, self._np_random = state["steps"], state["place"].copy(), state["random"]


def drift() -> VecEnv:
    return DummyVecEnv([Drift for _ in range(COPIES)])


PLACES_TO_SAVE = {
    "between updates": (6 * BATCH, None),
    "within a rollout": (5 * BATCH + 2 * COPIES, False),
    "last step of a rollout": (6 * BATCH, False),
    "end of a rollout": (6 * BATCH, True),
}
"""Environment steps, and whether a callback saves at the end of the rollout; `None` where no callback does."""


@pytest.mark.parametrize("place", PLACES_TO_SAVE)
def test_exploration_matrices_are_those_of_training_that_never_stopped(place: str, tmp_path: Path) -> None:
    for frequency in (-1, 2):
        model = small_model(drift(), use_sde=True, sde_sample_freq=frequency, policy_kwargs={"net_arch": [4]})
        assert_goes_on(model, drift, tmp_path / "model.zip", 9 * BATCH, *PLACES_TO_SAVE[place])


class Pixels(Drift):
    """Shows its state as an image."""

    observation_space = spaces.Box(0, 255, (3, 36, 36), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return self._image(super().reset(seed=seed)[0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        place, *others = super().step(action)
        return self._image(place), *others

    def _image(self, place: np.ndarray) -> np.ndarray:
        return (np.arange(3 * 36 * 36).reshape(3, 36, 36) * (2.0 + place.sum()) % 256).astype(np.uint8)


@pytest.mark.parametrize("place", ["between updates", "within a rollout"])
def test_images_lie_in_memory_as_in_training_that_never_stopped(place: str, tmp_path: Path) -> None:
    def pixels() -> VecEnv:
        return DummyVecEnv([Pixels for _ in range(COPIES)])

    model = small_model(pixels(), "CnnPolicy", policy_kwargs={"net_arch": [8]})
    assert_goes_on(model, pixels, tmp_path / "model.zip", 9 * BATCH, *PLACES_TO_SAVE[place])


class Dropping(BaseFeaturesExtractor):
    """Drops half of its units, by a module or by a function, which nothing can tell from outside."""

    def __init__(self, space: spaces.Box, by_module: bool = True) -> None:
        super().__init__(space, 16)
        self.layer, self.dropout = nn.Linear(2, 16), nn.Dropout(0.5) if by_module else None

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features = self.layer(observations).relu()
        return nn.functional.dropout(features, 0.5, self.training) if self.dropout is None else self.dropout(features)


@pytest.mark.parametrize(
    ("place", "by_module", "changes"),
    [
        *((place, True, {}) for place in PLACES_TO_SAVE),
        ("between updates", False, {}),
        ("between updates", True, {"objective": "end"}),
        ("between updates", True, {"unroll_length": 1}),
    ],
)
def test_an_unroll_drops_the_same_units_when_it_is_taken_again(
    place: str, by_module: bool, changes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "model.zip"
    kwargs = {"features_extractor_class": Dropping, "features_extractor_kwargs": {"by_module": by_module}}
    model = small_model(puddle(), policy_kwargs=kwargs, **changes)
    custom = {"policy_kwargs": kwargs}
    assert_goes_on(model, puddle, path, 9 * BATCH, *PLACES_TO_SAVE[place], custom_objects=custom)
    assert DGVFA2C.load(path, puddle(), device="cpu", custom_objects=custom).learner.unroll_updates > 0


ENVIRONMENTS: dict[str, Callable[[], VecEnv]] = {
    "DummyVecEnv": lambda: make_vec_env("PuddleWorld-v0", COPIES, 0, env_kwargs={"max_episode_steps": 9}),
    "VecFrameStack": lambda: VecFrameStack(ENVIRONMENTS["DummyVecEnv"](), 2),
    "VecNormalize": lambda: VecNormalize(ENVIRONMENTS["DummyVecEnv"]()),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_training_goes_on_in_wrapped_environments(kind: str, tmp_path: Path) -> None:
    env = ENVIRONMENTS[kind]
    assert_goes_on(small_model(env()), env, tmp_path / "model.zip", 10 * BATCH, 5 * BATCH)


CHANGES: dict[str, Any] = {
    "vf_coef": 3.0,
    "max_grad_norm": 0.01,
    "normalize_advantage": True,
    "auxiliary_coefficient": 4.0,
    "head_rate": 0.0,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "auxiliary_weighting": "fixed",
    "encoder_mode": "auxiliary",
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_attributes_take_effect_with_the_next_update(name: str, tmp_path: Path) -> None:
    """In the middle of an unroll, which restarts, be they changed while training or by `load`."""
    changes = {name: CHANGES[name]}
    model = small_model(puddle()).learn(5 * BATCH)
    model.save(tmp_path / "model")
    setattr(model, name, CHANGES[name])
    model.learn(5 * BATCH, reset_num_timesteps=False)
    loaded = DGVFA2C.load(tmp_path / "model", puddle(), device="cpu", **changes)
    loaded.learn(5 * BATCH, reset_num_timesteps=False)
    assert_same_training(model, loaded)
    unchanged = DGVFA2C.load(tmp_path / "model", puddle(), device="cpu").learn(5 * BATCH, reset_num_timesteps=False)
    assert (model.meta_updates, unchanged.meta_updates) == (2, 3)
    weights = (torch.nn.utils.parameters_to_vector(m.policy.parameters()) for m in (model, unchanged))
    assert not torch.allclose(*weights)


class Annealing(RolloutCallback):
    """Lowers c_H before every rollout."""

    def _on_rollout_start(self) -> None:
        self.model.ent_coef = 0.5 / (1 + self.num_timesteps)  # type: ignore[attr-defined]


def test_a_coefficient_that_a_callback_anneals_interrupts_no_unroll_and_is_resumed_with(tmp_path: Path) -> None:
    model = small_model(puddle()).learn(8 * BATCH, Annealing())
    assert model.meta_updates == 2
    model.save(tmp_path / "model")
    model.learn(8 * BATCH, Annealing(), reset_num_timesteps=False)
    loaded = DGVFA2C.load(tmp_path / "model", puddle(), device="cpu")
    assert_same_training(loaded.learn(8 * BATCH, Annealing(), reset_num_timesteps=False), model)


@pytest.mark.parametrize("steps", [5 * BATCH, 5 * BATCH + 2 * COPIES])
def test_a_loaded_model_that_is_saved_again_still_goes_on(steps: int, tmp_path: Path) -> None:
    total = 9 * BATCH
    model = small_model(puddle()).learn(total, SaveAt(tmp_path / "first.zip", steps))
    for env in (puddle(), None, None):
        DGVFA2C.load(tmp_path / "first", env, device="cpu").save(tmp_path / "first")
    resumed = DGVFA2C.load(tmp_path / "first", puddle(), device="cpu")
    assert_same_training(resumed.learn(total - steps, reset_num_timesteps=False), model)


def test_what_was_logged_outlives_a_model_that_is_only_loaded_and_saved(tmp_path: Path) -> None:
    model = small_model(puddle())
    model.set_logger(configure(None, []))
    model.learn(5 * BATCH)
    model.logger.record("mine", 3.0)
    model.save(tmp_path / "first")
    DGVFA2C.load(tmp_path / "first", puddle(), device="cpu").save(tmp_path / "second")
    resumed = DGVFA2C.load(tmp_path / "second", puddle(), device="cpu")
    resumed.learn(BATCH, reset_num_timesteps=False)
    assert resumed.logger.name_to_value["mine"] == 3.0


@pytest.mark.parametrize("n_steps", [3, 8])
def test_another_length_of_rollouts_is_refused_in_the_middle_of_one(n_steps: int, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    small_model(puddle()).learn(6 * BATCH, SaveAt(path, 5 * BATCH + 2 * COPIES))
    with pytest.raises(ValueError, match=f"n_steps must be 5, .*middle of a rollout.* got {n_steps}: force_reset=True"):
        DGVFA2C.load(path, puddle(), device="cpu", n_steps=n_steps)
    DGVFA2C.load(path, device="cpu", n_steps=n_steps)  # to predict
    loaded = DGVFA2C.load(path, puddle(), device="cpu", n_steps=n_steps, force_reset=True)
    loaded.learn(4 * COPIES * n_steps, reset_num_timesteps=False)
    assert loaded.num_timesteps == 5 * BATCH + 2 * COPIES + 4 * COPIES * n_steps


def _fill(model: DGVFA2C) -> None:
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.fill_(1.0)


def test_weights_that_are_written_are_those_that_learning_goes_on_from(tmp_path: Path) -> None:
    small_model(puddle()).learn(5 * BATCH).save(tmp_path / "model")
    ones = {name: torch.ones_like(value) for name, value in small_model(puddle()).policy.state_dict().items()}
    for write in (
        _fill,
        lambda model: model.policy.load_state_dict(ones),
        lambda model: model.set_parameters({"policy": ones}, exact_match=False),
    ):
        model = DGVFA2C.load(tmp_path / "model", puddle(), device="cpu", learning_rate=1e-12)
        assert model.learner.unroll_updates > 0
        write(model)
        model.save(tmp_path / "written")
        for one in (model, DGVFA2C.load(tmp_path / "written", puddle(), device="cpu")):
            one.learn(BATCH, reset_num_timesteps=False)
            assert all((p - 1.0).abs().max() < 1e-6 for p in one.policy.parameters())
            assert one.learner.unroll_updates == 1  # it restarted


def test_a_shorter_unroll_ends_at_once_and_takes_no_longer_one_again(tmp_path: Path) -> None:
    model = small_model(puddle()).learn(3 * BATCH)
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", puddle(), device="cpu")
    for one, meta_updates in ((model, 2), (loaded, 1)):
        one.unroll_length = 1
        one.learn(2 * BATCH, reset_num_timesteps=False)
        assert (one.learner.unroll_updates, one.meta_updates) == (1, meta_updates)


def test_the_environment_begins_anew_where_it_must(tmp_path: Path) -> None:
    model = small_model(puddle()).learn(3 * BATCH)
    model.save(tmp_path / "model")
    assert DGVFA2C.load(tmp_path / "model", puddle(), device="cpu")._last_obs is not None
    assert DGVFA2C.load(tmp_path / "model", puddle(), device="cpu", force_reset=True)._last_obs is None
    other = make_vec("PuddleWorld-v0", COPIES)
    assert DGVFA2C.load(tmp_path / "model", other, device="cpu")._last_obs is None
    assert DGVFA2C.load(tmp_path / "model", other, device="cpu", force_reset=False)._last_obs is not None
    fewer = DGVFA2C.load(tmp_path / "model", make_vec("PuddleWorld-v0", 2), device="cpu")
    assert fewer.learn(4 * 2 * STEPS, reset_num_timesteps=False).num_timesteps == 3 * BATCH + 4 * 2 * STEPS


@pytest.mark.slow
def test_changed_attributes_are_compiled_anew() -> None:
    compiled, eager = (small_model(puddle(), compile=compile).learn(2 * BATCH) for compile in (True, False))
    for model in (compiled, eager):
        model.vf_coef = 3.0
        model.learn(2 * BATCH, reset_num_timesteps=False)
    weights = (torch.nn.utils.parameters_to_vector(m.policy.parameters()) for m in (compiled, eager))
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_compiled_training_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    for steps in (12 * BATCH, 12 * BATCH + 2 * COPIES):
        model = small_model(puddle(), compile=True)
        assert_goes_on(model, puddle, tmp_path / "model.zip", 30 * BATCH, steps, at_rollout_end=False)
