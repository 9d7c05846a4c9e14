"""Whole runs of `DGVFA2C`, two unrolls long, against the literal transcription fed with the same experience.

θ, η and the statistics of both optimizers must agree after every update of both kinds, from the very first on. Only
public names of the model are used; experience is recorded by a wrapper around the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from dgvf_agents import DGVFA2C
from dgvf_agents.core.types import Params, Rollout
from tests.core_oracles import Algorithm, Rule, Statistics, gvf_loss
from tests.covering import crossed
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")

STEPS, COPIES, UPDATES, QUESTIONS, HIDDEN = 4, 3, 2, 5, (7,)
META_RATE, META_NORM, META_EPSILON = 3e-2, 0.02, 1e-4


class Noise(gym.Env):
    """Random observations and rewards that single precision holds exactly; episodes end both ways."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        luck, reward = self.np_random.random(), self.np_random.integers(-8, 9) / 4
        return self._observe(), float(reward), luck < 0.15, luck > 0.85, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.standard_normal(4).astype(np.float32)


class Recorder(VecEnvWrapper):
    """Keeps every step of the environments inside."""

    def __init__(self, venv: Any) -> None:
        super().__init__(venv)
        self.steps: list[tuple[np.ndarray, ...]] = []

    def reset(self) -> np.ndarray:
        self._seen = self.venv.reset()
        return self._seen

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions.copy()
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        following, rewards, dones, infos = self.venv.step_wait()
        ends = np.array([info.get("terminal_observation", f) for info, f in zip(infos, following, strict=True)])
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self.steps.append((self._seen.copy(), self._actions, rewards.copy(), dones & ~truncated, truncated, ends))
        self._seen = following
        return following, rewards, dones, infos

    def rollouts(self) -> list[Rollout]:
        """Batches of `STEPS` steps, the records that the transcription takes."""
        some = random_rollout(0)
        found = []
        for start in range(0, len(self.steps), STEPS):
            parts = [torch.from_numpy(np.stack(p)) for p in zip(*self.steps[start : start + STEPS], strict=True)]
            observations, actions, rewards, terminated, truncated, following = parts
            found.append(
                some._replace(
                    observations=observations.double(), actions=actions, rewards=rewards.double(),
                    terminated=terminated, truncated=truncated, next_observations=following.double(),
                )
            )  # fmt: skip
        return found


class Agent(NamedTuple):
    """Everything that Algorithm 1 changes."""

    theta: Params
    eta: Params
    second_moments: Params
    meta_first: Params
    meta_second: Params


_THETA = {
    "features_extractor.encoder.": "encoder.",
    "action_net.": "policy.",
    "value_net.": "value.",
    "encoder.extractor.encoder.": "encoder.",
}


def _renamed(params: Params) -> Params:
    """Under the transcription's names."""
    renamed = {}
    for name, value in params.items():
        old = next((old for old in _THETA if name.startswith(old)), "")
        renamed[_THETA.get(old, "") + name.removeprefix(old)] = value.detach().clone().double()
    return {name: value for name, value in renamed.items() if not name.startswith(("pi_", "vf_"))}


def state_of(model: DGVFA2C) -> Agent:
    """What the model's parameters say, by name."""
    parameters = model.get_parameters()
    answers = {f"answers.{name}": value for name, value in parameters["answer_net"].items()}
    theta, eta = _renamed({**parameters["policy"], **answers}), _renamed(parameters["question_net"])
    optimizers = parameters["optimizers"]
    moments = optimizers["meta"]["state"].get(0, {"exp_avg": None, "exp_avg_sq": None})
    return Agent(
        theta,
        eta,
        _renamed(optimizers["inner"]["second_moment"]),
        *(_split(moments[name], parameters["question_net"]) for name in ("exp_avg", "exp_avg_sq")),
    )


def _split(vector: torch.Tensor | None, like: Params) -> Params:
    """A packed vector by name; zeros before the first step."""
    sizes = [value.numel() for value in like.values()]
    whole = torch.zeros(sum(sizes)) if vector is None else vector
    return _renamed({k: p.reshape(v.shape) for (k, v), p in zip(like.items(), whole.split(sizes), strict=True)})


def adam(
    eta: Params, gradient: Params, first: Params, second: Params, step: int, discount_norm: float | None
) -> tuple[Params, Params, Params]:
    """η ← η - α m̂ / (√v̂ + ε), after the gradient is clipped, that of the discount head by itself if it has a norm."""
    alone = {k for k in gradient if discount_norm is not None and k.startswith("discounts.")}
    for names, largest in ((gradient.keys() - alone, META_NORM), (alone, discount_norm)):
        norm = sum((gradient[k] ** 2).sum() for k in names) ** 0.5
        gradient = gradient | {k: gradient[k] * min(1.0, largest / norm) for k in names}
    first = {k: 0.9 * first[k] + 0.1 * g for k, g in gradient.items()}
    second = {k: 0.999 * second[k] + 0.001 * g**2 for k, g in gradient.items()}
    moved = {
        k: p - META_RATE * (first[k] / (1 - 0.9**step)) / ((second[k] / (1 - 0.999**step)) ** 0.5 + META_EPSILON)
        for k, p in eta.items()
    }
    return moved, first, second


def transcribed(
    slow: Algorithm,
    start: Agent,
    rollouts: list[Rollout],
    objective: str,
    acted: Callable[[Params, Rollout], Rollout] = lambda theta, rollout: rollout,
    discount_norm: float | None = None,
) -> Agent:
    """Algorithm 1 from `start`: a meta-update after every `UPDATES` inner updates, on the batch that comes next.

    Args:
        slow: the transcription.
        start: everything that it changes.
        rollouts: all batches.
        objective: of the meta-loss.
        acted: adds to a batch what the policy of a θ that collected it knows.
        discount_norm: maximum norm of the discount head's meta-gradient.
    """
    rollouts = list(rollouts)
    theta, eta, second, first_of_eta, second_of_eta = start
    statistics = Statistics(0, {}, second)
    unroll, begin, steps = 0, (theta, statistics), 0
    for number in range(len(rollouts)):
        rollout = rollouts[number] = acted(theta, rollouts[number])
        if unroll == UPDATES:
            batches = rollouts[number - UPDATES : number + 1]
            gradient = slow.meta_gradients(*begin, eta, batches)[objective]
            steps += 1
            eta, first_of_eta, second_of_eta = adam(eta, gradient, first_of_eta, second_of_eta, steps, discount_norm)
            unroll = 0
        if unroll == 0:
            begin = (theta, statistics)
        theta, statistics = slow.update(theta, statistics, eta, rollout)
        theta = {k: p.detach() for k, p in theta.items()}
        statistics = Statistics(statistics.steps, {}, {k: s.detach() for k, s in statistics.second.items()})
        unroll += 1
    return Agent(theta, eta, statistics.second, first_of_eta, second_of_eta)


def assert_moved_alike(actual: Agent, expected: Agent, start: Agent) -> None:
    """That everything moved, and to where it was expected."""
    for name, own, wanted, before in zip(Agent._fields, actual, expected, start, strict=True):
        assert own.keys() == wanted.keys(), name
        for key, value in wanted.items():
            moved = (value - before[key]).abs().max()
            assert moved > 0, (name, key)
            # Adam's first steps are nearly signs of gradients, which tiny ones do not have to 1e-6
            torch.testing.assert_close(own[key], value, rtol=0, atol=1e-4 * float(moved), msg=f"{name} {key}")


OPTIONS = {
    "objective": ("sum", "end"),
    "horizon": ("unrolled", "myopic"),
    "storage": ("graph", "recompute"),
    "mode": ("joint", "auxiliary"),
    "convention": ("exact", "surrogate"),
}


@pytest.mark.parametrize(tuple(OPTIONS), crossed(*OPTIONS.values(), quick=16))
def test_two_unrolls_are_those_of_the_transcription(
    objective: str, horizon: str, storage: str, mode: str, convention: str
) -> None:
    env = Recorder(DummyVecEnv([Noise] * COPIES))
    weighting = "gradient-norm" if mode == "joint" else "fixed"
    discount, discount_norm = (0.9, None) if objective == "sum" else (None, 3e-5)
    model = DGVFA2C(
        "PaperMlpPolicy", env, auxiliary_task="discovered", n_steps=STEPS, unroll_length=UPDATES, questions=QUESTIONS,
        ent_coef=0.01,
        meta_learning_rate=META_RATE, meta_max_grad_norm=META_NORM, meta_epsilon=META_EPSILON, objective=objective,
        horizon=horizon, storage=storage, encoder_mode=mode, convention=convention, auxiliary_weighting=weighting,
        question_discount=discount, meta_max_discount_grad_norm=discount_norm,
        policy_kwargs={"features_extractor_kwargs": {"hidden": HIDDEN}}, seed=0, device="cpu", compile=False,
    )  # fmt: skip
    start = state_of(model)
    slow = Algorithm(
        gvf_loss(discount), Rule("rmsprop", 7e-4, epsilon=1e-10, decay=0.99), convention=convention, encoder_mode=mode,
        horizon=horizon, max_gradient_norm=0.5, discount=0.99, value_weight=0.5, entropy_weight=0.01,
        auxiliary_coefficient=0.03, auxiliary_weighting=weighting,
    )  # fmt: skip
    model.learn((2 * UPDATES + 1) * STEPS * COPIES)
    expected = transcribed(slow, start, env.rollouts(), objective, discount_norm=discount_norm)
    actual = state_of(model)
    assert model.meta_updates == 2
    assert_moved_alike(actual, expected, start)
