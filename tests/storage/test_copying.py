"""A copy of a model learns on as the original does, and neither disturbs the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from dgvf_agents import DGVFA2C
from tests.storage.test_resume import BATCH, SMALL, assert_same_training, everything, puddle, small_model


def _on(model: DGVFA2C, steps: int) -> DGVFA2C:
    return model.learn(steps, reset_num_timesteps=False)


@pytest.mark.parametrize("updates", [1, 4, 5, 6])
def test_a_copy_learns_on_bitwise_like_the_original_in_its_own_environment(updates: int) -> None:
    model = small_model(puddle()).learn(updates * BATCH)
    random_state = torch.get_rng_state()
    twin = copy.deepcopy(model)
    assert twin.learner.unroll_updates == model.learner.unroll_updates == (updates - 1) % 3 + 1
    assert twin.env is not model.env
    assert torch.equal(torch.get_rng_state(), random_state)
    _on(model, 8 * BATCH)  # the original first: what it does is not to reach the copy
    reached = everything(model)
    weights = {name: value.clone() for name, value in model.policy.state_dict().items()}
    _on(twin, 8 * BATCH)
    assert_same_training(twin, model)
    assert reached["num_timesteps"] == twin.num_timesteps == (updates + 8) * BATCH
    assert twin.meta_updates == (updates + 8 - 1) // 3
    assert all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())


@pytest.mark.parametrize("normalized", [False, True])
def test_a_copy_in_an_environment_that_cannot_give_its_state(normalized: bool) -> None:
    """The environment is copied, and the unroll with the model: nothing restarts."""
    env: Any = VecNormalize(make_vec_env("CartPole-v1", 1, seed=0)) if normalized else "CartPole-v1"
    model = DGVFA2C("PaperMlpPolicy", env, **SMALL).learn(5 * 5)
    twin = copy.deepcopy(model)
    assert twin.learner.unroll_updates == model.learner.unroll_updates == 2
    _on(model, 20 * 5)
    weights = {name: value.clone() for name, value in model.policy.state_dict().items()}
    _on(twin, 20 * 5)
    assert_same_training(twin, model)
    assert all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())
    assert model.ep_info_buffer  # episodes ended on the way


class CopyAt(BaseCallback):
    """Copies the model in the middle of a rollout."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self.copy: DGVFA2C | None = None

    def _on_step(self) -> bool:
        if self.num_timesteps == self._steps:
            self.copy = copy.deepcopy(self.model)  # type: ignore[assignment]
        return True


@pytest.mark.parametrize("env_id", ["PuddleWorld-v0", "CartPole-v1"])
def test_a_copy_made_in_the_middle_of_a_rollout_ends_it_likewise(env_id: str) -> None:
    callback = CopyAt(5 * 20 + 8)
    model = DGVFA2C("PaperMlpPolicy", env_id, **SMALL, n_envs=4).learn(12 * 20, callback)
    assert callback.copy is not None
    assert callback.copy.num_timesteps == 108
    twin = _on(callback.copy, 12 * 20 - 108)
    assert_same_training(twin, model)
