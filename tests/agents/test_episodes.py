"""Simulated episodes against acting and stepping in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.simulation import MAX_STEPS
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.storage.state import get_random_states
from dgvf_agents.train.evaluate import Evaluator, episodes_of
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import assert_same

SEED, B = 7, 3


@pytest.fixture(autouse=True)
def _eager_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would run compiled from the third update on runs eagerly."""
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
    monkeypatch.setattr(compiling, "FIRST_COMPILED_UPDATE", 2)
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)
    monkeypatch.setattr(Compiled, "_passes", lambda *arguments: None)


def world(num_envs: int = B) -> VecEnv:
    return make_vec("PuddleWorld-v0", num_envs, 1, env_kwargs={"start": "random", "max_episode_steps": 21})


def trained(updates: int) -> DGVFA2C:
    model = DGVFA2C("MlpPolicy", world(2), n_steps=5, questions=2, unroll_length=1, seed=0, device="cpu")
    return model.learn(2 * 5 * updates)


def episodes_in_turn(model: DGVFA2C, env: VecEnv, episodes: int) -> tuple[list[float], list[int]]:
    """The episodes that Stable-Baselines3's `evaluate_policy` counts, as its monitor sees them."""
    generator, act = np.random.default_rng(SEED), model.learner.functions.packed.act
    env.seed(SEED)
    observations, found, t = env.reset(), [], 0
    left = [(episodes + i) // env.num_envs for i in range(env.num_envs)]
    while any(left):
        if t % MAX_STEPS == 0:
            noise = torch.from_numpy(model._distribution.draw_noise(generator, MAX_STEPS, env.num_envs))
        observed = torch.from_numpy(observations)  # type: ignore[arg-type]
        actions = act(model._policy_theta, observed, noise[t % MAX_STEPS]).actions
        observations, _, dones, infos = env.step(actions.numpy())
        for i in np.flatnonzero(dones):
            if left[i]:
                left[i] -= 1
                found.append((infos[i]["episode"]["r"], infos[i]["episode"]["l"]))
        t += 1
    return [r for r, _ in found], [n for _, n in found]


def generators(model: DGVFA2C) -> list[Any]:
    """States of the global random number generators, and of the actor's."""
    python, of_numpy, of_torch, _ = get_random_states(model.device)
    return [python, of_numpy, of_torch.numpy(), model._collector.get_state()["generator"].bit_generator.state]


@pytest.mark.parametrize("updates", [1, 4])
def test_evaluations_do_not_disturb_training(updates: int) -> None:
    """Neither step by step nor simulated."""
    model, evaluator = trained(updates), Evaluator(world(), 4, SEED)
    before = generators(model)
    evaluator.episodes_of(model)
    assert_same(generators(model), before)


@pytest.mark.parametrize(("updates", "episodes"), [(1, 6), (4, 1), (4, 8)])
def test_evaluations_are_simulated_once_updates_are_compiled(updates: int, episodes: int) -> None:
    model, evaluator = trained(updates), Evaluator(world(), episodes, SEED)
    found = evaluator.episodes_of(model)
    assert_same(evaluator.episodes_of(model), found)  # from the same seed
    if updates == 1:
        expected = episodes_of(model, world(), episodes, SEED)
    else:
        expected = tuple(map(np.asarray, episodes_in_turn(model, world(), episodes)))  # type: ignore[assignment]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_other_worlds_are_evaluated_step_by_step() -> None:
    model = DGVFA2C("MlpPolicy", VecFrameStack(world(2), 2), n_steps=5, unroll_length=1, seed=0, device="cpu").learn(40)
    assert model._collector.episodes_in(VecFrameStack(world(), 2)) is None
    assert_same(
        Evaluator(VecFrameStack(world(), 2), 4, SEED).episodes_of(model),
        episodes_of(model, VecFrameStack(world(), 2), 4, SEED),
    )
