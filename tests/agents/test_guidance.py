"""Settings that keep an agent from learning are warned of, once and by name, and good ones are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.agents import logging as guidance
from dgvf_agents.agents.logging import AuxiliaryDominanceWarning, ConstantCumulantsWarning, SmallInputsWarning
from dgvf_agents.core.tasks import AuxiliaryTask
from dgvf_agents.core.types import Params, Rollout
from tests import small_agents

SMALL: dict[str, Any] = {**small_agents.SMALL, "questions": 4, "unroll_length": 2, "n_steps": 1}
PATIENCE, UPDATES = 40, 60


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guidance, "PATIENCE", PATIENCE)


class Cells(gym.Env):
    """Cells of small integers, as MiniGrid's: an image space by its type, whatever it holds."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, largest: int = 10, kind: type = np.uint8) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (3, 4, 4), kind)
        self.largest = largest

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observation(), 0.0, bool(self.np_random.random() < 0.1), False, {}

    def _observation(self) -> np.ndarray:
        return self.np_random.integers(0, self.largest + 1, (3, 4, 4)).astype(self.observation_space.dtype)


class Loud(AuxiliaryTask):
    """A regression whose loss is huge."""

    @property
    def num_answers(self) -> int:
        return 1

    def loss(self, answers: torch.Tensor, bootstraps: torch.Tensor, eta: Params, rollout: Rollout) -> torch.Tensor:
        return 1e8 * ((answers - 1e3) ** 2).mean()


def trained(env: Any = "CartPole-v1", updates: int = UPDATES, log_interval: int = 5, **changes: Any) -> list[type]:
    """The kinds of warnings that training gives, in their order."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        DGVFA2C("MlpPolicy", env, **{**SMALL, **changes}).learn(updates, log_interval=log_interval)
    return [w.category for w in given if issubclass(w.category, UserWarning) and "dgvf" in w.category.__module__]


def cart_pole(function: Callable[[np.ndarray], np.ndarray]) -> gym.Env:
    """CartPole whose observations go through a function."""
    space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return gym.wrappers.TransformObservation(gym.make("CartPole-v1"), function, space)


@pytest.mark.parametrize(
    ("make", "settings", "expected"),
    [
        (Cells, {}, [SmallInputsWarning]),
        (Cells, {"policy_kwargs": {"normalize_images": False}}, []),
        (lambda: Cells(255), {}, []),
        (lambda: Cells(0), {}, []),  # nothing to see is not a matter of scale
        (lambda: cart_pole(lambda o: 1e-3 * o), {}, [SmallInputsWarning]),
        (lambda: cart_pole(np.asarray), {}, []),
    ],
    ids=["cells", "unscaled cells", "pixels", "black", "small vectors", "vectors"],
)
def test_tiny_inputs(make: Callable[[], gym.Env], settings: dict[str, Any], expected: list[type]) -> None:
    assert trained(make(), 30, auxiliary_task="none", **settings) == expected


LOUD: dict[str, Any] = {
    "auxiliary_task": lambda model: Loud(),
    "auxiliary_weighting": "fixed",
    "auxiliary_coefficient": 1.0,
}


def test_an_auxiliary_task_that_drowns_the_main_task() -> None:
    assert trained(**LOUD) == [AuxiliaryDominanceWarning]  # once, although it goes on
    assert trained(**LOUD, updates=PATIENCE - 5) == []  # not for long enough
    assert trained(**LOUD, encoder_mode="auxiliary") == []  # as it is meant to be
    assert trained(**{**LOUD, "auxiliary_weighting": "gradient-norm"}) == []


def test_cumulants_that_do_not_vary_over_states() -> None:
    assert trained(cart_pole(np.ones_like), n_steps=5, updates=5 * UPDATES) == [ConstantCumulantsWarning]
    assert trained(n_steps=5, updates=5 * UPDATES) == []
